"""Campaigns with several outcomes: objectives, and constraints on outcomes."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.utils.multi_objective.hypervolume import Hypervolume
from botorch.utils.sampling import draw_sobol_samples

from bo_stream import Box, Campaign, Pool
from bo_stream.base.units import largest_outcome
from bo_stream.campaign.effort import FitPolicy, Optimiser
from bo_stream.campaign.history import Log, TrialHistory
from bo_stream.campaign.outcomes.outcome import LARGEST
from bo_stream.campaign.storage.store import MemoryStore
from bo_stream.errors import InputError, NoiseError, StateError, UnsupportedError

LITTLE, ONCE = Optimiser(2, 24, {"maxiter": 12}), FitPolicy(then_every=0)
LINE, SQUARE = Box({"x": (0.0, 1.0)}), Box({"a": (0.0, 1.0), "b": (0.0, 1.0)})
TWO = {"yield": "maximise", "cost": "minimise"}


def campaign(space: Any = SQUARE, **options: Any) -> Campaign:
    settings: dict[str, Any] = {"seed": 0, "optimiser": LITTLE, "fit": ONCE, "budget": 24}
    return Campaign(space, **{**settings, **options})


def traded(frame: pd.DataFrame) -> pd.DataFrame:
    """The front of yield and cost is a = b; pure where a is small."""
    a, b = frame["a"], frame["b"]
    values = {"yield": a + b - (a - b) ** 2, "cost": a + b + (a - b) ** 2, "purity": 1.0 - a}
    return frame.assign(**values)


SPREAD = pd.DataFrame(SQUARE.decode(draw_sobol_samples(SQUARE.tensor_bounds, 12, 1, seed=1)[:, 0]))
SPREAD.columns = pd.Index(["a", "b"])


def begun(**options: Any) -> Campaign:
    """A campaign that has been told of points over the square."""
    run = campaign(**options)
    run.tell(traded(SPREAD)[["a", "b", *run.settings.outcomes.columns]])
    return run


def told(run: Campaign, n: int, *columns: str) -> Campaign:
    for _ in range(n):
        frame = run.ask()
        run.tell(traded(frame)[[*frame.columns, *columns]])
    return run


@pytest.mark.parametrize(
    ("spelled", "british"), [("maximize", "maximise"), ("minimize", "minimise")]
)
def test_goals_may_be_spelled_with_z(spelled: Any, british: Any) -> None:
    store = MemoryStore()
    assert Campaign(LINE, goal=spelled, store=store).settings.goal == british
    assert Campaign(LINE, goal=british, store=store).settings.goal == british  # the same campaign


def test_the_outcome_may_have_a_name() -> None:
    run = campaign(LINE, goal={"loss": "minimize"}, budget=8)
    for _ in range(8):
        frame = run.ask()
        run.tell(frame.assign(loss=(frame["x"] - 0.3) ** 2))
    assert abs(run.best()["x"] - 0.3) < 0.1 and "y" not in run.trials()
    assert run.best()["loss"] == run.trials()["loss"].min()
    assert abs(run.recommend()["x"][0] - 0.3) < 0.1
    with pytest.raises(InputError, match="loss"):
        run.tell(pd.DataFrame({"x": [0.5], "y": [0.1]}))


def test_outcomes_come_in_parts() -> None:
    run = campaign(goal=TWO, constraints=["purity >= 0.5"], initial=4)
    frame = run.ask(3)
    whole = traded(frame)
    run.tell(whole[["yield", "cost"]])
    trials = run.trials()
    assert (trials["status"] == "running").all() and trials["purity"].isna().all()
    assert trials["yield"].tolist() == whole["yield"].tolist()
    later = whole[["purity"]].copy()
    later.loc[1] = np.nan
    run.tell(later.dropna())
    assert run.trials()["status"].tolist() == ["told", "running", "told"]
    run.tell(whole)  # what was told before may be repeated
    assert run.trials()["status"].tolist() == ["told"] * 3
    with pytest.raises(StateError, match="'cost' that trial 2"):
        run.tell(whole.assign(cost=whole["cost"] + [0.0, 0.0, 1.0]))
    pd.testing.assert_frame_equal(run.trials()[[*whole.columns]], whole)


def test_surrogates_learn_from_the_parts_there_are() -> None:
    run = campaign(goal=TWO, initial=4)
    frame = run.ask(6)
    run.tell(traded(frame)[["yield", "cost"]].iloc[:4])
    run.tell(traded(frame)[["yield"]].iloc[4:])
    run.state.update()
    first, second = run.model.models  # type: ignore[union-attr]
    assert (first.num_observed, second.num_observed) == (6, 4)
    X, Y = run.state.observations.X, run.state.observations.Y
    assert X.shape == (6, 2) and Y[4:, 1].isnan().all() and (Y[:4, 1] < 0.0).all()


def test_the_front_is_what_no_other_trial_dominates() -> None:
    run = campaign(goal=TWO, constraints=["purity >= 0.5"])
    points = pd.DataFrame({"a": [0.1, 0.4, 0.4, 0.9, 0.2], "b": [0.1, 0.4, 0.1, 0.9, 0.25]})
    run.tell(traded(points))
    front = run.front()
    assert front.index.tolist() == [0, 4, 1]  # the third is dominated, the fourth is not pure
    volume, reference = run.hypervolume()  # type: ignore[misc]
    signed = torch.tensor(np.column_stack([front["yield"], -front["cost"]]))
    point = torch.tensor([reference["yield"], -reference["cost"]])
    assert volume == pytest.approx(Hypervolume(point).compute(signed)) and volume > 0.0


def test_trials_go_to_the_front() -> None:
    run = begun(goal=TWO, constraints=["purity >= 0.5"])
    late = told(run, 4, "yield", "cost", "purity").trials().iloc[12:]
    assert (late["a"] - late["b"]).abs().median() < 0.15
    assert (late["purity"] >= 0.45).mean() >= 0.75
    assert run.decision.acquisition == "qlognehvi"
    front = run.front(of="model")
    assert 20 < len(front) <= 100 and (front["feasible"] >= 0.95).all()
    assert (front["a"] - front["b"]).abs().median() < 0.1
    assert front["yield_mean"].is_monotonic_decreasing and front["cost_mean"].max() > 0.8
    some = run.recommend(3)
    assert len(some) == 3 and np.ptp(some["yield_mean"]) > 0.4
    assert ((some["yield_lower"] <= some["yield_mean"]) & (some["yield_sd"] >= 0.0)).all()
    with pytest.raises(InputError, match="probability"):
        run.recommend(feasible=1.5)


def test_the_best_feasible_point_is_found_and_recommended() -> None:
    """The best point has purity .4 exactly; the unconstrained one has none."""
    run = begun(goal={"yield": "maximise"}, constraints=["purity >= 0.4"])
    best = told(run, 4, "yield", "purity").best()
    assert best["purity"] >= 0.4 and best["yield"] > 1.35  # the optimum is 1.45
    assert run.decision.acquisition == "qlognei"
    sure, daring = run.recommend(feasible=0.95), run.recommend(feasible=0.05)
    assert sure["feasible"][0] >= 0.95 > daring["feasible"][0]
    assert daring["mean"][0] > sure["mean"][0] > 1.3
    assert sure["purity_mean"][0] == pytest.approx(1.0 - sure["a"][0], abs=0.02)
    predicted = run.predict(run.trials())
    assert predicted["mean"].to_numpy() == pytest.approx(run.trials()["yield"], abs=0.1)


def test_the_gain_is_the_largest_expected_one() -> None:
    """Of a pool, from predictions: by samples at every place."""
    pool = Pool(SPREAD.iloc[4:].reset_index(drop=True))
    run = campaign(pool, goal="maximise", constraints=["purity >= 0.5"], initial=4)
    run.tell(
        traded(pool.table.iloc[:5])
        .assign(y=lambda f: f["yield"])[run.settings.outcomes.columns]
        .assign(place=range(5))
    )
    gain, p = run.recommend()["gain"].item(), run.predict(pool.table)
    drawn = torch.Generator().manual_seed(0)
    z = torch.randn(4000, len(p), dtype=torch.float64, generator=drawn)
    mean, sd, feasible = torch.tensor(p[["mean", "sd", "feasible"]].to_numpy()).T
    gains = (mean + sd * z - mean[feasible >= 0.95].max()).clamp_min(0.0).mean(0)
    most = (gains * feasible).max()
    assert gain == pytest.approx(float(most), rel=0.25, abs=1e-4) and gain > 0.0


@pytest.mark.filterwarnings("error::botorch.exceptions.warnings.BotorchWarning")
def test_feasible_points_are_found_where_none_is_known() -> None:
    run = campaign(goal="minimise", constraints=["0.70 <= g <= 0.75"])
    with pytest.raises(StateError, match="at least one outcome"):
        run.best()

    def g(frame: pd.DataFrame) -> pd.Series:
        return (frame["a"] - 0.9) ** 2 + (frame["b"] - 0.1) ** 2  # from 0 to 1.6

    start = SPREAD[~g(SPREAD).between(0.65, 0.8)].reset_index(drop=True)
    run.tell(start.assign(y=start["a"], g=g))
    with pytest.raises(StateError, match="satisfies the constraints"):
        run.best()
    for _ in range(4):
        run.tell(run.ask().assign(y=lambda f: f["a"], g=g))
    assert run.trials()["g"].iloc[len(start) :].between(0.70, 0.75).sum() >= 2


def test_a_pool_is_searched_by_constraints_and_fronts() -> None:
    grid = np.stack(np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 1, 9)), -1).reshape(-1, 2)
    pool = Pool(pd.DataFrame(grid, columns=["a", "b"]))
    run = campaign(pool, goal=TWO, surrogate="warped")
    start = traded(pd.DataFrame(grid[::7], columns=["a", "b"]))
    run.tell(start.drop(columns="purity"))
    assert told(run, 2, "yield", "cost").trials()["place"].is_unique
    front = run.front(of="model")
    assert set(front["place"]) <= set(pool.table.index)
    assert (front["a"] - front["b"]).abs().median() < 0.2 and "feasible" not in front


def test_a_campaign_goes_on_bit_for_bit(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")

    def step(run: Campaign, i: int) -> None:
        whole = traded(run.ask())
        run.tell(whole[["yield", "cost"]])
        if i % 3:
            run.tell(whole[["purity"]])

    options: Any = {"goal": TWO, "constraints": ["purity >= 0.5"], "initial": 3, "fit": None}
    straight = campaign(store=f"sqlite:///{tmp_path}/one.db", **options)
    for i in range(8):
        step(straight, i)
    url = f"sqlite:///{tmp_path}/two.db"
    for i in range(8):
        run = Campaign.resume(url) if i in (4, 6, 7) else campaign(store=url, **options)
        step(run, i)
    again = Campaign.resume(url).trials()
    pd.testing.assert_frame_equal(again, straight.trials(), check_exact=True)


def test_known_noise_is_that_of_an_outcome() -> None:
    run = campaign(goal=TWO, initial=4)
    frame = traded(run.ask(4)).drop(columns="purity")
    run.tell(frame.assign(cost_var=0.01))
    run.state.update()
    first, second = run.model.models  # type: ignore[union-attr]
    assert (first.noise_mode, second.noise_mode) == ("learned", "known")
    assert "cost_var" in run.trials() and "yield_var" not in run.trials()
    more = traded(run.ask()).drop(columns="purity")
    with pytest.raises(NoiseError, match="cost_var"):
        run.tell(more)
    run.tell(more[["yield"]])
    run.tell(more[["cost"]].assign(cost_var=0.02))


def test_a_run_takes_outcomes_by_name() -> None:
    values: list[Any] = [
        {"yield": 1.0, "cost": 2.0},
        ({"yield": 1.0, "cost": 2.0}, {"cost": 0.1}),
        {"yield": 1.0},
        3.0,
        {"yield": 1.0, "cost": float("nan")},
        {"yield": 1.0, "costs": 2.0},
    ]
    run = campaign(goal=TWO, budget=6, initial=6)
    trials = run.run(lambda row: values[int(row.name)])
    assert trials["status"].tolist() == ["told", *["failed"] * 5]
    assert trials["yield"][2] == 1.0  # what there is is kept
    words = ["cost_var", "cost", "cost", "without outcome cost", "costs"]
    for word, reason in zip(words, trials["reason"][1:], strict=True):
        assert word in reason


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"goal": {}}, InputError),
        ({"goal": {"yield": "largest"}}, InputError),
        ({"goal": {"a": "maximise"}}, InputError),  # an input
        ({"goal": {"status": "maximise"}}, InputError),
        ({"goal": {"yield": "learn", "cost": "minimise"}}, InputError),
        ({"constraints": ["a + purity <= 1"]}, InputError),
        ({"constraints": ["purity == 1"]}, InputError),
        ({"constraints": ["purity * cost <= 1"]}, InputError),
        ({"goal": "learn", "constraints": ["purity >= 0.5"]}, UnsupportedError),
        ({"goal": TWO, "acquisition": "qlogei"}, InputError),
        ({"acquisition": "qlognehvi"}, InputError),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        campaign(**options)


def test_questions_for_another_goal_are_refused() -> None:
    run = campaign(goal=TWO)
    run.tell(traded(pd.DataFrame({"a": [0.5], "b": [0.5]})).drop(columns="purity"))
    with pytest.raises(UnsupportedError, match="front"):
        run.best()
    with pytest.raises(UnsupportedError, match="several objectives"):
        campaign().front()


def test_outcomes_are_mended_one_by_one() -> None:
    """The surrogates are those that would have been."""
    run, right = (campaign(goal=TWO, initial=12) for _ in range(2))
    points = traded(SPREAD).drop(columns="purity")
    wrong = points.copy()
    wrong.loc[3, "cost"] = 9.0
    run.tell(wrong)
    run.amend(pd.DataFrame({"trial": [3], "cost": points["cost"][3:4]}))
    right.tell(points)
    pd.testing.assert_frame_equal(run.trials(), right.trials())
    pd.testing.assert_frame_equal(run.predict(SPREAD), right.predict(SPREAD))
    run.withdraw(4, "spilt")
    assert 4 not in run.front().index and len(run.state.observations.X) == 11
    with pytest.raises(StateError, match="told before"):
        run.tell(pd.DataFrame({"trial": [4], "cost": 9.0}))
    run.amend(points[["yield"]].iloc[4:5].rename_axis("trial"))
    assert run.trials()["status"][4] == "told" and len(run.state.observations.X) == 12
    frame = run.ask()
    run.tell(traded(frame)[["yield"]])
    with pytest.raises(StateError, match="'cost'"):
        run.amend(frame.assign(cost=1.0)[["cost"]])
    run.amend(frame.assign(**{"yield": 0.5})[["yield"]])
    assert run.trials()["yield"][12] == 0.5 and run.trials()["status"][12] == "running"


def test_what_resembles_an_input_in_a_constraint_is_mentioned() -> None:
    oven = Box({"temperature": (0.0, 1.0)})
    with pytest.warns(UserWarning, match="'temperature' is meant") as seen:
        Campaign(oven, constraints=["temprature <= 1"])
    assert seen[0].filename == __file__
    Campaign(oven, constraints=["moisture <= 1"])  # no warning, which would be an error


@pytest.mark.parametrize(("option", "word"), [({"seed": 1}, "Choose"), ({"fit": None}, "change")])
def test_what_is_ignored_says_what_can_be_changed(option: dict[str, Any], word: str) -> None:
    store = MemoryStore()
    campaign(LINE, store=store)
    other = {"fit": FitPolicy(then_every=7)} if "fit" in option else option
    with pytest.warns(UserWarning, match=f"is ignored. (Use campaign.)?{word}"):
        campaign(LINE, store=store, **other)


def test_an_outcome_may_be_called_completed_unless_failures_are_learned() -> None:
    run = campaign(goal={"yield": "maximise"}, constraints=["completed >= 0.5"], initial=6)
    run.tell(traded(SPREAD)[["a", "b", "yield"]].assign(completed=SPREAD["a"]))
    row = run.recommend().iloc[0]
    assert row["completed_mean"] == pytest.approx(row["a"], abs=0.05)
    _, learner = run.state.engine.learners.values()
    assert learner.data.Y[:, 0].tolist() == SPREAD["a"].tolist()  # and nothing about failures
    with pytest.raises(InputError, match="'completed', an outcome, beside"):
        run.change(failures="infeasible")


def test_events_of_earlier_releases_are_read_by_column() -> None:
    trials = [[i, None, [0.1 * i]] for i in range(3)]
    several = [
        {"kind": "told", "trials": trials, "values": [[0, None, None]], "at": 1.0}
        | {"parts": {"u": [[0, 1.0, None], [1, 2.0, None]], "v": [[0, 3.0, 0.1]]}},
        {"kind": "amended", "values": [], "before": {}, "parts": {"v": [[0, 4.0, 0.1]]}},
    ]
    history = TrialHistory(logs={"u": Log(), "v": Log()}).extended(several)
    assert [trial.status for trial in history.trials] == ["told", "running", "running"]
    assert history.trials[0].entries == {"u": (1.0, None), "v": (4.0, 0.1)}
    assert history.logs["u"].batches == [(0, 1)] and history.logs["v"].batches == [(0,)]
    assert history.revision == 2 and history.completed.batches == [(0,)]
    counts = {"kind": "told", "trials": trials, "values": [[2, 3.0, None, 9.0]], "at": 1.0}
    history = TrialHistory(logs={"positive": Log()}).extended([counts])
    assert history.trials[2].entries == {"positive": (3.0, 9.0)}


def test_the_largest_outcome_of_a_campaign_is_that_of_its_surrogate() -> None:
    assert largest_outcome() == LARGEST
