"""An evenly spread sample of all rows of a stream, from which hyperparameters are learned.

Row i of the stream has the rank ``i phi mod 1``, with phi the golden ratio. The ranks of any
stretch of rows are evenly spread, and so are the rows of lowest rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.evidence import covariance_evidence
from bo_stream.mathematics.kernels import cross_kernel
from bo_stream.mathematics.linalg import REPAIR, chol_psd
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
    def empty(cls, dim: int) -> Self:
        """Before any row."""
        X = torch.zeros(0, dim, dtype=torch.float64)
        return cls(X, X.new_zeros(0), X.new_zeros(0), X.new_zeros(0))

    def joined(self, X: Tensor, y: Tensor, noise: Tensor, before: int, most: int) -> Self:
        """With further rows.

        Args:
            X: Points, ``q x d``.
            y: Targets, ``q``.
            noise: Noise variances before any learned scale, ``q``.
            before: Number of rows before these.
            most: Largest number of rows to keep.
        """
        number = torch.arange(before, before + len(y), dtype=torch.float64, device=y.device)
        new = X, y, noise, (number * GOLDEN) % 1.0
        old = self.X, self.y, self.noise, self.rank
        return type(self)(*map(torch.cat, zip(old, new, strict=True))).thinned(most)

    def thinned(self, most: int) -> Self:
        """At most so many of the rows, those of lowest rank."""
        keep = self.rank.argsort()[:most].sort().values
        return type(self)(self.X[keep], self.y[keep], self.noise[keep], self.rank[keep])

    def in_units(self, shift: Tensor, factor: Tensor, precision: Tensor) -> Self:
        """For targets ``(y - shift) / factor``, and noise over ``precision``; all 0-dim."""
        return replace(self, y=(self.y - shift) / factor, noise=self.noise / precision)

    def log_evidence(
        self, kernel: Kernel, scale: Tensor, mean: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Exact log evidence of the rows, 0-dim, with gradients in closed form: O(s^3).

        Args:
            kernel: The kernel.
            scale: Scale of the noise, ``1``.
            mean: The constant mean, ``1``; None for the optimal one, which is then returned, too.
        """
        C = cross_kernel(kernel, self.X, self.X) + (scale * self.noise).diag_embed()
        return covariance_evidence(C, chol_psd(C.detach(), least=REPAIR), self.y[None], mean)
