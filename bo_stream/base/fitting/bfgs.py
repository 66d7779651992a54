"""Projected BFGS (maximising) that keeps its curvature between fits.

The objective (evidence or bound plus log priors) changes little from one batch to the next, so the
inverse Hessian of the last fit is a good preconditioner: a warm fit takes a handful of evaluations.
Bounds are enforced by projection.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bo_stream.base.fitting.ascent_objective import AscentObjective, Evaluated

__all__ = ["Ascent", "ascend"]

LARGEST_STEP = 2.0
"""Largest change of one (log-)hyperparameter in one step."""

SMALLEST_STEP = 1e-4
"""Smallest fraction of a step that the line search tries."""


@dataclass(frozen=True)
class Ascent:
    """The progress of an ascent from one start.

    Attributes:
        at: The current point.
        inverse: The inverse Hessian of the negative objective; None before the first step.
        converged: Whether the actual or predicted gain of a step is below the tolerance.
    """

    at: Evaluated
    inverse: Tensor | None = None
    converged: bool = False


def ascend(objective: AscentObjective, path: Ascent, most: int, tolerance: float) -> Ascent:
    """Continue an ascent by projected BFGS with backtracking.

    Args:
        objective: The objective.
        path: The current point and curvature.
        most: Maximum number of evaluations.
        tolerance: Converged once a step's predicted gain, or the actual gain of two steps in a
            row, is below this, in nats.
    """
    last, small, path = objective.evaluations + most, 0, replace(path, converged=False)
    while objective.evaluations < last:
        at, H = path.at, path.inverse
        free = objective.clip(at.u + 1e-3 * at.gradient.sign()) != at.u
        step, promised = _step(at, H, free)
        if not bool(free.any()) or (H is not None and 0.5 * promised < tolerance):
            return replace(path, converged=True)
        found = _searched(objective, at, step, last)
        if found is None and objective.evaluations >= last:
            return path
        if found is None:  # no ascent direction: try once more without the curvature
            if H is None:
                return replace(path, converged=True)
            path = replace(path, inverse=None)
            continue
        gain = found.value - at.value
        path = Ascent(found, _updated(H, found.u - at.u, at.gradient - found.gradient))
        small = small + 1 if gain < tolerance else 0
        if small == 2:
            return replace(path, converged=True)
    return path


def promise(path: Ascent, objective: AscentObjective) -> float:
    """The gain of the next step, in nats, predicted from the curvature."""
    free = objective.clip(path.at.u + 1e-3 * path.at.gradient.sign()) != path.at.u
    return 0.5 * _step(path.at, path.inverse, free)[1]


def _step(at: Evaluated, H: Tensor | None, free: Tensor) -> tuple[Tensor, float]:
    """The step to try and its slope, with coordinates at an active bound held fixed."""
    g = torch.where(free, at.gradient, torch.zeros_like(at.gradient))
    step = g / max(1.0, float(at.gradient.norm())) if H is None else torch.where(free, H @ g, 0.0)
    slope = float(step @ g)
    if H is not None and not (slope >= 0.0 and math.isfinite(slope)):
        return _step(at, None, free)
    return step / max(1.0, float(step.abs().max()) / LARGEST_STEP), slope


def _searched(
    objective: AscentObjective, at: Evaluated, step: Tensor, last: int
) -> Evaluated | None:
    """Backtrack along a step until a point gains enough; None if no point does."""
    t = 1.0
    while objective.evaluations < last and t >= SMALLEST_STEP:
        u = objective.clip(at.u + t * step)
        found, slope = objective.evaluate(u), float(at.gradient @ (u - at.u))
        if found.value >= at.value + 1e-4 * max(slope, 0.0):
            return found
        short = at.value + slope - found.value  # shortfall from the tangent, for the parabola
        t *= min(0.5, max(0.1, 0.5 * slope / short)) if math.isfinite(short) and short > 0 else 0.3
    return None


def _updated(H: Tensor | None, s: Tensor, y: Tensor) -> Tensor | None:
    """BFGS update of the inverse Hessian for a step ``s`` and a gradient decrease ``y``."""
    sy = float(s @ y)
    if sy <= 1e-10 * float(s.norm() * y.norm()):
        return H
    eye = torch.eye(len(s), dtype=s.dtype)
    H = eye * (sy / float(y @ y)) if H is None else H
    a = eye - torch.outer(s, y) / sy
    return a @ H @ a.T + torch.outer(s, s) / sy
