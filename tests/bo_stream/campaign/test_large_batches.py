"""Batches of any size are chosen within seconds and little memory, and say how."""

import resource
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from acquisitions import Maximised, Proposal, View, build
from acquisitions.domain import Domain
from acquisitions.maximised import InParts
from bo_stream import Box, Campaign, Pool
from bo_stream.campaign.outcomes.outcome import Observations

BOX = Box({"a": (0.0, 1.0), "b": (0.0, 1.0)})
MOST_BYTES = 1.5e9


def begun(acquisition: str, surrogate: str = "exact", space: Any = BOX) -> Campaign:
    goal: Any = "learn" if acquisition in ("nipv", "max_variance") else "maximise"
    given: dict[str, Any] = {"surrogate": surrogate, "acquisition": acquisition, "seed": 0}
    campaign = Campaign(space, goal=goal, initial=5, **given)
    X = np.random.default_rng(0).random((30, 2)).round(2)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=-((X - 0.4) ** 2).sum(1))
    campaign.tell(frame if isinstance(space, Box) else frame[["y"]].assign(place=range(30)))
    return campaign


def asked(campaign: Campaign, q: int) -> pd.DataFrame:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    frame = campaign.ask(q)
    assert len(frame) == q and len(frame.drop_duplicates()) == q
    assert frame[["a", "b"]].stack().between(0.0, 1.0).all()
    assert 1024.0 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < MOST_BYTES
    return frame


@pytest.mark.parametrize(
    ("acquisition", "by"),
    [("qlogei", "thompson"), ("nipv", "nipv")],
)
def test_two_hundred_trials_at_once(acquisition: str, by: str) -> None:
    campaign = begun(acquisition)
    frame = asked(campaign, 200)
    assert campaign.decision.acquisition == by
    assert "64 trials" in campaign.decision.why or "one by one" in campaign.decision.why
    asked(campaign, 1)  # with so many pending
    assert campaign.decision.acquisition == by
    campaign.fail(frame.index[:180], "too many")
    asked(campaign, 1)
    assert campaign.decision.acquisition == acquisition


@pytest.mark.parametrize(
    "family",
    ["exact", *(pytest.param(f, marks=pytest.mark.slow) for f in ("wiski", "hsgp", "cagp"))],
)
@pytest.mark.parametrize("acquisition", ["qlogei", "thompson", "random", "nipv"])
def test_five_thousand_trials_at_once(acquisition: str, family: str) -> None:
    asked(begun(acquisition, family), 5000)


def test_trials_in_parts_are_chosen_with_those_before_pending() -> None:
    campaign = begun("qlogei")
    asked(campaign, 20)
    assert "pending" in campaign.decision.why
    seen: list[torch.Tensor] = []

    class Recording(Maximised):
        def propose(self, view: View, q: int) -> Proposal:
            seen.append(view.pending)
            return Proposal(torch.full((q, 2), float(len(seen))))

    search, none = Recording(partial(build, "qlogei")), torch.empty(0, 2)
    domain, data = Domain.of(BOX.tensor_bounds), Observations(none, none[:, :1])
    view = View(campaign.model, data, domain, torch.zeros(3, 2), none)
    chosen = InParts(search, search).propose(view, 40).points
    before = torch.cat([torch.zeros(3, 2), chosen])
    assert [len(pending) for pending in seen] == [3, 19, 35]
    assert all(torch.equal(pending, before[: len(pending)]) for pending in seen)


def test_a_pool_and_a_constraint() -> None:
    places = pd.DataFrame(np.random.default_rng(1).random((400, 2)), columns=["a", "b"])
    campaign = begun("qlogei", space=Pool(places))
    assert campaign.ask(100)["place"].nunique() == 100
    box = Campaign(
        BOX, goal="learn", surrogate="exact", initial=5, constraints=["a + b <= 1"], seed=0
    )
    frame = box.ask(30)
    box.tell(frame.assign(y=frame["a"]))
    frame = box.ask(300)
    assert (frame["a"] + frame["b"]).max() <= 1.0


@pytest.mark.parametrize("failures", ["ignored", "infeasible"])
@pytest.mark.parametrize("goal", ["maximise", {"u": "maximise", "v": "minimise"}], ids=["1", "2"])
def test_large_batches_of_several_outcomes(goal: Any, failures: Any) -> None:
    """The front is the diagonal up to a limit; trials fail above it."""
    given: dict[str, Any] = {"goal": goal, "seed": 0, "initial": 5, "failures": failures}
    campaign = Campaign(BOX, "exact", constraints=["w <= 0.7"], budget=300, **given)
    X = np.random.default_rng(0).random((40, 2))
    frame = campaign.enqueue(pd.DataFrame(X, columns=["a", "b"]))
    lost = frame.index[frame["b"] > 0.8]
    campaign.fail(lost, "too hot")
    gap = (frame["a"] - frame["b"]) ** 2
    outcomes = frame.assign(
        u=frame["a"] - gap, v=frame["a"] + gap, y=frame["a"] - gap, w=frame["a"]
    )
    campaign.tell(outcomes.drop(lost)[campaign.settings.outcomes.columns])
    found = asked(campaign, 200)
    assert campaign.decision.acquisition == "thompson"
    assert (found["a"] <= 0.72).all() and (found["a"] - found["b"]).abs().median() < 0.15
    assert failures == "ignored" or (found["b"] <= 0.85).mean() > 0.95
    if isinstance(goal, dict):
        assert found["a"].quantile(0.8) - found["a"].quantile(0.2) > 0.2


def test_expected_improvement_of_several_trials() -> None:
    campaign = begun("ei")
    campaign.ask()
    assert campaign.decision.acquisition == "ei"
    assert len(campaign.ask(3).drop_duplicates()) == 3  # with one running
    assert campaign.decision.acquisition == "qlogei"
