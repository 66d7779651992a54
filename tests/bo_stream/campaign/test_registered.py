"""Families and acquisition functions of users have names, and a campaign resumes with them."""

from pathlib import Path
from typing import Any

import pytest
from botorch.acquisition.analytic import ProbabilityOfImprovement
from torch import Tensor

import acquisitions
from acquisitions.rule import REGISTRY
from bo_stream import Campaign, ExactGP, register_surrogate
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
        Campaign.resume(store)


@pytest.mark.parametrize(
    ("choice", "known"),
    [
        ({"name": "improves", "shfit": 0.1}, "options among shift of .*'improves'; got shfit"),
        ({"name": "qucb", "bata": 9.0}, "among beta, num_samples, seed of .*'qucb'; got bata"),
        ({"name": "logei", "samples": 3}, "no options of .*'logei'; got samples"),
        ({"name": "auto", "beta": 3}, "no options of .*'auto'; got beta"),
    ],
)
def test_options_that_there_are_not_are_refused(choice: dict[str, Any], known: str) -> None:
    with pytest.raises(InputError, match=known):
        Campaign({"x": (0.0, 4.0)}, "warped", choice)


def test_names_that_are_taken_are_refused() -> None:
    register_surrogate("mine", RegisteredGP)  # again
    with pytest.raises(InputError, match="a name that no family has"):
        register_surrogate("exact", RegisteredGP)
    with pytest.raises(InputError, match="a subclass of StreamingGP"):
        register_surrogate("other", dict)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a name that no acquisition function has"):
        acquisitions.register("qucb", ProbabilityOfImprovement)
    acquisitions.register("improves", ProbabilityOfImprovement)  # in place of the other
    assert REGISTRY["improves"].make is ProbabilityOfImprovement
