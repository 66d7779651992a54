"""Whether a model's predictions keep what they promise: log densities of new data, added up.

Before a batch is absorbed a model predicts it, and says by that what log density to expect: with
whitened residuals ``w ~ N(0, I_k)`` the log density falls short of its expectation by ``(|w|^2 -
k) / 2`` nats, with variance ``k / 2``. Over a stream these shortfalls add up to nothing if the
model is right, and grow with every batch if it is too sure of itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from bo_stream.mathematics.shapes import shaped

__all__ = ["Surprise", "shortfall"]

SIGMAS = 4.0
"""Standard deviations from which on a sum is no longer an accident."""

AT_LEAST = 5
"""Observations to be seen before a sum is judged."""


@dataclass(frozen=True)
class Surprise:
    """A sum over a stream of what is zero on average if the model is right.

    Later observations count for more: what was seen when the stream was half as long counts half,
    so that a model that has mended is forgiven.

    Attributes:
        count: Observations so far, 0-dim.
        total: The weighted sum of scores, 0-dim; shortfalls in nats, for one.
        information: The weighted sum of their variances, 0-dim.
        variance: The variance of `total` if the model is right, 0-dim.

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
        """Before any data, where ``like`` is."""
        return cls(*(like.new_zeros(()) for _ in range(4)))

    def seen(self, score: Tensor, variance: Tensor, count: int) -> Self:
        """With one batch more.

        Args:
            score: What is zero on average, 0-dim.
            variance: Its variance if the model is right, 0-dim.
            count: Observations in the batch.
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
        """The sum in its standard deviations; 0 before any data."""
        variance = float(self.variance)
        return float(self.total) / math.sqrt(variance) if variance > 0.0 else 0.0

    @property
    def size(self) -> float:
        """How wrong the model is, as a ratio: of shortfalls, by how much the residuals' variance
        exceeds what was predicted; 0 before any data.
        """
        information = float(self.information)
        return float(self.total) / information if information > 0.0 else 0.0

    @property
    def behind(self) -> bool:
        """Whether the model does worse than its own predictions promise, beyond accident."""
        return float(self.count) >= AT_LEAST and self.sigmas > SIGMAS


def shortfall(whitened: Tensor) -> tuple[Tensor, Tensor]:
    """By how many nats a log density falls short of its expectation, and the variance of that.

    Args:
        whitened: ``L^-1 (y - mean)`` for a predictive covariance ``L L'``, noise included, of any
            shape.
    """
    k = whitened.numel()
    return 0.5 * (whitened.square().sum() - k), whitened.new_tensor(0.5 * k)
