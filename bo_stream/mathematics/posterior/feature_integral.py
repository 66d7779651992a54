"""Weighted sums over fixed points of products of covariances, on features [MATHS 10].

With ``M = sum_t w_t V_t V_t'``: ``total = tr M`` and ``gram(a, b) = V_a' M V_b``. Once ``M`` is
known, the cost does not depend on the number of points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["FeatureIntegral"]

TILE = 4096
"""Points whose features are computed at a time."""


@dataclass(frozen=True)
class FeatureIntegral:
    """The sums over ``P`` weighted points.

    Attributes:
        M: ``o x r x r``.
    """

    M: Tensor

    @classmethod
    @torch.no_grad()
    def over(
        cls, basis: Callable[[Tensor], Tensor], L: Tensor, points: Tensor, weights: Tensor
    ) -> FeatureIntegral:
        """Sum over the points: O(P r^2 + r^3).

        Args:
            basis: The functions ``a``, ``n x d`` to ``o x n x r``.
            L: Lower triangular, ``o x r x r``: ``V = L^-1 a``.
            points: ``P x d``.
            weights: ``P``.
        """
        B = torch.zeros_like(L)
        for X, w in zip(points.split(TILE), weights.split(TILE), strict=True):
            a = basis(X)
            B += (a * w.unsqueeze(-1)).mT @ a
        half = torch.linalg.solve_triangular(L, B, upper=False)
        return cls(torch.linalg.solve_triangular(L, half.mT, upper=False))

    @property
    def total(self) -> Tensor:
        """Weighted sum of the variances, ``o``."""
        return self.M.diagonal(dim1=-2, dim2=-1).sum(-1)

    def gram(self, a: Any, b: Any) -> Tensor:
        """``sum_t w_t cov(a, t) cov(t, b)``, ``batch x o x q x q'``."""
        product: Tensor = (a.plus @ self.M) @ b.plus.mT
        return product

    def gram_diagonal(self, a: Any) -> Tensor:
        """The diagonal of ``gram(a, a)``, ``batch x o x q``."""
        diagonal: Tensor = ((a.plus @ self.M) * a.plus).sum(-1)
        return diagonal
