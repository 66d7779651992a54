"""Tasks with constraints and two objectives, and BoTorch's loops for them."""

from contextlib import suppress

import numpy as np
import pytest

from bo_stream import Box
from experiments.comparison.budgeted_task import BudgetedTask, Spent
from experiments.comparison.methods import botorch_outcomes
from experiments.comparison.tasks.registry import made
from experiments.comparison.tasks.task import Limit, Task, Told

BEST = {
    "ConstrainedHartmann": [0.2016895, 0.1500107, 0.476874, 0.2753324, 0.3116517, 0.6573005],
    "ConstrainedGramacy": [0.1951237, 0.4046659],
}


def loss(name: str, X: list[list[float]]) -> float:
    task, points = made(name, 0, {}), np.array(X)
    return task.judge(Told(points, task.evaluate(points, np.random.default_rng(0)), None))


@pytest.mark.parametrize("name", BEST)
def test_the_best_feasible_value_is_the_least_known(name: str) -> None:
    assert loss(name, [BEST[name]]) == pytest.approx(0.0, abs=1e-5)


def test_what_breaks_a_constraint_does_not_count() -> None:
    """A sum of inputs a little less than the least feasible one, and a larger one."""
    below, above = [0.195, 0.404], [0.3, 0.6]
    assert loss("ConstrainedGramacy", [below]) == 1.0
    assert loss("ConstrainedGramacy", [below, above]) == loss("ConstrainedGramacy", [above]) > 0.05


def test_the_hypervolume_of_two_points_is_that_of_two_rectangles() -> None:
    Y = np.array([[3.0, 5.0], [10.0, 1.0], [11.0, 5.5], [17.0, 7.0]])  # dominated, and outside
    covered = (18.0 - 3.0) * (6.0 - 5.0) + (18.0 - 10.0) * (5.0 - 1.0)
    found = made("BraninCurrin", 0, {}).judge(Told(np.empty((4, 2)), Y, None))
    assert found == pytest.approx(1.0 - covered / 59.36011874867746)


def test_the_loop_of_botorch_keeps_to_limits() -> None:
    """x is minimised and x - .6 is to be at least 0; with the wrong sign it would go to 0."""
    told: list[np.ndarray] = []

    def evaluate(X: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        told.append(X[:, 0])
        return np.hstack([X, X - 0.6])

    task = Task(
        "line",
        Box({"x": (0.0, 1.0)}),
        evaluate,
        lambda told: 0.0,
        limits=(Limit("s", ">=", 0.0),),
        outcomes=("y", "s"),
        initial=3,
    )
    with suppress(Spent):
        botorch_outcomes.solve(BudgetedTask(task, 0, evaluations=6))
    x = np.concatenate(told)
    assert x[x >= 0.6].min() == pytest.approx(0.6, abs=0.02)
