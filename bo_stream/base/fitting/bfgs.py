"""Projected BFGS (maximising) that keeps its curvature between fits.

The objective (evidence or bound plus log priors) changes little from one batch to the next, so the
inverse Hessian of the last fit is a good preconditioner: a warm fit takes a handful of evaluations.
Bounds are enforced by projection. Where the objective cannot be computed (the covariance does not
factorise, or a value or gradient is not finite) its value is minus infinity. At the start of a fit
this is an error instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bo_stream.base.fitting.coordinates import ClosedForm, Coordinates
from bo_stream.errors import StateError

__all__ = ["Ascent", "AscentObjective", "Evaluated", "ascend"]

Objective = Callable[[], tuple[Tensor, Tensor | None]]
"""The objective at the current parameters (0-dim, differentiable), and its optimal means."""

LARGEST_STEP = 2.0
"""Largest change of one (log-)hyperparameter in one step."""

SMALLEST_STEP = 1e-4
"""Smallest fraction of a step that the line search tries."""


@dataclass(frozen=True)
class Evaluated:
    """An objective at one point.

    Attributes:
        u: The point.
        value: The objective in nats; minus infinity where it cannot be computed.
        gradient: Its gradient; zeros where it cannot be computed.
        mean: The optimal constant means (``o``), if the objective profiles them out.
    """

    u: Tensor
    value: float
    gradient: Tensor
    mean: Tensor | None


class AscentObjective:
    """An objective as a function of one vector; counts evaluations and keeps the best point.

    Args:
        objective: Returns the objective at the current parameters and changes nothing.
        coordinates: The coordinates of the hyperparameters.
        closed_form: The objective with its gradient at given coordinates, in place of `objective`.

    Attributes:
        evaluations: Evaluations of objective and gradient so far.
        best: The best point so far; None before the first evaluation.
    """

    def __init__(
        self,
        objective: Objective,
        coordinates: Coordinates,
        closed_form: ClosedForm | None = None,
    ) -> None:
        self.objective, self.coordinates, self.closed_form = objective, coordinates, closed_form
        self.parameters = [p for p, _, _ in coordinates.items]
        self.before = [p.detach().clone() for p in self.parameters]
        self.evaluations = 0
        self.best: Evaluated | None = None

    def start(self) -> Evaluated:
        """Evaluate the objective at the current parameters.

        Raises:
            StateError: if it is not finite; the parameters are unchanged.
            torch.linalg.LinAlgError: if the covariance does not factorise; likewise.
        """
        try:
            found = self._at(self.coordinates.get())
            if not math.isfinite(found.value):
                raise StateError(
                    "a finite objective, with a finite gradient, at the current hyperparameters",
                    "an infinite or undefined one",
                    "Standardize the outcomes (outcome_transform=Standardize(m)) or start from "
                    "other hyperparameters.",
                )
        except BaseException:
            self.restore()
            raise
        self.best = found
        return found

    def evaluate(self, u: Tensor) -> Evaluated:
        """Evaluate the objective at a vector; minus infinity where it cannot be computed."""
        try:
            found = self._at(u)
        except (StateError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            return Evaluated(u, -math.inf, torch.zeros_like(u), None)
        if self.best is None or found.value > self.best.value:
            self.best = found
        return found

    def settle(self) -> None:
        """Set the parameters to the best point, or to their initial values if there is none."""
        if self.best is None:
            self.restore()
        else:
            self._clear()
            self.coordinates.set(self.best.u)

    def restore(self) -> None:
        """Restore the initial parameters."""
        self._clear()
        with torch.no_grad():
            for p, value in zip(self.parameters, self.before, strict=True):
                p.copy_(value)

    def _at(self, u: Tensor) -> Evaluated:
        self.evaluations += 1
        value, gradient, mean = (self.closed_form or self._differentiated)(u)
        f = float(value.detach())
        if not (math.isfinite(f) and bool(gradient.isfinite().all())):
            return Evaluated(u, -math.inf, torch.zeros_like(u), None)
        return Evaluated(u, f, gradient, mean)

    def _differentiated(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        self.coordinates.set(u)
        self._clear()
        value, mean = self.objective()
        if value.requires_grad:
            value.backward()
        gradient = self.coordinates.gradient() if len(u) else torch.zeros_like(u)
        self._clear()
        return value, gradient, mean

    def _clear(self) -> None:
        for p in self.parameters:
            p.grad = None


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
        free = objective.coordinates.clip(at.u + 1e-3 * at.gradient.sign()) != at.u
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
        u = objective.coordinates.clip(at.u + t * step)
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
