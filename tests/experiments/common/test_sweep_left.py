"""How much longer a sweep takes."""

import pytest

from experiments.common.sweep_claims import Outcome
from experiments.common.sweep_left import Left
from tests.experiments.common.toys import Clock


def test_steps_take_as_long_as_those_of_other_seeds() -> None:
    clock = Clock()
    left = Left({"slow_0": 10, "fast_0": 1000, "slow_1": 20, "fast_1": 1000}, clock)
    assert left.seconds() is None
    clock.now += 50.0
    left.row("slow_0", 5)
    assert left.seconds() == pytest.approx(350.0)  # half of one of four
    clock.now += 50.0
    left.ended(Outcome("slow_0", "done", 100.0))
    assert left.seconds() == pytest.approx(400.0)  # slow_1 has twice the steps, fast ones unknown
    clock.now += 2.0
    left.ended(Outcome("fast_0", "done", 2.0))
    assert left.seconds() == pytest.approx(202.0)
    left.row("slow_1", 10)
    clock.now += 100.0
    assert left.seconds() == pytest.approx(102.0)
    left.ended(Outcome("slow_1", "done", 200.0))
    left.ended(Outcome("fast_1", "done", 2.0))
    assert left.seconds() == 0.0


def test_runs_side_by_side_take_less_time_than_their_sum() -> None:
    clock = Clock()
    left = Left({f"a_{seed}": 10 for seed in range(4)}, clock)
    clock.now += 10.0
    for seed in (0, 1):
        left.ended(Outcome(f"a_{seed}", "done", 10.0))
    assert left.seconds() == pytest.approx(10.0)


def test_a_run_that_failed_says_nothing_of_the_others() -> None:
    clock = Clock()
    left = Left({"a_0": 10, "a_1": 10, "a_2": 10}, clock)
    left.ended(Outcome("a_0", "failed", 0.0))
    assert left.seconds() is None
    clock.now += 8.0
    left.ended(Outcome("a_1", "done", 8.0))
    assert left.seconds() == pytest.approx(8.0)
