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

from bo_stream.mathematics.grid.local_quadratic import LocalEntries, SparseRows
from bo_stream.mathematics.grid.nodes import Grid, Interpolation
from bo_stream.mathematics.grid.weights import weighted_rows
from bo_stream.mathematics.lasting import lasting_property

__all__ = ["CarriedIntegral", "GridIntegral"]

BLOCK = 512
FEW = 64
"""Points up to which covariances cost less through S than through N."""
G = TypeVar("G", bound=Any)


@dataclass(eq=False)
class GridIntegral:
    """The sums over ``P`` weighted points under one ``S`` (``o x m x m``).

    Attributes:
        points: ``P x d``, transformed space.
        weights: ``P``.
        A: ``W' diag(weights) W``: at most ``7^d`` entries a row.
        S: Covariance of the grid values, ``o x m x m``.
        local: Entries of ``S A S`` between nodes of one cell.
        total: Weighted sum of the variances, ``o``.
    """

    points: Tensor
    weights: Tensor
    A: SparseRows
    S: Tensor
    local: LocalEntries
    total: Tensor
    _last: tuple[Any, Tensor] | None = field(default=None, repr=False)

    @classmethod
    def over(
        cls, points: Tensor, weights: Tensor, rows: Interpolation, S: Tensor, grid: Grid
    ) -> GridIntegral:
        """Sum over the points, O(P 16^d), then as `under`."""
        A = S.new_zeros(S.shape[-2:])
        rows.add_outer(A, weights, [])
        nodes = SparseRows.of(A)
        return cls(
            points, weights, nodes, S, LocalEntries.congruence(S, nodes, grid), nodes.trace(S)
        )

    def under(self, S: Tensor) -> GridIntegral:
        """The same points under another S: O(7^d m^2 + 8 m^(3 - 1/d)), independent of P."""
        local = LocalEntries.congruence(S, self.A, self.local.grid)
        return GridIntegral(self.points, self.weights, self.A, S, local, self.A.trace(S))

    def folded(self, S: Tensor, V: Tensor) -> GridIntegral:
        """The same points under ``S = S_old - V'V`` (V ``o x q x m``).

        O(q m^2): with ``U = V'`` and ``G = U'A U``, N becomes ``N - U U'A S_old - S_old A U U' + U
        G U'``.
        """
        B = []
        for s, v in zip(S, V, strict=True):
            AU = self.A.times(v.mT.contiguous())
            B.append(s @ AU + 0.5 * v.mT @ (v @ AU))
        local, total = self.local.less(V, torch.stack(B)), self.A.trace(S)
        new = GridIntegral(self.points, self.weights, self.A, S, local, total)
        if "N" in self.__dict__:
            new.N = torch.stack(
                [
                    N.addmm(v.mT, b.mT, alpha=-1.0).addmm_(b, v, alpha=-1.0)
                    for N, v, b in zip(self.N, V, B, strict=True)
                ]
            )
        return new

    @lasting_property
    def N(self) -> Tensor:
        """``S A S``, ``o x m x m``: O(7^d m^2 + m^3) when first asked for."""
        return torch.stack([_symmetric_product(s, self.A.times(s)) for s in self.S])

    def same_points(self, points: Tensor, weights: Tensor) -> bool:
        """Whether these are the points and weights summed over."""
        mine = (self.points, self.weights)
        return all(
            a.device == b.device and torch.equal(a, b)
            for a, b in zip(mine, (points, weights), strict=True)
        )

    def serves(self, grid: Grid, points: Tensor, weights: Tensor) -> bool:
        """Whether these are the points and weights summed over, and the nodes."""
        return self.local.grid.same_as(grid) and self.same_points(points, weights)

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


@dataclass
class CarriedIntegral:
    """The last integral of a process and the changes since, for the processes folded from it.

    Attributes:
        integral: The last one computed, or None.
        updates: ``V`` of every fold since, ``o x q x m`` each.
    """

    integral: GridIntegral | None = None
    updates: list[Tensor] = field(default_factory=list)

    def after(self, V: Tensor) -> CarriedIntegral:
        """After a fold that takes ``V'V`` from S."""
        return (
            CarriedIntegral()
            if self.integral is None
            else CarriedIntegral(self.integral, [*self.updates, V])
        )

    def brought_to(self, S: Tensor, points: Tensor, weights: Tensor) -> GridIntegral | None:
        """The integral under S, if it is over these points; else None."""
        if self.integral is None or not self.integral.same_points(points, weights):
            return None
        if self.updates:
            self.integral = self.integral.folded(S, torch.cat(self.updates, -2))
            self.updates = []
        return self.integral


def _symmetric_product(A: Tensor, B: Tensor) -> Tensor:
    """``A B`` known to be symmetric: its lower triangle by blocks, at half the cost."""
    m = len(A)
    C = torch.empty_like(A)
    for i in range(0, m, BLOCK):
        j = min(i + BLOCK, m)
        C[i:, i:j] = A[i:] @ B[:, i:j]
        C[i:j, j:] = C[j:, i:j].mT
    return C
