"""A rover's way round obstacles, in 60 inputs [Wang2018].

Thirty points of the unit square are the inputs; the way is the cubic spline through them. Its cost
is the integral of 20 a unit of length in an obstacle, or outside the square, and of .05 elsewhere,
plus 10 times the distances, in the L1 norm, of its first point from the start and of its last from
the goal. The published reward is 5 less this cost. The places of the obstacles, 15 squares of side
.1, are our own: they are drawn, not published.

References:
    [Wang2018] Z. Wang, C. Gehring, P. Kohli, S. Jegelka. Batched Large-scale Bayesian Optimization
        in High-dimensional Spaces. AISTATS 2018.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.interpolate import make_interp_spline

from bo_stream import Box
from experiments.comparison.tasks.task import Task

POINTS, STEPS = 30, 1000
START, GOAL = np.array([0.05, 0.05]), np.array([0.95, 0.95])
SIDE, OBSTACLES = 0.1, 15
CLEAR, APART = 0.2, 0.13
"""Least distance of obstacles from start and goal, and from each other."""
AT_ONCE = 200
"""Ways that are computed at a time."""


def rover_task(name: str, seed: int, **task: Any) -> Task:
    """The cost, to be minimised, the same for all seeds; the loss is the least told."""
    obstacles = drawn_obstacles()
    box = Box({f"{axis}{i}": (0.0, 1.0) for i in range(POINTS) for axis in "xy"})

    def evaluate(X: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        parts = [X[i : i + AT_ONCE] for i in range(0, len(X), AT_ONCE)]
        return np.concatenate([cost(part, obstacles) for part in parts])[:, None]

    return Task(name, box, evaluate, lambda told: float(told.Y.min()), **task)


def cost(X: np.ndarray, obstacles: np.ndarray) -> np.ndarray:
    """Costs ``n`` of ways ``n x 60`` among squares with centres ``k x 2``."""
    points = X.reshape(-1, POINTS, 2)
    way = WAY @ points
    across, along = (np.abs(way[..., i, None] - obstacles[:, i]) < SIDE / 2 for i in (0, 1))
    inside = (across & along).any(-1)
    outside = ((way < 0.0) | (way > 1.0)).any(-1)
    rate = 20.0 * (inside | outside) + 0.05
    lengths = np.linalg.norm(np.diff(way, axis=1), axis=-1)
    missed = np.abs(points[:, 0] - START).sum(-1) + np.abs(points[:, -1] - GOAL).sum(-1)
    return (lengths * 0.5 * (rate[:, 1:] + rate[:, :-1])).sum(-1) + 10.0 * missed


def drawn_obstacles() -> np.ndarray:
    """Centres of the obstacles, ``15 x 2``."""
    generator, found = np.random.RandomState(7), list[np.ndarray]()
    while len(found) < OBSTACLES:
        at = generator.uniform(SIDE, 1.0 - SIDE, 2)
        clear = min(np.linalg.norm(at - START), np.linalg.norm(at - GOAL)) > CLEAR
        if clear and all(np.abs(at - other).max() > APART for other in found):
            found.append(at)
    return np.array(found)


def _spline() -> np.ndarray:
    """The matrix from points to the way, ``1000 x 30``."""
    spline = make_interp_spline(np.linspace(0.0, 1.0, POINTS), np.eye(POINTS), k=3)
    return np.asarray(spline(np.linspace(0.0, 1.0, STEPS)))


WAY = _spline()
