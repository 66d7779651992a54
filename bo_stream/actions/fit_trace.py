"""The trace of a fit: its evaluations, their times, and the best point."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from bo_stream.actions.objective import ActionMLL
from bo_stream.base.fitting.coordinates import Coordinates
from bo_stream.base.fitting.report import FitReport
from bo_stream.mathematics.computation_aware.matrix import ActionMatrix

__all__ = ["FitTrace", "LearningCurve", "TracePoint", "Progress", "joined"]

Progress = Callable[[int, float], None]
logger = logging.getLogger("bo_stream.surrogates.cagp")

LOG_EVERY = 10.0
"""Seconds between lines in the log."""


@dataclass(frozen=True)
class LearningCurve(FitReport):
    """A fit's report with its trace.

    Attributes:
        seconds: Time since the start of each evaluation.
        values: The objective at each evaluation, in nats.
    """

    seconds: tuple[float, ...] = field(default=(), repr=False)
    values: tuple[float, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class TracePoint:
    """An evaluated point.

    Attributes:
        value: The objective there, in nats.
        hyperparameters: In coordinates of the optimisation.
        mean: The optimal constant mean there, if it is not a coordinate.
        S: The actions, columns of length one; None: the surrogate's own.
    """

    value: float
    hyperparameters: Tensor
    mean: Tensor | None
    S: ActionMatrix | None


class FitTrace:
    """The evaluations of a fit so far.

    Args:
        progress: Called after each evaluation with its number in the optimisation and the value.
        log_every: Seconds between lines in the log.

    Attributes:
        best: The point of highest objective so far; None before the first finite value.
    """

    def __init__(self, progress: Progress | None = None, log_every: float = LOG_EVERY) -> None:
        self.progress, self.log_every = progress, log_every
        self.best: TracePoint | None = None
        self._logged = time.perf_counter()

    def note(self, point: TracePoint, count: int, most: int) -> None:
        """Record evaluation ``count`` of at most ``most``."""
        if math.isfinite(point.value) and (self.best is None or point.value > self.best.value):
            self.best = point
        if self.progress is not None:
            self.progress(count, point.value)
        now = time.perf_counter()
        if now - self._logged > self.log_every:
            self._logged = now
            logger.info("evaluation %d of at most %d: %.2f nats", count, most, point.value)

    def restore(self, mll: ActionMLL) -> None:
        """Set the surrogate to the best point so far, after an interruption."""
        if self.best is not None:
            settle(mll, self.best)
            if self.best.S is not None:
                mll.handle.use(self.best.S)


def settle(mll: ActionMLL, point: TracePoint) -> None:
    """Write a point's hyperparameters to the surrogate."""
    Coordinates(mll.model, mll.profiled).set(point.hyperparameters)
    if point.mean is not None:
        mll.model._set_prior_mean(point.mean)


def joined(curves: list[LearningCurve]) -> LearningCurve:
    """One report of consecutive optimisations, with the value of the last."""
    seconds: tuple[float, ...] = ()
    for curve in curves:
        start = seconds[-1] if seconds else 0.0
        seconds += tuple(start + s for s in curve.seconds)
    return LearningCurve(
        evaluations=sum(curve.evaluations for curve in curves),
        value=curves[-1].value,
        converged=curves[-1].converged,
        seconds=seconds,
        values=sum((curve.values for curve in curves), ()),
    )
