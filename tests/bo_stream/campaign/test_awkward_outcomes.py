"""Large and awkward outcomes, and arithmetic that fails, never stop a campaign."""

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from bo_stream import Box, Campaign, ExactGP
from bo_stream.campaign.effort import FitPolicy, Optimiser
from bo_stream.campaign.outcomes.outcome import least_learned
from bo_stream.campaign.results import winsorised
from bo_stream.errors import FallbackWarning, InputError

BOX = Box({"a": (0.0, 1.0), "b": (0.0, 1.0)})
FAST: dict[str, Any] = {"optimiser": Optimiser(2, 16, {"maxiter": 3}), "initial": 5, "seed": 0}


def bowl(trial: Any) -> float:
    return float((trial["a"] - 0.3) ** 2 + (trial["b"] - 0.6) ** 2)


def told(campaign: Campaign, number: int, awkward: Any = lambda i, y: y) -> Campaign:
    for i in range(number):
        frame = campaign.ask()
        campaign.tell(frame.assign(y=[awkward(i, bowl(frame.iloc[0]))]))
    return campaign


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(-1)


def test_the_limit_follows_the_good_half() -> None:
    good = torch.linspace(-1.0, 0.0, 21, dtype=torch.float64).unsqueeze(-1)
    plain = least_learned(good)
    assert plain == pytest.approx(-0.55 - 20.0 * 0.6)  # of the first 20
    many = least_learned(torch.cat([good, torch.full((9, 1), -1e8).double()]))
    assert plain - 10.0 < many < -1.0  # of nearly a third the others do not notice
    late = torch.cat([good, torch.full((200, 1), -1e-9).double()])
    assert least_learned(late) == pytest.approx(plain)  # the first outcomes' spread counts
    assert least_learned(column(1.0, 1.0, 1.0, 1.0, -1e9)) == -math.inf
    assert least_learned(column(1.0, 2.0)) == -math.inf


def test_the_first_outcomes_that_differ_give_the_unit() -> None:
    """Zeros alone have none, and a fit is not due for long after the last one."""
    campaign = Campaign(BOX, goal="maximise", budget=40, surrogate="hsgp", **FAST)
    told(campaign, 12, lambda i, y: 0.0)
    campaign.ask()
    told(campaign, 1, lambda i, y: 1e-9)
    predicted = campaign.predict(pd.DataFrame({"a": [0.2, 0.9], "b": [0.5, 0.1]}))
    assert predicted["sd"].max() < 1e-8


SLOW = ("wiski", "projected_wiski", "node_wiski", "cagp", "exact", "online_sgpr", "svdgp")


@pytest.mark.parametrize("value", [1e200, -1e200])
def test_outcomes_whose_squares_overflow_are_refused(value: float) -> None:
    campaign = Campaign(BOX, goal="minimise", budget=20, **FAST)
    frame = campaign.ask(2).assign(y=[0.1, value])
    with pytest.raises(InputError, match="at most 1e.150 in size in column 'y'.*in row 1"):
        campaign.tell(frame)
    assert campaign.trials()["status"].tolist() == ["running", "running"]
    noisy = frame.assign(y=[0.1, 0.2], yvar=[0.1, 1e305])
    with pytest.raises(InputError, match="in column 'yvar'"):
        campaign.tell(noisy)
    campaign.tell(frame.assign(y=[0.1, 0.2]))
    campaign.run(lambda trial: value, budget=3)  # as one that fails
    assert campaign.trials()["status"].tolist() == ["told", "told", "failed"]


@pytest.mark.parametrize(
    ("goal", "options"),
    [
        ("minimise", {"surrogate": "exact", "acquisition": "qucb"}),
        ("learn", {"surrogate": "exact"}),
        ({"y": "minimise"}, {"surrogate": "exact", "constraints": True}),
        ({"y": "minimise", "z": "maximise"}, {"surrogate": "exact"}),
    ],
    ids=["qucb", "learn", "constraint", "two"],
)
def test_decisions_do_not_depend_on_the_unit(goal: Any, options: dict[str, Any]) -> None:
    """To the last bit for a power of two."""
    found = []
    for unit in (1.0, 2.0**-33):
        limits = {"constraints": [f"z >= {0.1 * unit!r}"]} if "constraints" in options else {}
        torch.manual_seed(0)
        campaign = Campaign(BOX, goal=goal, budget=30, **FAST, **(options | limits))
        several = isinstance(goal, dict)
        for q in (6, 1):
            frame = campaign.ask(q)
            frame["y"] = unit * ((frame["a"] - 0.3) ** 2 + (frame["b"] - 0.6) ** 2)
            campaign.tell(frame.assign(z=unit * (frame["a"] - frame["b"])) if several else frame)
        parts = [campaign.trials()[["a", "b"]], campaign.predict(frame[["a", "b"]])]
        if goal != "learn":
            parts.append(campaign.recommend().drop(columns="gain", errors="ignore"))
        unitless = ["a", "b", "feasible"]
        scaled = [part.drop(columns=unitless, errors="ignore") / unit for part in parts[1:]]
        found.append([part.to_numpy() for part in (parts[0], *scaled)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9)


@pytest.mark.parametrize(
    "family",
    ["warped", "hsgp", "trust_region", *(pytest.param(f, marks=pytest.mark.slow) for f in SLOW)],
)
@pytest.mark.parametrize(
    "awkward",
    [
        lambda i, y: 1e50 if i == 6 else y,
        lambda i, y: -1e140 if i == 6 else y,
        lambda i, y: 1e8 if i % 3 == 0 else y,
        lambda i, y: 1e50 if i == 6 else 0.0,
        lambda i, y: 10.0 ** (6 - 12 * (i % 7) / 6),
    ],
    ids=["1e50", "-1e140", "penalties", "constant and 1e50", "orders"],
)
def test_awkward_outcomes_do_not_stop_a_campaign(family: str, awkward: Any) -> None:
    campaign = Campaign(BOX, goal="minimise", surrogate=family, **FAST)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        told(campaign, 10, awkward)
    frame = campaign.trials()
    assert frame["status"].eq("told").all() and frame[["a", "b"]].stack().between(0, 1).all()


def test_penalties_are_learned_as_less_bad_and_kept_as_told(tmp_path: Path) -> None:
    def penalised(i: int, y: float) -> float:
        return 1e8 if i in (2, 7) else y

    store = f"sqlite:///{tmp_path}/campaign.db"
    campaign = told(
        Campaign(BOX, goal="minimise", store=store, surrogate="exact", **FAST), 12, penalised
    )
    limit, number = winsorised(campaign.state)["y"]
    assert number == 2 and 1.0 < limit < 100.0
    trials = campaign.trials()
    assert trials["y"].max() == 1e8
    bad = trials[trials["y"] == 1e8][["a", "b"]]
    assert campaign.predict(bad)["mean"].max() < 2.0 * limit
    resumed = Campaign.resume(store)
    assert winsorised(resumed.state) == {"y": (limit, number)}
    np.testing.assert_allclose(resumed.predict(bad), campaign.predict(bad), rtol=1e-6)


def test_a_penalty_is_bounded_as_it_is_told() -> None:
    campaign = told(Campaign(BOX, goal="minimise", surrogate="exact", **FAST), 8)
    frame = campaign.ask()
    limit, _ = winsorised(campaign.state)["y"]
    campaign.tell(frame.assign(y=1e8))
    assert winsorised(campaign.state) == {"y": (limit, 1)}  # no fit since
    assert campaign.predict(frame)["mean"].item() < 2.0 * limit


def test_the_limit_is_set_by_every_fit_and_learned_outcomes_follow() -> None:
    """The surrogate is the one that learns all outcomes under the latest limit."""
    fit = FitPolicy(then_every=3)
    campaign = Campaign(BOX, goal="minimise", surrogate="exact", fit=fit, **FAST)
    limits = set()
    for i in range(14):
        told(campaign, 1, lambda _, y, i=i: 1e8 if i == 3 else y)
        limits.add(winsorised(campaign.state)["y"][0])
    assert len(limits) > 2
    X, Y = campaign.state.observations.X, campaign.state.observations.Y
    model = campaign.model
    assert model is not None
    least = -winsorised(campaign.state)["y"][0]
    reference = ExactGP(
        X,
        Y.clamp_min(least),
        bounds=BOX.tensor_bounds,
        covar_module=model.covar_module,
        mean_module=model.mean_module,
        likelihood=model.likelihood,
        outcome_transform=model.outcome_transform,
    )
    torch.testing.assert_close(reference.posterior(X).mean, model.posterior(X).mean)


def test_one_place_told_many_times_is_asked_and_recommended() -> None:
    campaign = Campaign(BOX, goal="minimise", surrogate="warped", **FAST)
    same = pd.DataFrame({"a": [0.3] * 9, "b": [0.4] * 9, "y": [1.0] * 9})
    campaign.tell(same)
    frame = campaign.ask(2)
    campaign.tell(frame.assign(y=2.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        advised = campaign.recommend()
    assert advised["mean"].between(0.9, 2.1).all() and advised["sd"].between(1e-9, 1.0).all()


def test_each_of_several_outcomes_has_a_limit() -> None:
    goal = {"cost": "minimise", "gain": "maximise"}
    campaign = Campaign(BOX, goal=goal, surrogate="exact", **FAST)
    frame = campaign.ask(8)
    cost = frame["a"].where(frame.index != 3, 1e8)
    campaign.tell(frame.assign(cost=cost, gain=frame["b"]))
    campaign.ask()
    (limit, number), (floor, fewer) = winsorised(campaign.state).values()
    assert list(winsorised(campaign.state)) == ["cost", "gain"]
    assert (number, fewer) == (1, 0) and 1.0 < limit < 100.0 and -100.0 < floor < 0.0


def test_no_outcome_is_bounded_where_values_matter() -> None:
    campaign = told(
        Campaign(BOX, goal="learn", surrogate="exact", **FAST), 8, lambda i, y: 1e4 if i == 3 else y
    )
    assert winsorised(campaign.state) == {"y": (-math.inf, 0)}


def failing(*given: Any, **options: Any) -> Any:
    raise torch.linalg.LinAlgError("not positive-definite")


@pytest.mark.parametrize("methods", [("fit",), ("observe",), ("process", "_snapshot")])
def test_failing_arithmetic_warns_and_the_campaign_goes_on(
    methods: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = told(Campaign(BOX, goal="minimise", surrogate="exact", **FAST), 6)
    for method in methods:
        monkeypatch.setattr(ExactGP, method, failing)
    with pytest.warns(FallbackWarning, match="positive-definite"):
        told(campaign, 2)
    assert len(campaign.trials()) == 8
    if "process" in methods:
        assert campaign.decision.acquisition == "space-filling"
    monkeypatch.undo()
    told(campaign, 2)
    assert campaign.model is not None and campaign.model.num_observed == 10
    assert campaign.decision.acquisition != "space-filling"


def test_errors_of_a_users_callable_are_raised() -> None:
    calls = []

    def mine(X: Any, Y: Any, Yvar: Any = None, **options: Any) -> Any:
        calls.append(len(X))
        if len(X) > 4:
            raise RuntimeError("mine")
        return ExactGP(X, Y, Yvar, **options)

    campaign = Campaign(BOX, goal="minimise", surrogate=mine, **FAST)
    with pytest.raises(RuntimeError, match="mine"):
        told(campaign, 7)
    assert max(calls) == 5
