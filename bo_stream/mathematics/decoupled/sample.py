"""An evenly spread sample of all rows of a stream, from which hyperparameters are learned.

The window keeps the rows that the inducing points explain least, so noise learned from it would be
too large. Row i of the stream has the rank ``i phi mod 1``, with phi the golden ratio. The ranks of
any stretch of rows are evenly spread, and so are the rows of lowest rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from bo_stream.mathematics.shapes import shaped

__all__ = ["Sample"]

GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Sample:
    """Rows of lowest rank, in order of arrival.

    Attributes:
        X: Points, ``s x d``.
        y: Targets, ``s``.
        noise: Noise variances before any learned scale, ``s``.
        rank: Between 0 and 1, ``s``.
    """

    X: Tensor = shaped("s d")
    y: Tensor = shaped("s")
    noise: Tensor = shaped("s", "positive")
    rank: Tensor = shaped("s", "not negative")

    @classmethod
    def none(cls, dim: int) -> Self:
        """Before any row."""
        X = torch.zeros(0, dim, dtype=torch.float64)
        return cls(X, X.new_zeros(0), X.new_zeros(0), X.new_zeros(0))

    def given(self, X: Tensor, y: Tensor, noise: Tensor, before: int, most: int) -> Self:
        """With further rows.

        Args:
            X: Points, ``q x d``.
            y: Targets, ``q``.
            noise: Noise variances before any learned scale, ``q``.
            before: How many rows came before these.
            most: How many rows to keep.
        """
        number = torch.arange(before, before + len(y), dtype=torch.float64, device=y.device)
        new = X, y, noise, (number * GOLDEN) % 1.0
        old = self.X, self.y, self.noise, self.rank
        rows = [torch.cat(pair) for pair in zip(old, new, strict=True)]
        keep = rows[3].argsort()[:most].sort().values
        return type(self)(*(part[keep] for part in rows))
