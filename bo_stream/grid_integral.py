"""Sums over a fixed set of points of products of covariances, on a grid [MATHS section 10].

With ``cov(x, t) = w_x' S w_t`` the sum ``sum_t w_t cov(x, t) cov(t, z)`` is ``w_x' N w_z`` with
``N = S A S`` and ``A = W_T' diag(w) W_T``: once N is known, neither the number of points summed
over nor the number of observations matters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from bo_stream.grid import Interpolation, add_outer

__all__ = ["Carry", "GridIntegral"]

BLOCK = 512
G = TypeVar("G", bound=Any)


@dataclass(frozen=True)
class GridIntegral:
    """The sums over ``P`` weighted points under one ``S`` (``o x m x m``).

    Attributes:
        points: ``P x d``, transformed space.
        weights: ``P``.
        A: ``W' diag(weights) W``, sparse ``m x m``: at most ``7^d`` entries a row.
        N: ``S A S``, ``o x m x m``.
        total: Weighted sum of the variances, ``o``.
    """

    points: Tensor
    weights: Tensor
    A: Tensor
    N: Tensor
    total: Tensor

    @classmethod
    def over(cls, points: Tensor, weights: Tensor, rows: Interpolation, S: Tensor) -> GridIntegral:
        """Accumulate the points (O(P 16^d)), then `under` S."""
        A = S.new_zeros(S.shape[-2:])
        add_outer(A, rows, weights)
        return cls(points, weights, A.to_sparse(), S, S).under(S)

    def under(self, S: Tensor) -> GridIntegral:
        """The same points under another S: O(7^d m^2 + m^3), independent of P."""
        N = [_symmetric_product(s, self.A @ s) for s in S]
        return replace(self, N=torch.stack(N), total=self._trace(S))

    def folded(self, S: Tensor, V: Tensor) -> GridIntegral:
        """The same points under ``S``, which is the S of before less ``V'V`` (V ``o x q x m``).

        O(q m^2): with ``U = V'`` and ``G = U'A U``, ``N - U U'A S_old - S_old A U U' + U G U'``
        where ``S_old = S + U U'``.
        """
        news = []
        for N, s, v in zip(self.N, S, V, strict=True):
            AU = self.A @ v.mT
            B = s @ AU + 0.5 * v.mT @ (v @ AU)
            news.append(N.addmm(v.mT, B.mT, alpha=-1.0).addmm_(B, v, alpha=-1.0))
        return replace(self, N=torch.stack(news), total=self._trace(S))

    def same_points(self, points: Tensor, weights: Tensor) -> bool:
        """Whether these are the points and weights summed over."""
        mine = (self.points, self.weights)
        return all(
            a.device == b.device and torch.equal(a, b)
            for a, b in zip(mine, (points, weights), strict=True)
        )

    def gram(self, a: G, b: G) -> Tensor:
        """``sum_t w_t cov(a, t) cov(t, b)``, ``batch x o x q x q'``: as one covariance."""
        left = replace(a, S=self.N)
        result: Tensor = left.covariance(left if a is b else replace(b, S=self.N))
        return result

    def gram_diagonal(self, a: G) -> Tensor:
        """The diagonal of ``gram(a, a)``, ``batch x o x q``: O(16^d) a point."""
        result: Tensor = replace(a, S=self.N).variance()
        return result

    def _trace(self, S: Tensor) -> Tensor:
        i, j = self.A.indices()
        return (S[:, i, j] * self.A.values()).sum(-1)


@dataclass
class Carry:
    """What a predictor hands on to the one folded from it: its integral and the changes since.

    Attributes:
        integral: The last one asked for, or None.
        updates: ``V`` of every fold since, ``o x q x m`` each.
    """

    integral: GridIntegral | None = None
    updates: list[Tensor] = field(default_factory=list)

    def after(self, V: Tensor) -> Carry:
        """The carry of the predictor whose S is less ``V'V``."""
        return Carry() if self.integral is None else Carry(self.integral, [*self.updates, V])

    def brought_to(self, S: Tensor, points: Tensor, weights: Tensor) -> GridIntegral | None:
        """The carried integral under S, kept from now on, if it is over these points."""
        if self.integral is None or not self.integral.same_points(points, weights):
            return None
        if self.updates:
            self.integral = self.integral.folded(S, torch.cat(self.updates, -2))
            self.updates = []
        return self.integral


def _symmetric_product(A: Tensor, B: Tensor) -> Tensor:
    """``A B`` known to be symmetric, its lower triangle computed by blocks: m^3 flops of 2."""
    m = len(A)
    C = torch.empty_like(A)
    for i in range(0, m, BLOCK):
        j = min(i + BLOCK, m)
        C[i:, i:j] = A[i:] @ B[:, i:j]
        C[i:j, j:] = C[j:, i:j].mT
    return C
