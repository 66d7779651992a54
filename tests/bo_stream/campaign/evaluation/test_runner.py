"""Campaigns that evaluate by themselves, in this process; and trials of runs that died."""

import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from bo_stream import Box, Campaign, Pool
from bo_stream.campaign.run import has_died, run_id
from bo_stream.campaign.storage.store import MemoryStore
from bo_stream.errors import InputError
from tests.bo_stream.campaign.runs import CHEAP, Calls, bowl, box, told_once


def test_serial_run_ends_at_its_budget_and_finds_the_optimum() -> None:
    calls = Calls()
    campaign = box(callbacks=[calls])
    trials = campaign.run(bowl, 9)
    assert trials["status"].tolist() == ["told"] * 9
    assert np.allclose(trials["y"], -((trials["x"] - 3.0) ** 2))
    assert abs(campaign.best()["x"] - 3.0) < 0.1
    assert calls.asked == [1] * 9 and calls.told == list(range(9)) and calls.ends == 1
    assert len(campaign.run(bowl, 9)) == 9  # it is done
    assert len(campaign.run(bowl, 10)) == 10
    same = box()
    same.run(bowl, 5)
    pd.testing.assert_frame_equal(same.run(bowl, 10), campaign.trials())


def test_q_says_how_many_are_asked_for_at_a_time() -> None:
    calls = Calls()
    assert len(box(callbacks=[calls]).run(bowl, 7, q=3)) == 7
    assert calls.asked == [3, 3, 1]


def test_an_objective_gets_its_inputs_by_name_and_the_trial_as_its_name() -> None:
    campaign = Campaign(Box({"a": (0.0, 1.0), "b": (2.0, 3.0)}), "exact", optimiser=CHEAP)
    seen = []

    def objective(row: Any) -> float:
        seen.append(row.name)
        return (lambda a, b: 10.0 * a + b)(**row)

    trials = campaign.run(objective, 3)
    assert seen == [0, 1, 2] and all(type(id) is int for id in seen)
    assert np.allclose(trials["y"], 10.0 * trials["a"] + trials["b"])


def test_a_pool_gives_places_of_their_own_type_and_ends_when_used_up() -> None:
    table = pd.DataFrame({"east": np.linspace(0.0, 1.0, 5)}, index=[7, 8, 9, 10, 11])
    campaign = Campaign(Pool(table), "exact", goal="learn", initial=2)
    places: list[Any] = []

    def objective(row: Any) -> float:
        places.append(row["place"])
        return float(table["east"][row["place"]] == row["east"])

    trials = campaign.run(objective, 30, q=2)
    assert sorted(places) == [7, 8, 9, 10, 11] and all(isinstance(p, int) for p in places)
    assert trials["y"].tolist() == [1.0] * 5
    assert len(campaign.state.free_places) == 0


def test_noise_variances_come_beside_outcomes() -> None:
    trials = box().run(lambda row: (bowl(row), 0.01), 6)
    assert trials["yvar"].tolist() == [0.01] * 6


def test_noise_given_now_and_then_fails_the_trials_that_do_not_fit() -> None:
    returned = [(1.0, 0.1), 2.0, (1.0, 0.0), (1.0, math.nan), (1.0, 0.1)]
    trials = box().run(lambda row: returned[row.name], 5)
    assert trials["status"].tolist() == ["told", "failed", "failed", "failed", "told"]
    assert all("yvar" in reason for reason in trials["reason"][1:4])


def test_what_gives_no_value_fails_with_its_reason() -> None:
    def objective(row: Any) -> Any:
        if row.name == 1:
            raise ValueError("the oven is cold")
        return {2: math.nan, 3: "3.5", 4: None, 5: -math.inf}.get(row.name, bowl(row))

    campaign = box()
    trials = campaign.run(objective, 8)
    assert trials["status"].tolist() == ["told"] + ["failed"] * 5 + ["told"] * 2
    assert trials["reason"][1] == "ValueError: the oven is cold"
    assert trials["reason"][2].startswith("the objective returned float nan")
    assert "returned str '3.5'" in trials["reason"][3]
    assert "returned NoneType None" in trials["reason"][4]
    assert "returned float -inf" in trials["reason"][5]


@pytest.mark.parametrize(
    "value",
    [
        2,
        2.0,
        np.float32(2.0),
        np.array(2.0),
        np.array([[2.0]]),
        torch.tensor([2.0], requires_grad=True),
        pd.Series([2.0], index=["y"]),
        [2.0],
    ],
    ids=lambda value: type(value).__name__,
)
def test_one_number_in_any_wrapping_is_an_outcome(value: Any) -> None:
    returned = [value, ({"y": value}, {}), {"y": value}]
    assert box().run(lambda row: returned[row.name], 3)["y"].tolist() == [2.0] * 3
    returned = [(value, value), ({"y": value}, {"y": value})]
    trials = box().run(lambda row: returned[row.name], 2)
    assert trials[["y", "yvar"]].to_numpy().tolist() == [[2.0, 2.0]] * 2


def test_anything_else_is_a_reason() -> None:
    wrong = [
        *(True, "2", None, [], [1.0, 2.0, 3.0], np.ones(2), {}, 1j, {"a": 1.0}, {"y": "2"}),
        ({"y": 1.0}, {"b": 1.0}),
    ]
    trials = box(initial=99).run(lambda row: wrong[row.name], len(wrong))
    assert set(trials["status"]) == {"failed"}
    assert trials["reason"].str.startswith("the objective returned").all()


def test_seconds_of_evaluating_are_counted() -> None:
    def objective(row: Any) -> float:
        time.sleep(0.05)
        return bowl(row)

    campaign = box()
    campaign.run(objective, 2)
    assert 0.1 <= campaign.ledger.row["evaluation_seconds"] < 60.0


def test_an_interruption_leaves_the_trial_running_and_the_next_run_takes_it_first() -> None:
    calls = Calls()
    campaign = box(callbacks=[calls])
    seen = []

    def objective(row: Any) -> float:
        seen.append(row.name)
        if seen == [0, 1, 2]:
            raise KeyboardInterrupt
        return bowl(row)

    with pytest.raises(KeyboardInterrupt):
        campaign.run(objective, 6, q=4)
    assert campaign.trials()["status"].tolist() == ["told", "told", "running", "running"]
    assert calls.ends == 1
    assert campaign.run(objective, 6)["status"].tolist() == ["told"] * 6
    assert seen == [0, 1, 2, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "budget"),
        ({"budget": None}, "budget, an integer"),
        ({"budget": 2.5}, "budget"),
        ({"q": 0}, "q, an integer"),
        ({"workers": 0}, "workers, an integer"),
        ({"workers": True}, "workers, an integer"),
        ({"workers": 2, "q": 2}, "without executor and q"),
        ({"timeout": 1.0}, "workers=1"),
        ({"workers": 2, "timeout": -1.0}, "positive seconds"),
        ({"executor": 4}, "get_executor"),
        ({"objective": 4}, "callable objective"),
    ],
)
def test_arguments_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    campaign = box()
    with pytest.raises(InputError, match=message):
        campaign.run(**{"objective": bowl, "budget": 3, **options})
    assert not len(campaign.trials())


@pytest.fixture(scope="module")
def dead() -> str:
    """Identifier of a run whose process has ended."""
    code = "from bo_stream.campaign.run import run_id; print(run_id())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def living() -> Iterator[str]:
    """Identifier of a run in another process that is alive."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    stat = Path(f"/proc/{process.pid}/stat")
    started = stat.read_text().rpartition(")")[2].split()[19] if stat.exists() else ""
    yield ":".join([*run_id().split(":")[:2], str(process.pid), started])
    process.kill()
    process.wait()


def test_trials_of_a_dead_run_are_evaluated_first_and_others_left_alone(
    dead: str, living: str
) -> None:
    campaign = box()
    remote = "run:another-machine:1:1"
    for by in (None, dead, "the night shift", living, remote, dead):
        campaign.ask(by=by)
    seen = []

    def objective(row: Any) -> float:
        seen.append(row.name)
        return bowl(row)

    trials = campaign.run(objective, 8)
    assert seen == [1, 5, 6, 7]  # the four that run elsewhere are part of the budget
    running = trials.index[trials["status"] == "running"].tolist()
    assert running == [0, 2, 3, 4]


def test_who_is_gone(dead: str, living: str) -> None:
    head, machine, pid, started = living.split(":")
    assert has_died(dead) and has_died(run_id())
    assert not any(map(has_died, (living, None, "by hand", "run:x:1:1")))
    if started:  # the number is used again by a process that was started later
        assert has_died(f"{head}:{machine}:{pid}:{int(started) - 1}")
        zombie = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        before = Path(f"/proc/{zombie.pid}/stat").read_text().rpartition(")")[2].split()[19]
        zombie.communicate()  # ended and gone
        assert has_died(f"{head}:{machine}:{zombie.pid}:{before}")


def test_what_somebody_else_told_meanwhile_is_not_told_again() -> None:
    store = MemoryStore()
    campaign = box(store)
    other = Campaign.resume(store)

    def objective(row: Any) -> float:
        if row.name == 1:
            other.tell(pd.DataFrame({"y": [-9.0]}, pd.Index([1], name="trial")))
        return bowl(row)

    trials = campaign.run(objective, 4)
    assert trials["status"].tolist() == ["told"] * 4 and trials["y"][1] == -9.0
    assert told_once(store)
