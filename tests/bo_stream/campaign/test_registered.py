"""Families and acquisition functions of users have names, and a campaign resumes with them."""

from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest
import torch
from botorch.acquisition.analytic import ProbabilityOfImprovement
from torch import Tensor

import acquisitions
from acquisitions import Proposal, Rule, View
from acquisitions.rule import REGISTRY
from bo_stream import Campaign, ExactGP, Pool, register_surrogate
from bo_stream.errors import InputError, StateError
from bo_stream.surrogates.registry import FAMILIES
from tests.bo_stream.campaign.runs import CHEAP


class RegisteredGP(ExactGP):
    """A family of a user."""


def improves(model: Any, best_f: Tensor, shift: float = 0.0) -> ProbabilityOfImprovement:
    return ProbabilityOfImprovement(model, best_f + shift)


@pytest.fixture(autouse=True)
def names() -> Any:
    register_surrogate("mine", RegisteredGP)
    acquisitions.register("improves", improves)
    yield
    FAMILIES.pop("mine", None)
    REGISTRY.pop("improves", None)


def test_a_campaign_uses_them_and_resumes(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    choice = {"name": "improves", "shift": 0.01}
    store = f"sqlite:///{tmp_path}/oven.db"
    options: dict[str, Any] = {"store": store, "seed": 0, "initial": 4, "optimiser": CHEAP}
    campaign = Campaign({"x": (0.0, 4.0)}, "mine", choice, **options)
    campaign.tell(campaign.ask(4).assign(y=[1.0, 2.0, 0.5, 1.5]))
    asked = campaign.ask()
    assert type(campaign.model) is RegisteredGP and campaign.decision.acquisition == "improves"
    assert 0.0 <= asked["x"].item() <= 4.0
    assert type(Campaign.resume(store).model) is RegisteredGP
    FAMILIES.pop("mine")
    with pytest.raises(StateError, match="mine"):
        Campaign.resume(store).ask()


@pytest.mark.parametrize(
    ("choice", "known"),
    [
        ({"name": "improves", "shfit": 0.1}, "options among shift of .*'improves'; got shfit"),
        ({"name": "qucb", "bata": 9.0}, "among beta, num_samples, seed of .*'qucb'; got bata"),
        ({"name": "logei", "samples": 3}, "no options of .*'logei'; got samples"),
        ({"name": "auto", "beta": 3}, "the name of an acquisition function.*'auto'"),
    ],
)
def test_options_that_there_are_not_are_refused(choice: dict[str, Any], known: str) -> None:
    with pytest.raises(InputError, match=known):
        Campaign({"x": (0.0, 4.0)}, "warped", choice)


def test_plain_options_of_botorchs_classes_are_taken() -> None:
    choice = {"name": "qlogei", "fat": False, "num_samples": 16}
    campaign = Campaign({"x": (0.0, 4.0)}, "exact", choice, seed=0, initial=3, optimiser=CHEAP)
    campaign.tell(campaign.ask(3).assign(y=[1.0, 2.0, 0.5]))
    assert 0.0 <= campaign.ask()["x"].item() <= 4.0
    assert campaign.decision.acquisition == "qlogei"
    with pytest.raises(InputError, match="fat.*'qlogei'; got objective"):
        Campaign({"x": (0.0, 4.0)}, "exact", {"name": "qlogei", "objective": 3})


def test_options_without_a_default_and_with_names_of_data_are_known() -> None:
    class Weighted(Rule):
        def __init__(self, weights: float) -> None:
            self.weights = weights

        def propose(self, view: View, q: int) -> Proposal:
            return Proposal(view.domain.uniform(q))

    acquisitions.register("improves", Weighted)
    Campaign({"x": (0.0, 4.0)}, "exact", {"name": "improves", "weights": 1.0})
    with pytest.raises(InputError, match="options weights of .*'improves'; got none"):
        Campaign({"x": (0.0, 4.0)}, "exact", "improves")


WRONG = {
    "no proposal": (lambda view, q: view.domain.uniform(q), "got Tensor"),
    "too many": (lambda view, q: Proposal(view.domain.uniform(q + 1)), "shape .2, 1."),
    "outside": (lambda view, q: Proposal(torch.full((q, 1), 7.0).double()), "feasible points"),
}
WRONG_ROWS = {
    "points": (lambda view, q: Proposal(view.domain.uniform(q)), "rows of view.places"),
    "one place twice": (lambda view, q: Proposal(torch.zeros(q).long()), "2 different rows"),
    "no places": (lambda view, q: Proposal(torch.arange(q) - 5), "2 different rows"),
}


@pytest.mark.parametrize("pool", [False, True], ids=["box", "pool"])
def test_proposals_that_cannot_be_trials_are_refused(pool: bool) -> None:
    for proposed, known in (WRONG_ROWS if pool else WRONG).values():

        class Wrong(Rule):
            wrong = staticmethod(proposed)

            def propose(self, view: View, q: int) -> Proposal:
                return cast(Proposal, self.wrong(view, q))

        acquisitions.register("improves", Wrong)
        space = Pool(pd.DataFrame({"x": torch.arange(9.0).tolist()}))
        about: dict[str, Any] = {"acquisition": "improves", "seed": 0, "initial": 3}
        campaign = Campaign(space if pool else {"x": (0.0, 4.0)}, "exact", **about)
        campaign.tell(campaign.ask(3).assign(y=[1.0, 2.0, 0.5]))
        with pytest.raises(InputError, match=known):
            campaign.ask(2)
        assert len(campaign.trials()) == 3


def test_names_that_are_taken_are_refused() -> None:
    register_surrogate("mine", RegisteredGP)  # again
    with pytest.raises(InputError, match="a name that no family has"):
        register_surrogate("exact", RegisteredGP)
    with pytest.raises(InputError, match="a subclass of StreamingGP"):
        register_surrogate("other", dict)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a name that no acquisition function has"):
        acquisitions.register("qucb", ProbabilityOfImprovement)
    with pytest.raises(InputError, match="Expected a name"):
        acquisitions.register(3, ProbabilityOfImprovement)  # type: ignore[arg-type]
    acquisitions.register("improves", ProbabilityOfImprovement)  # in place of the other
    assert REGISTRY["improves"].make is ProbabilityOfImprovement


class Mistaken(Rule):
    """A rule of a user with a mistake."""

    def propose(self, view: View, q: int) -> Proposal:
        raise ValueError("too few values to unpack")


def test_a_mistake_in_what_a_user_registered_is_seen() -> None:
    """As one in a callable is: only arithmetic of this package is fallen back from."""
    acquisitions.register("improves", Mistaken)
    told = pd.DataFrame({"x": [0.5, 1.0, 2.0, 3.0], "y": [1.0, 2.0, 0.5, 1.5]})
    campaign = Campaign({"x": (0.0, 4.0)}, "exact", "improves", seed=0, initial=4)
    campaign.tell(told)
    with pytest.raises(ValueError, match="too few values"):
        campaign.ask()
