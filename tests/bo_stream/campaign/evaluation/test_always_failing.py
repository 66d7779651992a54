"""Runs whose objective always fails with the same error end with most of their budget left."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bo_stream.errors import StateError
from tests.bo_stream.campaign.runs import Calls, bowl, box


def misspelt(row: Any) -> float:
    return float(row["speed"])


def quoting(row: Any) -> float:
    raise ValueError(f"x = {row['x']} is refused in /tmp/run-{row.name}/log")


def nan(row: Any) -> float:
    return float("nan")


@pytest.mark.parametrize("objective", [misspelt, quoting, nan])
@pytest.mark.parametrize("q", [1, 12])
def test_a_run_ends_and_the_next_one_goes_on(objective: Any, q: int) -> None:
    calls = Calls()
    campaign = box(callbacks=[calls], initial=50)
    with pytest.raises(StateError, match="8 times in a row.*trial 7.*22 trials of the budget"):
        campaign.run(objective, 30, q=q)
    trials = campaign.trials()
    assert (trials["status"] == "failed").sum() == 8 and len(trials) == max(8, q)
    assert trials["reason"].notna().sum() == 8 and calls.ends == 1
    assert (campaign.run(bowl, 13)["status"] == "told").sum() == 5


def test_failures_that_are_learned_from_may_be_more() -> None:
    with pytest.raises(StateError, match="32 times in a row"):
        box(failures="infeasible", initial=50).run(nan, 40)


def test_errors_that_differ_and_outcomes_between_them_are_no_sign() -> None:
    def now_and_then(row: Any) -> float:
        if row.name % 8 < 7:
            raise OSError("no licence")
        return bowl(row)

    assert box(initial=50).run(now_and_then, 20)["status"].value_counts()["failed"] == 18

    def differently(row: Any) -> float:
        raise ValueError("word " * row.name)

    assert len(box(initial=50).run(differently, 12)) == 12


def test_an_error_that_begins_later_ends_a_run_too() -> None:
    def until_it_is_full(row: Any) -> float:
        if row.name >= 10:
            raise OSError("no space left")
        return bowl(row)

    campaign = box(initial=50)
    with pytest.raises(StateError, match="10 times in a row.*no space left"):
        campaign.run(until_it_is_full, 40)
    assert campaign.trials()["status"].tolist() == ["told"] * 10 + ["failed"] * 10


def test_those_in_an_executor_are_waited_for_and_may_still_have_an_outcome() -> None:
    failed, lock = [0], threading.Lock()
    enough = threading.Event()

    def slow_if_possible(row: Any) -> float:
        if row.name == 0:
            assert enough.wait(30.0)
            return bowl(row)
        with lock:
            failed[0] += 1
            if failed[0] == 8:
                enough.set()
        raise RuntimeError("the mesh is too coarse")

    campaign = box(initial=50)
    again = pytest.raises(StateError, match="the mesh is too coarse")
    with ThreadPoolExecutor(2) as executor, again:
        campaign.run(slow_if_possible, 40, executor, q=2)
    status = campaign.trials()["status"].tolist()
    assert status[0] == "told" and 15 <= status.count("failed") <= 17  # 8, and as many again


def test_a_small_budget_that_is_spent_on_one_error_is_said() -> None:
    with pytest.warns(UserWarning, match="No trial of this run has an outcome.*3 times.*'speed'"):
        assert len(box(initial=50).run(misspelt, 3)) == 3
