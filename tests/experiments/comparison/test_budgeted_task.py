"""What methods may spend, and what is recorded of them."""

import time
from dataclasses import replace

import numpy as np
import pytest

from bo_stream.errors import ShapeError
from experiments.comparison.budgeted_task import BudgetedTask, Spent
from experiments.comparison.tasks.registry import made
from experiments.comparison.tasks.task import Limit

TASK = made("levy", 0, {"dim": 2, "initial": 4})


def busy(seconds: float) -> None:
    began = time.process_time()
    while time.process_time() - began < seconds:
        pass


def test_only_the_seconds_of_the_method_count() -> None:
    """Neither the function's, nor those of the recommendation."""

    def slow(X: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        busy(0.05)
        return TASK.evaluate(X, generator)

    def slow_recommendation() -> np.ndarray:
        busy(0.05)
        return np.array([0.5, 0.5])

    evaluate = BudgetedTask(replace(TASK, evaluate=slow), 0, evaluations=6)
    evaluate.recommender = slow_recommendation
    with pytest.raises(Spent):
        while True:
            busy(0.01)
            evaluate(np.full((2, 2), 0.5))
    table = evaluate.table()
    assert table["n"].tolist() == [4, 6]
    assert 0.02 <= table["cpu_seconds"].iloc[-1] < 0.05


def test_the_last_batch_is_what_is_left_and_nothing_after_it() -> None:
    evaluate = BudgetedTask(TASK, 0, evaluations=6, batch=4)
    evaluate(evaluate.design())
    assert evaluate.batch == 2
    evaluate(np.full((2, 2), 0.5))
    with pytest.raises(Spent):
        _ = evaluate.batch
    assert evaluate.table()["n"].iloc[-1] == 6


def test_a_run_without_time_has_its_first_batch() -> None:
    evaluate = BudgetedTask(TASK, 0, seconds=1e-9)
    evaluate(evaluate.design())
    with pytest.raises(Spent):
        _ = evaluate.batch
    assert len(evaluate.table()) == 1


def test_the_seconds_end_a_run() -> None:
    evaluate = BudgetedTask(TASK, 0, seconds=0.05)
    with pytest.raises(Spent):
        while True:
            busy(0.01)
            evaluate(np.full((1, 2), 0.5))
    assert 0.05 <= evaluate.table()["cpu_seconds"].iloc[-1] < 0.1


def test_designs_and_noise_follow_the_seed() -> None:
    noisy = made("levy", 0, {"dim": 2, "noise_std": 1.0})
    a, b, other = (BudgetedTask(noisy, seed) for seed in (3, 3, 4))
    assert np.array_equal(a.design(), b.design())
    assert np.array_equal(a(a.design()), b(b.design()))
    assert not np.array_equal(a.design(), other.design())


def test_points_of_another_shape_are_refused() -> None:
    with pytest.raises(ShapeError, match="n x 2"):
        BudgetedTask(TASK, 0)(np.zeros(2))


def test_of_points_told_the_best_within_the_limits_is_judged() -> None:
    """A point beyond the limit counts less than one within, whatever its value."""

    def judge(told: object) -> float:
        return float(told.recommended[0])  # type: ignore[attr-defined]

    limited = replace(
        TASK,
        evaluate=lambda X, _: np.stack([X[:, 0], X[:, 1]], axis=1),
        judge=judge,
        outcomes=("y", "weight"),
        limits=(Limit("weight", "<=", 0.5),),
    )
    evaluate = BudgetedTask(limited, 0, evaluations=3)
    evaluate(np.array([[0.1, 0.9], [0.4, 0.5], [0.7, 0.2]]))
    with pytest.raises(Spent):
        evaluate(np.array([[0.0, 0.0]]))
    assert evaluate.table()["loss"].iloc[-1] == 0.4
