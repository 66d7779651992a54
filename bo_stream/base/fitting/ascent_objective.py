"""Evaluation of an objective and its gradient, with the best point seen.

Where the objective cannot be computed (the covariance does not factorise, or a value or gradient
is not finite) its value is minus infinity. At the start of a fit this is an error instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bo_stream.base.fitting.closed_form import ClosedForm
from bo_stream.base.fitting.coordinates import Coordinates
from bo_stream.errors import StateError

__all__ = ["AscentObjective", "Evaluated", "Objective"]

Objective = Callable[[], tuple[Tensor, Tensor | None]]
"""The objective at the current parameters (0-dim, differentiable), and its optimal means."""


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
        extra: Further parameters, unbounded, appended to the hyperparameters in the vector.
        closed_form: The objective with its gradient at given coordinates, in place of `objective`.

    Attributes:
        evaluations: Evaluations of objective and gradient so far.
        best: The best point so far; None before the first evaluation.
    """

    def __init__(
        self,
        objective: Objective,
        coordinates: Coordinates,
        extra: Sequence[nn.Parameter] = (),
        closed_form: ClosedForm | None = None,
    ) -> None:
        self.objective, self.coordinates, self.extra = objective, coordinates, list(extra)
        self.closed_form = closed_form
        self.parameters = [p for p, _, _ in coordinates.items] + self.extra
        self.before = [p.detach().clone() for p in self.parameters]
        self.size = coordinates.lower.numel()
        self.evaluations = 0
        self.best: Evaluated | None = None

    def get(self) -> Tensor:
        """The current parameters as one vector (float64, on the CPU)."""
        values = [p.detach().double().cpu().reshape(-1) for p in self.extra]
        return torch.cat([self.coordinates.get(), *values])

    def set(self, u: Tensor) -> None:
        """Set the parameters from a vector."""
        self.coordinates.set(u[: self.size])
        start = self.size
        with torch.no_grad():
            for p in self.extra:
                p.copy_(u[start : start + p.numel()].reshape(p.shape))
                start += p.numel()

    def clip(self, u: Tensor) -> Tensor:
        """Project the hyperparameters onto their bounds."""
        return torch.cat([self.coordinates.clip(u[: self.size]), u[self.size :]])

    def start(self) -> Evaluated:
        """Evaluate the objective at the current parameters.

        Raises:
            StateError: if it is not finite; the parameters are unchanged.
            torch.linalg.LinAlgError: if the covariance does not factorise; likewise.
        """
        try:
            found = self._at(self.get())
        except BaseException:
            self.restore()
            raise
        if not math.isfinite(found.value):
            self.restore()
            raise StateError(
                "a finite objective, with a finite gradient, at the current hyperparameters",
                "an infinite or undefined one",
                "Standardize the outcomes (outcome_transform=Standardize(m)) or start from other "
                "hyperparameters.",
            )
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
            self.set(self.best.u)

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
        self.set(u)
        self._clear()
        value, mean = self.objective()
        if value.requires_grad:
            value.backward()
        gradient = self._gradient(u)
        self._clear()
        return value, gradient, mean

    def _gradient(self, u: Tensor) -> Tensor:
        parts = [self.coordinates.gradient()] if self.size else []
        for p in self.extra:
            slope = torch.zeros_like(p) if p.grad is None else p.grad
            parts.append(slope.double().cpu().reshape(-1))
        return torch.cat(parts) if parts else torch.zeros_like(u)

    def _clear(self) -> None:
        for p in self.parameters:
            p.grad = None
