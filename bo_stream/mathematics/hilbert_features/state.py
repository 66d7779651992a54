"""The state of a Gaussian process on sine features of many inputs.

A row of W is the features at a point and a one. The one has prior variance zero: its column in A
holds the statistics that a constant mean needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from bo_stream.mathematics.evidence import OutputStatistics
from bo_stream.mathematics.hilbert_features.basis import Basis
from bo_stream.mathematics.shapes import nested
from bo_stream.mathematics.sums import BufferedStatistics

__all__ = ["HilbertRows", "HilbertState"]


@dataclass(frozen=True)
class HilbertRows:
    """Rows of W, ``n x (f + 1)``."""

    W: Tensor

    @classmethod
    def at(cls, basis: Basis, X: Tensor) -> HilbertRows:
        """The rows at points ``n x d``."""
        phi = basis.features(X)
        return cls(torch.cat([phi, phi.new_ones(len(phi), 1)], -1))

    def add_outer(self, A: Tensor, weights: Tensor) -> None:
        """``A += W' diag(weights) W`` in place: O(n f^2)."""
        half = self.W * weights.sqrt().unsqueeze(-1)
        A.addmm_(half.mT, half)

    def transpose_times(self, values: Tensor, m: int) -> Tensor:
        """``W' values`` for ``o x n`` values: ``o x m``."""
        return values @ self.W


@dataclass(frozen=True)
class HilbertState(BufferedStatistics):
    """Statistics over sine features, and the first points.

    Attributes:
        basis: The features.
    """

    basis: Basis = nested()

    @classmethod
    def on(cls, basis: Basis, outputs: int, shared: bool, opening: int) -> Self:
        """Before any data."""
        f, d = basis.alpha.shape
        return cls.empty(f + 1, d, outputs, shared, opening, basis=basis)

    def totals(self) -> tuple[Tensor, Tensor, Tensor]:
        """``W'R^-1 1`` (``s x m``), ``1'R^-1 y`` (``o``) and ``1'R^-1 1`` (``s``)."""
        return self.A[..., -1], self.b[..., -1], self.A[..., -1, -1]

    def over_features(self) -> list[OutputStatistics]:
        """The statistics of every output over the features, without the one."""
        totals, made = self.totals(), []
        for output in range(len(self.b)):
            own = self.statistics(output, totals)
            A, b, w1 = own.A[:-1, :-1], own.b[:-1], own.w1[:-1]
            made.append(replace(own, A=A, b=b, w1=w1))
        return made

    @property
    def features(self) -> Basis:
        """The features."""
        return self.basis

    def over(self, features: Basis) -> Self:
        """A state over other features, before any data."""
        return replace(self, A=torch.zeros_like(self.A), b=torch.zeros_like(self.b), basis=features)

    def rows_at(self, X: Tensor) -> HilbertRows:
        """The features and a one at points ``n x d``."""
        return HilbertRows.at(self.basis, X)

    def _unlike(self) -> tuple[str, str, str]:
        return (
            "two streams on the same features",
            "features chosen for other lengthscales, and points no longer held",
            "Build both with the same `lengthscales`.",
        )
