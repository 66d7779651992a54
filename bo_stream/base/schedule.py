"""When to refit: after growth of the data, or when predictions are worse than expected.

A refit of a family that keeps its data costs a pass over all of them. A loop that checks
`refit_due` after each `observe` fits about log(n) times, and whenever predictions turn out poor.

Before a batch is absorbed, the model predicts it, and its prediction implies an expected log
density. With whitened residuals ``w ~ N(0, I_k)`` the log density falls short of its expectation by
``(|w|^2 - k) / 2`` nats, with variance ``k / 2``. Over a stream these shortfalls average to zero if
the model is right, and grow with every batch if it is overconfident.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from bo_stream.errors import InputError
from bo_stream.mathematics.shapes import shaped

__all__ = ["RefitSchedule", "Surprise", "shortfall"]

SIGMAS = 4.0
"""Number of standard deviations beyond which a sum is significant."""

AT_LEAST = 5
"""Minimum number of observations before a sum is judged."""


@dataclass(frozen=True)
class RefitSchedule:
    """Refit when the data have grown, or when their predictive log score is too low.

    The deviation of the score from its expectation is a sum of squared standardised residuals,
    chi-square if the model is right. It is accumulated from the last fit on. Only too large a sum
    counts: a model with limited computation is rightly less certain than the exact one.

    Args:
        growth: Refit when n reaches this many times the n of the last fit.
        surprise: Refit when the sum exceeds its mean by this many standard deviations.
        at_least: Minimum number of residuals before the score is judged.

    Example:
        >>> schedule = RefitSchedule(growth=1.5)
        >>> schedule.due(149, 100, chi_square=49.0, residuals=49)
        False
        >>> schedule.due(150, 100, chi_square=49.0, residuals=50)
        True
        >>> schedule.due(120, 100, chi_square=60.0, residuals=20)
        True
    """

    growth: float = 1.5
    surprise: float = 4.0
    at_least: int = 5

    def __post_init__(self) -> None:
        if not (self.growth > 1.0 and self.surprise > 0.0 and self.at_least >= 1):
            raise InputError("growth > 1, surprise > 0, at_least >= 1", f"{self}", "Change them.")

    def due(self, n: int, fitted: int, chi_square: float, residuals: int) -> bool:
        """Whether to refit, given n, the n of the last fit, and the score since then."""
        if n == 0 or residuals == 0:
            return n > 0 and fitted == 0
        excess = (chi_square - residuals) / math.sqrt(2.0 * residuals)
        surprised = residuals >= self.at_least and excess > self.surprise
        return n >= self.growth * fitted or surprised


@dataclass(frozen=True)
class Surprise:
    """A weighted sum over a stream of scores with expectation zero if the model is right.

    Recent observations weigh more: those seen when the stream was half as long have half the
    weight, so that a model can recover.

    Attributes:
        count: Number of observations, 0-dim.
        total: Weighted sum of scores (such as shortfalls in nats), 0-dim.
        information: Weighted sum of their variances, 0-dim.
        variance: Variance of `total` if the model is right, 0-dim.

    Example:
        >>> import torch
        >>> calm = Surprise.none(torch.zeros((), dtype=torch.double))
        >>> calm.seen(*shortfall(torch.ones(8, dtype=torch.double)), 8).behind
        False
        >>> calm.seen(*shortfall(torch.full((8,), 3.0, dtype=torch.double)), 8).behind
        True
    """

    count: Tensor = shaped("", "not negative")
    total: Tensor = shaped("")
    information: Tensor = shaped("", "not negative")
    variance: Tensor = shaped("", "not negative")

    @classmethod
    def none(cls, like: Tensor) -> Self:
        """The sum before any data, on the device of ``like``."""
        return cls(*(like.new_zeros(()) for _ in range(4)))

    def seen(self, score: Tensor, variance: Tensor, count: int) -> Self:
        """The sum with one more batch.

        Args:
            score: A score with expectation zero, 0-dim.
            variance: Its variance if the model is right, 0-dim.
            count: Number of observations in the batch.
        """
        fade = self.count / (self.count + count)
        return type(self)(
            self.count + count,
            fade * self.total + score,
            fade * self.information + variance,
            fade.square() * self.variance + variance,
        )

    @property
    def sigmas(self) -> float:
        """The sum divided by its standard deviation; 0 before any data."""
        variance = float(self.variance)
        return float(self.total) / math.sqrt(variance) if variance > 0.0 else 0.0

    @property
    def behind(self) -> bool:
        """Whether the model does significantly worse than its own predictions imply."""
        return float(self.count) >= AT_LEAST and self.sigmas > SIGMAS


def shortfall(whitened: Tensor) -> tuple[Tensor, Tensor]:
    """The shortfall of a log density from its expectation, in nats, and its variance.

    Args:
        whitened: ``L^-1 (y - mean)`` of any shape, for a predictive covariance ``L L'`` with noise.
    """
    k = whitened.numel()
    return 0.5 * (whitened.square().sum() - k), whitened.new_tensor(0.5 * k)
