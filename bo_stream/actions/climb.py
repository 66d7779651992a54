"""Climbing a CaGP's objective: hyperparameters and values of actions, jointly. [CaGP, eq. 13]

Hyperparameters are climbed as everywhere here (logarithms, bounds of constraints, a free constant
mean at its optimum: `bo_stream.fitting`); the values of S in units of their typical size. The loss
does not feel the length of a column of S: columns are brought back to length one afterwards.

L-BFGS is the default: 50 to 200 evaluations do what Adam does in several hundred. Adam, with its
rate falling linearly to zero, is the optimizer of the paper.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from bo_stream.errors import InputError, StateError
from bo_stream.fitting.coordinates import Coordinates
from bo_stream.fitting.objective import StreamMLL, log_prior, profiled_mean
from bo_stream.fitting.report import FitReport
from bo_stream.projection.matrix import BlockMatrix

if TYPE_CHECKING:
    from bo_stream.cagp import CaGP

__all__ = [
    "MAX_EVALS",
    "ActionMLL",
    "LearningCurve",
    "Loss",
    "Optimizer",
    "Progress",
    "fit_actions",
]

Loss = Literal["elbo", "projected"]
Optimizer = Literal["lbfgs", "adam"]
Progress = Callable[[int, float], None]
logger = logging.getLogger("bo_stream.cagp")

WINDOW = 10
GAIN = 1e-4
"""A fit has converged when `WINDOW` steps gained less than this many nats a datum (and 0.01)."""
MAX_EVALS = {"lbfgs": 200, "adam": 600}
LOG_EVERY = 10.0
"""Seconds between lines in the log."""


@dataclass(frozen=True)
class LearningCurve(FitReport):
    """A fit's report with its course.

    Attributes:
        seconds: Time since the start, one an evaluation.
        values: The objective at each evaluation, in nats.
    """

    seconds: tuple[float, ...] = field(default=(), repr=False)
    values: tuple[float, ...] = field(default=(), repr=False)


class ActionMLL(StreamMLL):
    """A CaGP's objective; its parameters are the hyperparameters and the values of S, if learned.

    An optimizer that is handed this object changes its own copy of the values, ``action_values``;
    `commit` writes them to the surrogate, as `fit_gpytorch_mll` does at the end.

    Args:
        model: The surrogate.
        loss: ``"elbo"``, or ``"projected"``: the likelihood of S'y alone, for study.
        dtype: Working dtype of the kernel products; float32 is faster and exact to about 1e-6.
    """

    model: CaGP

    def __init__(
        self, model: CaGP, loss: Loss = "elbo", dtype: torch.dtype = torch.float64
    ) -> None:
        super().__init__(model)
        if loss not in ("elbo", "projected"):
            raise InputError('loss "elbo" or "projected"', f"{loss!r}", "Choose one of the two.")
        self.loss, self.dtype = loss, dtype
        self.action_values: nn.Parameter | None = None
        self.refresh()

    def refresh(self) -> None:
        """Take the surrogate's values anew, in units of 1/sqrt(block size)."""
        S = self.model.S
        if not learns_values(self.model) or not isinstance(S, BlockMatrix):
            self.action_values = None
            return
        self.action_values = nn.Parameter(S.values * _unit(S))

    def commit(self) -> None:
        """Write the values, columns normalised, to the surrogate."""
        if self.action_values is not None:
            S = self.model.S
            if isinstance(S, BlockMatrix):
                made = BlockMatrix(S.block, self.action_values.detach(), S.num_actions)
                self.model.replace_actions(made.normalised())

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        """The loss as a log likelihood, plus log priors, 0-dim."""
        return self.value(profile_mean=False)[0]

    def value(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """As `forward`; with ``profile_mean`` at the best constant mean, which comes second."""
        model = self.model
        S = model._current_actions()
        if self.action_values is not None and isinstance(S, BlockMatrix):
            S = BlockMatrix(S.block, self.action_values, S.num_actions)
        value, best = model._bound(self.loss, S, profile_mean, self.dtype)
        return value + log_prior(model), best


def learns_values(model: CaGP) -> bool:
    """Whether there is something to learn in S: a learned policy with a block of several rows."""
    S = model.S
    return model.actions.learned and isinstance(S, BlockMatrix) and S.num_actions < len(S.block)


def fit_actions(
    mll: ActionMLL,
    max_evals: int,
    optimizer: Optimizer = "lbfgs",
    lr: float = 0.1,
    progress: Progress | None = None,
) -> LearningCurve:
    """Maximise the objective over hyperparameters and action values, and commit the best found.

    Args:
        mll: The objective.
        max_evals: Most evaluations of objective and gradient (Adam: epochs).
        optimizer: ``"lbfgs"`` or ``"adam"``.
        lr: Adam's first rate; it falls linearly to zero.
        progress: Called after each evaluation with its number and the objective's value.

    Returns:
        The report with the learning curve.
    """
    climb = _Climb(mll, max_evals, progress)
    mll.train()
    try:
        if not climb.start.numel():
            climb.evaluate(climb.start)
        elif optimizer == "lbfgs":
            _lbfgs(climb)
        else:
            _adam(climb, lr)
        climb.set(climb.best)
        if climb.profile_mean:
            with torch.no_grad():
                _, mean = mll.value(profile_mean=True)
            if mean is not None:
                mll.model._set_prior_mean(mean)
        mll.commit()
    finally:
        mll.eval()
    return climb.report()


class _Stop(Exception):
    """Enough evaluations, or converged."""


class _Climb:
    """The objective as a function of one vector, with its course and the best point so far."""

    def __init__(self, mll: ActionMLL, max_evals: int, progress: Progress | None) -> None:
        self.mll, self.max_evals, self.progress = mll, max_evals, progress
        self.profile_mean = mll.loss == "elbo" and profiled_mean(mll.model)
        self.coordinates = Coordinates(mll.model, self.profile_mean)
        self.parameters = [p for p, _, _ in self.coordinates.items]
        hyper = self.coordinates.get() if self.parameters else torch.empty(0).double()
        values = mll.action_values
        self.hyper = hyper.numel()
        self.start = hyper if values is None else torch.cat([hyper, values.detach().cpu()])
        self.best, self.highest = self.start, -math.inf
        self.seconds: list[float] = []
        self.values: list[float] = []
        self.converged = False
        self.enough = max(0.01, GAIN * mll.model.num_observed)
        self.began = self.logged = time.perf_counter()

    def clip(self, x: Tensor) -> Tensor:
        """Project hyperparameters onto their bounds."""
        return torch.cat([self.coordinates.clip(x[: self.hyper]), x[self.hyper :]])

    def set(self, x: Tensor) -> None:
        """Write the vector to hyperparameters and action values."""
        self.coordinates.set(x[: self.hyper])
        if self.mll.action_values is not None:
            self.mll.action_values.data.copy_(x[self.hyper :])

    def evaluate(self, x: Tensor) -> tuple[float, Tensor]:
        """Objective and gradient; minus infinity and zeros where it cannot be had."""
        self.set(x)
        free = [*self.parameters]
        if self.mll.action_values is not None:
            free.append(self.mll.action_values)
        for p in free:
            p.grad = None
        try:
            value, _ = self.mll.value(self.profile_mean)
            if value.requires_grad:
                value.backward()
            f, g = float(value.detach()), self._gradient()
        except StateError:  # not positive definite at these hyperparameters
            f, g = -math.inf, torch.zeros_like(x)
        for p in free:
            p.grad = None
        if not (math.isfinite(f) and bool(g.isfinite().all())):
            f, g = -math.inf, torch.zeros_like(x)
        self._note(x, f)
        return f, g

    def _gradient(self) -> Tensor:
        parts = [self.coordinates.gradient()] if self.parameters else []
        values = self.mll.action_values
        if values is not None and values.grad is not None:
            parts.append(values.grad.cpu())
        return torch.cat(parts) if parts else self.start

    def _note(self, x: Tensor, f: float) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self.began)
        self.values.append(f)
        if f > self.highest:
            self.best, self.highest = x.clone(), f
        count = len(self.values)
        if self.progress is not None:
            self.progress(count, f)
        if now - self.logged > LOG_EVERY:
            self.logged = now
            logger.info("evaluation %d of at most %d: %.2f nats", count, self.max_evals, f)

    def check(self, course: list[float]) -> None:
        """Stop at the limit of evaluations, or once the last steps have gained too little."""
        if len(course) > WINDOW and course[-1] - course[-1 - WINDOW] < self.enough:
            self.converged = True
            raise _Stop
        if len(self.values) >= self.max_evals:
            raise _Stop

    def report(self) -> LearningCurve:
        """What was done."""
        return LearningCurve(
            len(self.values),
            self.highest,
            self.converged,
            tuple(self.seconds),
            tuple(self.values),
        )


def _lbfgs(climb: _Climb) -> None:
    """L-BFGS-B of scipy, started again from the best point where its line search gives up."""
    lower, upper = climb.coordinates.lower.tolist(), climb.coordinates.upper.tolist()
    bounds = [*zip(lower, upper, strict=True)]
    bounds += [(-math.inf, math.inf)] * (climb.start.numel() - climb.hyper)
    course: list[float] = []

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        if len(climb.values) >= climb.max_evals:
            raise _Stop
        f, g = climb.evaluate(torch.from_numpy(x.copy()))
        worst = -climb.highest + 1e3 * (1.0 + abs(climb.highest))
        return (-f if math.isfinite(f) else worst), -g.numpy()

    def step(_: np.ndarray) -> None:
        course.append(climb.highest)
        climb.check(course)

    try:
        while True:
            before, taken = climb.highest, len(course)
            minimize(
                negative,
                climb.best.numpy(),
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                callback=step,
                options={"maxcor": 20, "maxiter": 10**6, "maxfun": 10**6, "ftol": 0.0, "gtol": 0.0},
            )
            if climb.highest - before < climb.enough or len(course) == taken:
                climb.converged = True
                return
    except _Stop:
        return


def _adam(climb: _Climb, lr: float) -> None:
    """Adam with a rate that falls linearly to zero over all epochs, projected onto the bounds."""
    x = climb.start.clone()
    optimizer = torch.optim.Adam([x], lr=lr)
    for epoch in range(climb.max_evals):
        optimizer.param_groups[0]["lr"] = lr * (1.0 - epoch / climb.max_evals)
        x.grad = -climb.evaluate(x)[1]
        optimizer.step()
        x.copy_(climb.clip(x))
    climb.converged = True


def _unit(S: BlockMatrix) -> Tensor:
    """Square root of each row's block size: values of a normalised S times this are about one."""
    ones = torch.ones_like(S.values)
    sizes = ones.new_zeros(S.num_actions).index_add(0, S.block, ones)
    return sizes[S.block].sqrt()
