"""Posterior of a process interpolated from a grid, at fixed hyperparameters [WISKI, MATHS 2.3].

Given the mean ``m_u`` and covariance ``S_u`` of the values at the nodes, a mean takes 4^d and a
covariance 16^d entries, whatever was observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from linear_operator.operators import LinearOperator, MatmulLinearOperator
from torch import Size, Tensor

from bo_stream.mathematics.grid.integral import GridIntegral
from bo_stream.mathematics.grid.local_quadratic import quadratic
from bo_stream.mathematics.grid.nodes import Grid, Interpolation
from bo_stream.mathematics.grid.weights import weighted_rows
from bo_stream.mathematics.joint import JointGaussian
from bo_stream.mathematics.lasting import lasting_property
from bo_stream.mathematics.moments import Moments, leaf, pullback
from bo_stream.mathematics.paths import Path, times
from bo_stream.mathematics.process import PosteriorProcess

__all__ = ["GridGaussian", "GridPath", "GridProcess", "stacked"]


AT_ONCE = 2**17
"""Entries of ``W S`` computed at a time without derivatives: they fit in the processor's cache."""


@dataclass(frozen=True)
class GridGaussian(JointGaussian):
    """Joint posterior of interpolated values: covariance ``w_x' S_u w_z`` (MATHS 2.3).

    Attributes:
        mean: ``batch x o x q``.
        rows: ``w``.
        S: ``o x m x m``.
    """

    mean: Tensor
    rows: Interpolation
    S: Tensor

    @lasting_property
    def spread(self) -> Tensor:
        """``W S``, ``batch x o x q x m``."""
        return _spread(self.S, self.rows)

    def joined(self, other: GridGaussian) -> GridGaussian:
        """The joint posterior at the points of both, which have no batch."""
        index = torch.cat([self.rows.index, other.rows.index])
        rows = Interpolation(index, torch.cat([self.rows.weight, other.rows.weight]))
        both = GridGaussian(torch.cat([self.mean, other.mean], -1), rows, self.S)
        if "spread" in vars(self):
            vars(both)["spread"] = torch.cat([self.spread, other.spread], -2)
        return both

    def variance(self) -> Tensor:
        """Marginal variances, ``batch x o x q``: O(16^d) per point."""
        return quadratic(self.S, self.rows)

    def covariance(self, other: GridGaussian) -> Tensor:
        """Covariance ``batch x o x q x q'``: O(4^d m) per point of the smaller set, 4^d a pair."""
        if other is self:
            covariance: Tensor = _OwnCovariance.apply(self.rows.weight, self.rows.index, self.S)
            return covariance
        if self.rows.index.shape[:-1].numel() > other.rows.index.shape[:-1].numel():
            return other.covariance(self).mT
        picked = _picked(self.spread, other.rows.index)
        return (picked * other.rows.weight.unsqueeze(-3).unsqueeze(-3)).sum(-1)

    def operator(self) -> LinearOperator:
        """The covariance as a product ``(W S) W'``: O(q m) memory, cheap diagonal."""
        W = self.rows.dense(self.S.shape[-1]).unsqueeze(-3)
        return MatmulLinearOperator(self.spread, W.mT.expand(*W.shape[:-3], len(self.S), -1, -1))


def _spread(S: Tensor, rows: Interpolation) -> Tensor:
    """``W S``, ``batch x o x q x m``."""
    shape = rows.index.shape
    index, weight = rows.index.reshape(-1, shape[-1]).int(), rows.weight.reshape(-1, shape[-1])
    bags = [weighted_rows(s, index, weight) for s in S]
    return stacked(bags).reshape(len(S), *shape[:-1], S.shape[-1]).movedim(0, -3)


def _picked(spread: Tensor, index: Tensor) -> Tensor:
    """``batch x o x q x m`` at nodes ``batch x q' x 4^d``: ``batch x o x q x q' x 4^d``."""
    pick = index.flatten(-2).unsqueeze(-2).unsqueeze(-3)
    shape = spread.shape[:-1]
    if spread.shape[:-3] != index.shape[:-2]:
        shape = torch.broadcast_shapes(shape, (*pick.shape[:-3], 1, 1))
    picked = spread.expand(*shape, -1).gather(-1, pick.expand(*shape, -1))
    return picked.unflatten(-1, index.shape[-2:])


class _OwnCovariance(torch.autograd.Function):
    """``W S W'`` of one set of points, differentiable in its weights.

    S is symmetric, so the gradient needs only the entries already gathered.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, index: Tensor, S: Tensor) -> Tensor:
        picked = _picked(_spread(S, Interpolation(index, weight)), index)
        ctx.save_for_backward(picked, weight, index, S)
        return (picked * weight.unsqueeze(-3).unsqueeze(-3)).sum(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        picked, weight, index, S = ctx.saved_tensors
        if torch.is_grad_enabled():
            picked = _picked(_spread(S, Interpolation(index, weight)), index)
        both = (grad + grad.mT).unsqueeze(-1)
        return (both * picked).sum(-3).sum(-3), None, None


def stacked(matrices: Sequence[Tensor]) -> Tensor:
    """``torch.stack`` of per-output matrices, without a copy if there is one."""
    return matrices[0].unsqueeze(0) if len(matrices) == 1 else torch.stack(list(matrices))


@dataclass(frozen=True)
class GridPath:
    """Functions interpolated from values at the nodes, as a `Path`.

    Attributes:
        grid: The nodes.
        values: ``sample_shape x o x m``.
    """

    grid: Grid
    values: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        """Values at points ``batch x q x d``."""
        rows, values = self.grid.interpolate(X), self.values
        batch = torch.broadcast_shapes(values.shape[:-2], rows.index.shape[:-2])
        index = rows.index.flatten(-2).unsqueeze(-2).expand(*batch, values.shape[-2], -1)
        picked = values.expand(*batch, -1, -1).gather(-1, index)
        picked = picked.unflatten(-1, rows.index.shape[-2:])
        return (picked * rows.weight.unsqueeze(-3)).sum(-1)


@dataclass(frozen=True)
class GridProcess(PosteriorProcess):
    """Posterior of the values ``u`` at the nodes.

    Attributes:
        grid: The nodes.
        mean_u: Mean, ``o x m``.
        S_u: Covariance, ``o x m x m``.
    """

    grid: Grid
    mean_u: Tensor
    S_u: Tensor

    def at(self, X: Tensor) -> GridGaussian:
        """The joint posterior at points ``batch x q x d``: O(4^d) per mean."""
        rows = self.grid.interpolate(X)
        return GridGaussian(self._interpolated(self.mean_u, rows), rows, self.S_u)

    @property
    def has_moments(self) -> bool:
        """Of one output."""
        return len(self.S_u) == 1

    def moments(self, X: Tensor, *, slopes: bool, across: Any | None = None) -> Moments | None:
        """O(4^d m) per point."""
        if not self.has_moments:
            return None
        columns = None if across is None else across.spread[0].mT
        if not slopes:
            return self._values(X, columns)
        with torch.enable_grad():
            points = leaf(X, slopes)
            places = self.grid.place(points)
        index, rows = self.grid.sloped(places.detach())
        picked = self._picked(index, rows[..., 0, :])
        covariances = rows @ picked.movedim(-3, -1)
        means = (rows @ self.mean_u[0, index].unsqueeze(-1)).squeeze(-1)
        to_others = None if columns is None else rows @ columns[index]
        return Moments.of(means, covariances, pullback(places, points), to_others)

    def _values(self, X: Tensor, columns: Tensor | None) -> Moments:
        """Moments without derivatives, some points at a time.

        Args:
            X: The points.
            columns: Covariances of the nodes with other points, ``m x p``, or None.
        """
        rows = self.grid.interpolate(X)
        index, weight = rows.index, rows.weight
        mean = (self.mean_u[0, index] * weight).sum(-1)
        q, K = index.shape[-2:]
        size = max(1, AT_ONCE // (q * self.grid.m))
        parts = [t.reshape(-1, q, K).split(size) for t in (index, weight)]
        covs = [(self._picked(i, w) * w.unsqueeze(-3)).sum(-1) for i, w in zip(*parts, strict=True)]
        to_others = None
        if columns is not None:
            flat = weighted_rows(columns, index.reshape(-1, K), weight.reshape(-1, K))
            to_others = flat.view(*index.shape[:-1], 1, -1)
        return Moments(mean, torch.cat(covs).view(*index.shape[:-1], q), across=to_others)

    def _picked(self, index: Tensor, weight: Tensor) -> Tensor:
        """``S w_i`` at the nodes of j, ``batch x q x q x 4^d``."""
        return _picked(_spread(self.S_u, Interpolation(index, weight)), index).squeeze(-4)

    def path(self, sample_shape: Size) -> Path:
        """Exact sample functions: interpolated draws of the grid values."""
        S = self.S_u.clone()
        variances = S.diagonal(dim1=-2, dim2=-1)
        variances += 1e-10 * variances.mean(-1, keepdim=True)
        L = torch.linalg.cholesky(S)
        noise = torch.randn(*sample_shape, *self.mean_u.shape, dtype=L.dtype, device=L.device)
        return GridPath(self.grid, self.mean_u + times(L, noise))

    def mean_function(self) -> Path:
        """The interpolated posterior mean."""
        return GridPath(self.grid, self.mean_u)

    def plus(self, path: Path, at: Any, weights: Tensor) -> Path:
        """A function plus ``cov(x, z) w``, in the same form."""
        change = (at.spread.mT @ weights.unsqueeze(-1)).squeeze(-1)
        return replace(cast(GridPath, path), values=cast(GridPath, path).values + change)

    def _integral(self, points: Tensor, weights: Tensor) -> GridIntegral:
        """O(P 16^d) and the products of `GridIntegral`."""
        with torch.no_grad():
            rows = self.grid.interpolate(points)
            return GridIntegral.over(weights, rows, self.S_u, self.grid)

    @staticmethod
    def _interpolated(values: Tensor, rows: Interpolation) -> Tensor:
        """``values`` (``o x m``) at the rows, ``batch x o x q``."""
        return (values[:, rows.index] * rows.weight).sum(-1).movedim(0, -2)
