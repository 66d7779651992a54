"""Failed trials as infeasible points: where trials fail is learned, if the user says so."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bo_stream import Box, Campaign, Pool
from bo_stream.campaign.effort import FitPolicy, Optimiser
from bo_stream.errors import InputError, StateError, UnsupportedError

LITTLE, ONCE = Optimiser(1, 32, {"maxiter": 3}), FitPolicy(then_every=0)
SQUARE = Box({"a": (0.0, 1.0), "b": (0.0, 1.0)})
GRID = pd.DataFrame([(i / 4, j / 4) for i in range(5) for j in range(5)], columns=["a", "b"])
EDGE = 0.6  # trials fail beyond it, where outcomes would be best


def campaign(space: Any = SQUARE, **options: Any) -> Campaign:
    settings: dict[str, Any] = {"seed": 0, "optimiser": LITTLE, "fit": ONCE, "budget": 40}
    return Campaign(space, **{"initial": 5, "failures": "infeasible", **settings, **options})


def step(run: Campaign) -> None:
    frame = run.ask()
    if frame["a"].iloc[0] > EDGE:
        run.fail(frame.index, "it boiled over")
    else:
        run.tell(frame.assign(y=frame["a"] - (frame["b"] - 0.5) ** 2))


def begun(run: Campaign, every: int = 2) -> Campaign:
    """The campaign after part of a grid was measured."""
    frame = run.enqueue(GRID.iloc[::every])
    failed = frame["a"] > EDGE
    run.fail(frame.index[failed], "it boiled over")
    run.tell(frame[~failed].assign(y=lambda f: f["a"] - (f["b"] - 0.5) ** 2))
    return run


def learned(run: Campaign) -> list[float]:
    """Whether trials were completed, as the last surrogate learned it."""
    run.state.update()
    completion = run.state.engine.learners["completed"]
    assert completion.num_observed == len(completion.data.Y)
    return sorted(completion.data.Y[:, 0].tolist())


def test_failures_are_avoided_and_the_best_is_found_beside_them() -> None:
    run, ignored = begun(campaign()), begun(campaign(failures="ignored"))
    for one in (run, ignored):
        for _ in range(6):
            step(one)
    late, other = (one.trials().iloc[13:] for one in (run, ignored))
    assert (late["status"] == "failed").sum() <= 3
    assert (other["status"] == "failed").all() and run.best()["y"] > 0.55
    row = run.recommend().iloc[0]
    assert row["a"] < EDGE + 0.05 and row["feasible"] >= 0.95 > run.predict(GRID)["feasible"].min()
    assert run.decision.acquisition == "qlognei" and "completed_mean" not in row


def test_nothing_is_learned_before_the_first_failure() -> None:
    run = campaign()
    for a in (0.1, 0.2, 0.3, 0.4, 0.5, 0.55):
        run.tell(pd.DataFrame({"a": [a], "b": [a], "y": [a]}))
    assert (run.recommend()["feasible"] == 1.0).all()
    assert run.model.num_outputs == 1  # type: ignore[union-attr]
    run.fail(run.enqueue(pd.DataFrame({"a": [0.9], "b": [0.9]})).index, "it boiled over")
    assert run.predict(GRID)["feasible"].min() < 0.5
    assert run.model.num_outputs == 2  # type: ignore[union-attr]


def test_trials_that_are_told_or_withdrawn_later() -> None:
    run = begun(campaign())
    told, failed = (run.trials().query(f"status == '{one}'").index for one in ("told", "failed"))
    assert learned(run) == [0.0] * len(failed) + [1.0] * len(told)
    point = run.trials().loc[failed[:1], ["a", "b"]]
    before = run.predict(point)["feasible"]
    run.tell(pd.DataFrame({"trial": failed[:1], "y": [0.9]}))  # a failed trial after all
    assert learned(run) == [0.0] * (len(failed) - 1) + [1.0] * (len(told) + 1)
    assert (run.predict(point)["feasible"] > before + 0.3).all()
    run.withdraw([int(failed[1]), int(told[0])], "mixed up")
    assert learned(run) == [0.0] * (len(failed) - 2) + [1.0] * len(told)
    run.amend(pd.DataFrame({"trial": [failed[1]], "y": [0.8]}))  # which takes it back, as told
    assert learned(run) == [0.0] * (len(failed) - 2) + [1.0] * (len(told) + 1)
    run.amend(pd.DataFrame({"trial": told[1:2], "y": [0.3]}))
    assert learned(run) == [0.0] * (len(failed) - 2) + [1.0] * (len(told) + 1)
    running = run.ask(2).index
    run.withdraw(running[:1], "spilt")
    assert len(learned(run)) == len(told) + len(failed) - 1


def test_a_campaign_goes_on_bit_for_bit(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two")]
    straight, resumed = (begun(campaign(store=url, fit=None), 3) for url in urls)
    for i in range(5):
        if i == 2:
            failed = straight.trials().query("status == 'failed'").index
            for run in (straight, resumed):
                run.tell(pd.DataFrame({"trial": failed[:1], "y": [0.7]}))
        step(straight)
        resumed = Campaign.resume(urls[1])
        step(resumed)
    pd.testing.assert_frame_equal(resumed.trials(), straight.trials(), check_exact=True)


@pytest.mark.parametrize(
    "options",
    [
        {"space": Pool(GRID)},
        {"space": Box({"a": (0.0, 1.0), "b": (0.0, 1.0), "k": ["u", "v"]})},
        {"surrogate": "hsgp"},
        {"noise": "none", "surrogate": "warped"},
        {"noise": 1e-4, "surrogate": "exact"},
        {"constraints": ["a + b <= 1.4", "y <= 0.5"]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_kinds_of_inputs_families_and_constraints(options: dict[str, Any]) -> None:
    run = campaign(**options)
    frame = GRID.iloc[::2]
    frame = frame.assign(k="u") if "k" in run.space.names else frame
    frame = run.enqueue(frame)
    failed = frame["a"] > EDGE
    run.fail(frame.index[failed], "it boiled over")
    run.tell(frame[~failed].assign(y=frame["a"]))
    step(run)
    row = run.recommend().iloc[0]
    assert row["a"] <= EDGE + 0.1 and 0.5 < row["feasible"] <= 1.0 and math.isfinite(row["mean"])


def test_several_objectives() -> None:
    run = campaign(goal={"u": "maximise", "v": "minimise"})
    frame = run.enqueue(GRID.iloc[::2])
    failed = frame["a"] > EDGE
    run.tell(frame[["a"]].rename(columns={"a": "u"}).iloc[:3])
    assert learned(run) == []  # whether they can be completed is not known yet
    run.fail(frame.index[failed], "it boiled over")
    run.tell(frame[~failed].assign(u=frame["a"], v=frame["a"] * frame["b"]))
    assert len(learned(run)) == len(frame)
    front = run.front(of="model")
    assert (front["feasible"] >= 0.95).all() and front["a"].max() < EDGE
    assert run.ask()["a"].iloc[0] < 0.75


def test_it_can_be_said_later(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    url = f"sqlite:///{tmp_path}/later.db"
    run = begun(campaign(store=url, failures="ignored"))
    other = Campaign.resume(url)
    assert "feasible" not in run.recommend()
    run.change(failures="infeasible")
    for one in (run, other, Campaign.resume(url)):
        assert one.recommend()["a"][0] < EDGE + 0.1 and one.recommend()["feasible"][0] >= 0.95
    assert other.settings.failures == "infeasible"
    assert other.ledger.current.usual_decision[0] == "qlognei"
    step(other)
    run.change(failures="ignored")
    assert "feasible" not in Campaign.resume(url).recommend()
    step(other)
    assert other.decision.acquisition == "logei"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"failures": "forbidden"}, InputError),
        ({"goal": "learn"}, UnsupportedError),
        ({"outcome": {"column": "k", "likelihood": "bernoulli"}}, UnsupportedError),
        ({"goal": {"completed": "maximise"}}, InputError),
        ({"acquisition": "thompson"}, InputError),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        campaign(**options)


def test_all_trials_may_fail() -> None:
    run = campaign(initial=2)
    for _ in range(4):
        run.fail(run.ask().index, "it boiled over")
    with pytest.raises(StateError, match="at least one outcome"):
        run.best()
    run.tell(run.ask().assign(y=1.0))
    run.tell(run.ask().assign(y=2.0))
    assert len(run.ask(2)) == 2 and run.recommend()["feasible"][0] <= 1.0
