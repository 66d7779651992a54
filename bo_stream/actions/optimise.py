"""Maximising a CaGP's objective over hyperparameters and values of actions. [CaGP, eq. 13]

Hyperparameters are optimised as in `bo_stream.base.fitting` (logarithms, bounds of constraints, the
constant mean at its optimum), the values of S in units of their typical size. The loss does not
depend on the length of a column of S; columns are normalised afterwards.

L-BFGS is the default: it takes 50 to 200 evaluations, Adam several hundred. Adam, with a rate that
falls linearly to zero, is the optimizer of the paper.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from bo_stream.actions.fit_trace import FitTrace, LearningCurve, Progress, TracePoint, settle
from bo_stream.actions.objective import ActionMLL
from bo_stream.base.fitting.coordinates import Coordinates
from bo_stream.base.fitting.objective import check_evaluations
from bo_stream.errors import InputError, StateError

__all__ = ["Optimizer", "OptimiserSettings", "optimise"]

Optimizer = Literal["lbfgs", "adam"]

WINDOW = 10
GAIN = 1e-4
"""Converged once `WINDOW` steps gain less than this many nats per datum (and 0.01)."""
MAX_EVALS = {"lbfgs": 200, "adam": 600}


@dataclass(frozen=True)
class OptimiserSettings:
    """Settings of the optimisation.

    Args:
        max_evals: Most evaluations of objective and gradient (Adam: epochs); None: see `most`.
        optimizer: ``"lbfgs"`` or ``"adam"``; None: chosen by the fit.
        lr: Adam's first rate; it falls linearly to zero.
        progress: Called after each evaluation with its number and the objective's value.

    Raises:
        InputError: for less than one evaluation, or an unknown optimizer.
    """

    max_evals: int | None = None
    optimizer: Optimizer | None = None
    lr: float = 0.1
    progress: Progress | None = None

    def __post_init__(self) -> None:
        check_evaluations(self.max_evals)
        if self.optimizer is not None and self.optimizer not in MAX_EVALS:
            got = f"{self.optimizer!r}"
            raise InputError('optimizer "lbfgs" or "adam"', got, "Choose one of the two.")

    @property
    def named(self) -> bool:
        """Whether the caller chose this optimisation."""
        return self.optimizer is not None or self.progress is not None

    @property
    def most(self) -> int:
        """Most evaluations in all."""
        return self.max_evals or MAX_EVALS[self.optimizer or "lbfgs"]


def optimise(
    mll: ActionMLL, max_evals: int, search: OptimiserSettings, trace: FitTrace
) -> LearningCurve:
    """Maximise the objective over hyperparameters and action values.

    The objective, and the surrogate's hyperparameters, are left at the best point found;
    the surrogate's actions stay.

    Args:
        mll: The objective.
        max_evals: Most evaluations.
        search: The settings.
        trace: Records the evaluations.

    Raises:
        StateError: if the covariance is not positive definite at any point tried.
    """
    ascent = _Ascent(mll, max_evals, trace)
    if not ascent.start.numel():
        ascent.evaluate(ascent.start)
    elif search.optimizer == "adam":
        _adam(ascent, search.lr)
    else:
        _lbfgs(ascent)
    ascent.finish()
    return ascent.report()


class _Stop(Exception):
    """Enough evaluations, or converged."""


class _Ascent:
    """The objective as a function of one vector, with its trace and the best point so far."""

    def __init__(self, mll: ActionMLL, max_evals: int, trace: FitTrace) -> None:
        self.mll, self.max_evals, self.trace = mll, max_evals, trace
        self.profile_mean = mll.profiled
        self.coordinates = Coordinates(mll.model, self.profile_mean)
        self.parameters = [p for p, _, _ in self.coordinates.items]
        hyper, values = self.coordinates.get(), mll.action_values
        self.hyper = hyper.numel()
        self.start = hyper if values is None else torch.cat([hyper, values.detach().cpu()])
        self.best, self.top = self.start, TracePoint(-math.inf, hyper, None, None)
        self.seconds: list[float] = []
        self.values: list[float] = []
        self.converged = False
        self.enough = max(0.01, GAIN * mll.model.num_observed)
        self.began = time.perf_counter()

    def clip(self, x: Tensor) -> Tensor:
        """Project hyperparameters onto their bounds."""
        return torch.cat([self.coordinates.clip(x[: self.hyper]), x[self.hyper :]])

    def set(self, x: Tensor) -> None:
        """Write the vector to hyperparameters and action values."""
        self.coordinates.set(x[: self.hyper])
        if self.mll.action_values is not None:
            self.mll.action_values.data.copy_(x[self.hyper :])

    def evaluate(self, x: Tensor) -> tuple[float, Tensor]:
        """Objective and gradient; minus infinity and zeros if the objective fails."""
        self.set(x)
        free, mean = [*self.parameters], None
        if self.mll.action_values is not None:
            free.append(self.mll.action_values)
        for p in free:
            p.grad = None
        try:
            value, mean = self.mll.value(self.profile_mean)
            if value.requires_grad:
                value.backward()
            f, g = float(value.detach()), self._gradient()
        except StateError:  # not positive definite at these hyperparameters
            f, g = -math.inf, torch.zeros_like(x)
        for p in free:
            p.grad = None
        if not (math.isfinite(f) and bool(g.isfinite().all())):
            f, g = -math.inf, torch.zeros_like(x)
        self._note(x, f, mean)
        return f, g

    def _gradient(self) -> Tensor:
        parts = [self.coordinates.gradient()] if self.parameters else []
        values = self.mll.action_values
        if values is not None and values.grad is not None:
            parts.append(values.grad.cpu())
        return torch.cat(parts) if parts else self.start

    def _note(self, x: Tensor, f: float, mean: Tensor | None) -> None:
        self.seconds.append(time.perf_counter() - self.began)
        self.values.append(f)
        point = TracePoint(f, x[: self.hyper].clone(), mean, self.mll.chosen())
        if f > self.top.value:
            self.best, self.top = x.clone(), point
        self.trace.note(point, len(self.values), self.max_evals)

    def check(self, trace: list[float]) -> None:
        """Stop at the limit of evaluations, or if the last steps gained too little."""
        if len(trace) > WINDOW and trace[-1] - trace[-1 - WINDOW] < self.enough:
            self.converged = True
            raise _Stop
        if len(self.values) >= self.max_evals:
            raise _Stop

    def finish(self) -> None:
        """Go to the best point."""
        self.set(self.best)
        settle(self.mll, self.top)
        if not math.isfinite(self.top.value):
            self.converged = False
            with torch.no_grad():
                self.mll.value(self.profile_mean)  # raises if it cannot factorise

    def report(self) -> LearningCurve:
        """The report."""
        return LearningCurve(
            evaluations=len(self.values),
            value=self.top.value,
            converged=self.converged,
            seconds=tuple(self.seconds),
            values=tuple(self.values),
        )


def _lbfgs(ascent: _Ascent) -> None:
    """L-BFGS-B of scipy, restarted from the best point if its line search fails."""
    lower, upper = ascent.coordinates.lower.tolist(), ascent.coordinates.upper.tolist()
    bounds = [*zip(lower, upper, strict=True)]
    bounds += [(-math.inf, math.inf)] * (ascent.start.numel() - ascent.hyper)
    trace: list[float] = []

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        if len(ascent.values) >= ascent.max_evals:
            raise _Stop
        f, g = ascent.evaluate(torch.from_numpy(x.copy()))
        worst = -ascent.top.value + 1e3 * (1.0 + abs(ascent.top.value))
        return (-f if math.isfinite(f) else worst), -g.numpy()

    def step(_: np.ndarray) -> None:
        trace.append(ascent.top.value)
        ascent.check(trace)

    try:
        while True:
            before, taken = ascent.top.value, len(trace)
            minimize(
                negative,
                ascent.best.numpy(),
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                callback=step,
                options={"maxcor": 20, "maxiter": 10**6, "maxfun": 10**6, "ftol": 0.0, "gtol": 0.0},
            )
            if ascent.top.value - before < ascent.enough or len(trace) == taken:
                ascent.converged = True
                return
    except _Stop:
        return


def _adam(ascent: _Ascent, lr: float) -> None:
    """Adam with a rate that falls linearly to zero over all epochs, projected onto the bounds."""
    x = ascent.start.clone()
    optimizer = torch.optim.Adam([x], lr=lr)
    for epoch in range(ascent.max_evals):
        optimizer.param_groups[0]["lr"] = lr * (1.0 - epoch / ascent.max_evals)
        x.grad = -ascent.evaluate(x)[1]
        optimizer.step()
        x.copy_(ascent.clip(x))
    ascent.converged = True
