"""Sums over a fixed set of points of products of posterior covariances, for every family.

What integrated-variance acquisition functions need [MATHS 10]: with weights ``w_t`` over
points ``t``,

    ``total = sum_t w_t var(t)``        ``gram(a, b) = sum_t w_t cov(a, t) cov(t, b)``

so that the integrated variance after observing points ``f`` with noise ``D`` is
``total - tr( (cov(f, f) + D)^-1 gram(f, f) )``. No covariance among the points summed over is ever
formed. A grid needs neither the points nor the observations once its sums are made; other families
keep the law at the points and form one ``q x P`` block per call.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Protocol

import torch
from torch import Tensor

from bo_stream.grid.integral import GridIntegral
from bo_stream.grid.posterior import GridProcess
from bo_stream.posterior.conditioned import ConditionedGaussian, ConditionedProcess
from bo_stream.posterior.process import JointGaussian, PosteriorProcess
from bo_stream.posterior.subset import SubsetGaussian, SubsetProcess

__all__ = ["Integral", "PointIntegral", "integral"]

TILE = 1024
"""Points summed over at a time."""


class Integral(Protocol):
    """Sums over fixed points under one process; its arguments are laws of that process."""

    @property
    def total(self) -> Tensor:
        """Weighted sum of the variances, ``batch x o``."""
        ...

    def gram(self, a: Any, b: Any) -> Tensor:
        """``sum_t w_t cov(a, t) cov(t, b)``: ``batch x o x q x q'``."""
        ...

    def gram_diagonal(self, a: Any) -> Tensor:
        """The diagonal of ``gram(a, a)``: ``batch x o x q``."""
        ...


@singledispatch
def integral(
    process: PosteriorProcess, points: Tensor, weights: Tensor, previous: Integral | None = None
) -> Integral:
    """The sums over ``points`` under a process.

    Args:
        process: The posterior process (`ProcessModel.law`).
        points: ``P x d``, transformed space, float64.
        weights: ``P``, float64.
        previous: The same under another process of the same surrogate; what does not depend on
            the process is taken from it.
    """
    with torch.no_grad():
        tiles = [process.at(part) for part in points.split(TILE)]
        parts = weights.split(TILE)
        total = sum(((t.variance() * w).sum(-1) for t, w in zip(tiles, parts, strict=True)))
    return PointIntegral(torch.as_tensor(total), tiles, list(parts))


@dataclass(frozen=True)
class PointIntegral:
    """Sums through the ``q x P`` covariance with the points, whose laws are kept: O(P r) memory.

    A call costs O(P q (d + r)) time; r is the rank of the family's factors, n for an exact GP.
    """

    total: Tensor
    tiles: list[JointGaussian]
    weights: list[Tensor]

    def gram(self, a: JointGaussian, b: JointGaussian) -> Tensor:
        """``sum_t w_t cov(a, t) cov(t, b)``."""
        parts = []
        for tile, w in zip(self.tiles, self.weights, strict=True):
            cov = b.covariance(tile)
            weighted = (cov * w).mT
            parts.append(cov @ weighted if a is b else a.times(tile, weighted))
        return torch.stack(parts).sum(0)

    def gram_diagonal(self, a: JointGaussian) -> Tensor:
        """The diagonal of ``gram(a, a)``."""
        parts = [
            (a.covariance(tile).square() * w).sum(-1)
            for tile, w in zip(self.tiles, self.weights, strict=True)
        ]
        return torch.stack(parts).sum(0)


@dataclass(frozen=True)
class ConditionedIntegral:
    """Sums under a process given more data at points ``f``: cov is ``cov(a, b) - V_a' V_b``.

    Attributes:
        base: The sums under the process before.
        f: Law before at the conditioning points.
        L: Cholesky factor of ``cov(f, f) + D``.
        M: ``L^-1 gram(f, f) L^-T``.
    """

    base: Integral
    f: JointGaussian
    L: Tensor
    M: Tensor

    @property
    def total(self) -> Tensor:
        """Weighted sum of the variances, ``batch x o``."""
        return self.base.total - self.M.diagonal(dim1=-2, dim2=-1).sum(-1)

    def gram(self, a: ConditionedGaussian, b: ConditionedGaussian) -> Tensor:
        """``sum_t w_t cov(a, t) cov(t, b)``."""
        F_a = self._whitened(a)
        F_b = F_a if a is b else self._whitened(b)
        cross = F_a.mT @ b.V
        crossed = cross.mT if a is b else a.V.mT @ F_b
        return self.base.gram(a.base, b.base) - cross - crossed + a.V.mT @ self.M @ b.V

    def gram_diagonal(self, a: ConditionedGaussian) -> Tensor:
        """The diagonal of ``gram(a, a)``."""
        base = self.base.gram_diagonal(a.base)
        return base + (a.V * (self.M @ a.V - 2.0 * self._whitened(a))).sum(-2)

    def _whitened(self, a: ConditionedGaussian) -> Tensor:
        """``L^-1 gram(f, a)``."""
        return torch.linalg.solve_triangular(self.L, self.base.gram(self.f, a.base), upper=False)


@dataclass(frozen=True)
class SubsetIntegral:
    """Some of the outputs."""

    base: Integral
    index: list[int]

    @property
    def total(self) -> Tensor:
        """Weighted sum of the variances, ``batch x o``."""
        return self.base.total[..., self.index]

    def gram(self, a: SubsetGaussian, b: SubsetGaussian) -> Tensor:
        """``sum_t w_t cov(a, t) cov(t, b)``."""
        left = a.base
        return self.base.gram(left, left if a is b else b.base)[..., self.index, :, :]

    def gram_diagonal(self, a: SubsetGaussian) -> Tensor:
        """The diagonal of ``gram(a, a)``."""
        return self.base.gram_diagonal(a.base)[..., self.index, :]


@integral.register
def _grid(
    process: GridProcess, points: Tensor, weights: Tensor, previous: Integral | None = None
) -> Integral:
    """Carried over folds in O(q m^2); else made anew, O(P 16^d) only the first time."""
    with torch.no_grad():
        carry = process.carry
        made = carry.brought_to(process.S_u, points, weights)
        if made is None:
            if isinstance(previous, GridIntegral) and previous.same_points(points, weights):
                made = previous.under(process.S_u)
            else:
                rows = process.grid.interpolate(points)
                made = GridIntegral.over(points, weights, rows, process.S_u, process.grid)
            carry.integral, carry.updates = made, []
        return made


@integral.register
def _conditioned(
    process: ConditionedProcess,
    points: Tensor,
    weights: Tensor,
    previous: Integral | None = None,
) -> Integral:
    """Never kept: it may hold the graph of the points conditioned on."""
    before = previous.base if isinstance(previous, ConditionedIntegral) else None
    base = integral(process.base, points, weights, before)
    f, L, _ = process._update()
    half = torch.linalg.solve_triangular(L, base.gram(f, f), upper=False)
    M = torch.linalg.solve_triangular(L, half.mT, upper=False)
    return ConditionedIntegral(base, f, L, M)


@integral.register
def _subset(
    process: SubsetProcess, points: Tensor, weights: Tensor, previous: Integral | None = None
) -> Integral:
    """The base's sums over all outputs, of which some are used."""
    before = previous.base if isinstance(previous, SubsetIntegral) else None
    return SubsetIntegral(integral(process.base, points, weights, before), process.index)
