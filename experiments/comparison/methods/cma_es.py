"""CMA-ES by the package ``cma``, called directly."""

import math
from typing import Any, NamedTuple

import cma
import numpy as np

from experiments.comparison.budgeted_task import BudgetedTask

SIGMA = 0.25
"""First standard deviation, as a share of each side of the box."""


class Restart(NamedTuple):
    """A run between two restarts, and the median of the costs of its last population."""

    strategy: Any
    median: float


def solve(evaluate: BudgetedTask, population: int | None = None) -> None:
    """CMA-ES from the best point of the initial design, restarted at random with a population
    twice as large whenever it stops (IPOP).

    ``population`` is the first one's size, None: that of the package. Under noise it recommends
    the mean of the run whose last population had the least median.
    """
    generator = np.random.default_rng(evaluate.seed)
    low, high = evaluate.bounds.numpy()
    X = evaluate.design()
    costs = evaluate.task.costs(evaluate(X))[:, 0]
    begin = (X[costs.argmin()] - low) / (high - low)
    runs: list[Restart] = []

    def recommended() -> np.ndarray:
        known = [run for run in runs if run.median < math.inf]
        best = min(known, key=lambda run: run.median).strategy.result.xfavorite if known else begin
        return low + (high - low) * best

    evaluate.recommender = None if evaluate.task.deterministic else recommended
    size = population or 4 + int(3 * math.log(len(low)))
    while True:
        options: dict[str, Any] = {"bounds": [0.0, 1.0], "verbose": -9, "verb_log": 0}
        options |= {"popsize": size, "seed": math.nan, "randn": _normal(generator)}
        strategy = cma.CMAEvolutionStrategy(begin, SIGMA, options)
        runs.append(Restart(strategy, math.inf))
        while not strategy.stop():
            points = strategy.ask()
            values = evaluate(low + (high - low) * np.array(points))
            costs = evaluate.task.costs(values)[:, 0]
            strategy.tell(points, costs)
            runs[-1] = Restart(strategy, float(np.median(costs)))
        begin, size = generator.random(len(low)), 2 * size


def _normal(generator: np.random.Generator) -> Any:
    return lambda *shape: generator.standard_normal(shape)
