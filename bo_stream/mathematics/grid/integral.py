"""Weighted sums over fixed points of products of posterior covariances, on a grid [MATHS 10].

With ``cov(x, t) = w_x' S w_t`` the sum ``sum_t w_t cov(x, t) cov(t, z)`` is ``w_x' N w_z`` with
``N = S A S`` and ``A = W_T' diag(w) W_T``. Once N is known, the cost depends neither on the number
of points summed over nor on the number of observations.

N is dense and costs O(m^3). It is formed when first needed: optimisation over a box needs it, a
choice from a pool does not. The diagonal of the sums needs only the entries of N between nodes of
one cell (`local`), and sums for a few points against many take one product with S each.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from bo_stream.mathematics.grid.bands import BandRows, matrix_of, pair_count
from bo_stream.mathematics.grid.local_quadratic import LocalEntries, SparseRows
from bo_stream.mathematics.grid.nodes import Grid, Interpolation
from bo_stream.mathematics.grid.weights import weighted_rows
from bo_stream.mathematics.lasting import lasting_property

__all__ = ["GridIntegral"]

BLOCK = 512
FEW = 64
"""Points up to which covariances cost less through S than through N."""
G = TypeVar("G", bound=Any)


@dataclass(eq=False)
class GridIntegral:
    """The sums over ``P`` weighted points under one ``S`` (``o x m x m``).

    Attributes:
        A: ``W' diag(weights) W``: at most ``7^d`` entries a row.
        S: Covariance of the grid values, ``o x m x m``.
        local: Entries of ``S A S`` between nodes of one cell.
        total: Weighted sum of the variances, ``o``.
    """

    A: SparseRows
    S: Tensor
    local: LocalEntries
    total: Tensor
    _last: tuple[Any, Tensor] | None = field(default=None, repr=False)

    @classmethod
    def over(cls, weights: Tensor, rows: Interpolation, S: Tensor, grid: Grid) -> GridIntegral:
        """Sum over ``P`` points: O(P 16^d + 7^d m^2 + 8 m^(3 - 1/d)).

        Args:
            weights: ``P``.
            rows: The points' rows.
            S: Covariance of the grid values, ``o x m x m``.
            grid: The nodes.
        """
        A = S.new_zeros(pair_count(grid.sizes))
        BandRows(rows, grid.sizes).add_outer(A, weights)
        nodes = SparseRows.of(matrix_of(A, grid.sizes))
        return cls(nodes, S, LocalEntries.congruence(S, nodes, grid), nodes.trace(S))

    @lasting_property
    def N(self) -> Tensor:
        """``S A S``, ``o x m x m``: O(7^d m^2 + m^3) when first asked for."""
        return torch.stack([_symmetric_product(s, self.A.times(s)) for s in self.S])

    def gram(self, a: G, b: G) -> Tensor:
        """``sum_t w_t cov(a, t) cov(t, b)``, ``batch x o x q x q'``.

        O(16^d) per pair once N is formed. Until then, for points without batch or gradient, O(m^2)
        per point of the smaller set, whose last product is kept for further chunks of a pool.
        """
        if "N" not in self.__dict__ and _few(b) and _plain(a):
            return self._against(a, b)
        if "N" not in self.__dict__ and _few(a) and _plain(b):
            return self._against(b, a).mT
        left = replace(a, S=self.N)
        result: Tensor = left.covariance(left if a is b else replace(b, S=self.N))
        return result

    def gram_diagonal(self, a: G) -> Tensor:
        """The diagonal of ``gram(a, a)``, ``batch x o x q``: O(16^d) per point."""
        return self.local.quadratic(a.rows)

    def _against(self, a: G, few: G) -> Tensor:
        """``gram(a, few)`` through ``N W'`` of the few points, ``o x m x q'``."""
        if self._last is None or self._last[0] is not few.rows:
            products = [s @ self.A.times(_interpolated(few, s).mT.contiguous()) for s in self.S]
            self._last = few.rows, torch.stack(products)
        return torch.stack([_interpolated(a, product) for product in self._last[1]])


def _interpolated(a: Any, M: Tensor) -> Tensor:
    """``W_a M`` for ``m x p`` M and points without batch."""
    return weighted_rows(M, a.rows.index, a.rows.weight)


def _plain(a: Any) -> bool:
    """Points without batch or gradient."""
    return a.rows.index.ndim == 2 and not a.rows.weight.requires_grad


def _few(a: Any) -> bool:
    return _plain(a) and len(a.rows.index) <= FEW


def _symmetric_product(A: Tensor, B: Tensor) -> Tensor:
    """``A B`` known to be symmetric: its lower triangle by blocks, at half the cost."""
    m = len(A)
    C = torch.empty_like(A)
    for i in range(0, m, BLOCK):
        j = min(i + BLOCK, m)
        C[i:, i:j] = A[i:] @ B[:, i:j]
        C[i:j, j:] = C[j:, i:j].mT
    return C
