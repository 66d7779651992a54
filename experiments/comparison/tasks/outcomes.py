"""BoTorch's test functions with constraints or two objectives, without noise.

Every outcome is minimised, or has to be at least 0. The loss is relative: of one objective, how far
the best feasible value told lies above the least one; of two, the share of the hypervolume that is
missing. It is at most 1, and 1 while nothing feasible was told.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from botorch.test_functions import multi_objective, synthetic
from botorch.utils.multi_objective.hypervolume import Hypervolume
from botorch.utils.multi_objective.pareto import is_non_dominated

from bo_stream import Box
from experiments.comparison.tasks.task import Limit, Task, Told

LEAST = {"ConstrainedHartmann": -3.3223680, "ConstrainedGramacy": 0.59978805}
"""Least feasible values."""

FUNCTIONS: dict[str, Callable[[], Any]] = {
    "ConstrainedHartmann": partial(synthetic.ConstrainedHartmann, dim=6, dtype=torch.float64),
    "ConstrainedGramacy": partial(synthetic.ConstrainedGramacy, dtype=torch.float64),
    "BraninCurrin": partial(multi_objective.BraninCurrin, dtype=torch.float64),
    "DTLZ2": partial(multi_objective.DTLZ2, dim=6, num_objectives=2, dtype=torch.float64),
}


def outcome_task(name: str, seed: int, **task: Any) -> Task:
    """One of `FUNCTIONS`; ``task`` are further fields of `Task`. All seeds have the same."""
    function = FUNCTIONS[name]()
    objectives = [f"f{i}" for i in range(function.num_objectives)]
    slacks = [f"c{i}" for i in range(getattr(function, "num_constraints", 0))]
    box = Box({f"x{i}": tuple(side) for i, side in enumerate(function.bounds.T.tolist())})
    several = len(objectives) > 1
    fields = {"initial": 2 * box.dim + 2, **task}
    return Task(
        name,
        box,
        partial(outcomes, function),
        partial(missing, function),
        goals=dict.fromkeys(objectives, "minimise"),
        limits=tuple(Limit(slack, ">=", 0.0) for slack in slacks),
        outcomes=(*objectives, *slacks),
        reference=tuple(function.ref_point.tolist()) if several else None,
        **fields,
    )


def outcomes(function: Any, X: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Objectives, then the slacks of constraints, ``n x m``."""
    points = torch.from_numpy(X)
    parts = [function.evaluate_true(points).reshape(len(points), -1)]
    if hasattr(function, "evaluate_slack_true"):
        parts.append(function.evaluate_slack_true(points))
    return torch.cat(parts, -1).numpy()


def missing(function: Any, told: Told) -> float:
    """How much of what can be had is missing in the outcomes told; see the module."""
    m, Y = function.num_objectives, torch.from_numpy(told.Y)
    F = Y[(Y[:, m:] >= 0.0).all(-1), :m]
    if not len(F):
        return 1.0
    if m == 1:
        least = LEAST[type(function).__name__]
        return min((float(F.min()) - least) / abs(least), 1.0)
    volume = Hypervolume(-function.ref_point).compute(-F[is_non_dominated(-F)])
    return 1.0 - volume / float(function.max_hv)
