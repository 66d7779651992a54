"""Weighted sums over fixed points of products of posterior covariances, for every family.

Integrated-variance acquisition functions need them [MATHS 10]. With weights ``w_t`` of points
``t``,

    ``total = sum_t w_t var(t)``        ``gram(a, b) = sum_t w_t cov(a, t) cov(t, b)``

so that the integrated variance after observing points ``f`` with noise ``D`` is
``total - tr( (cov(f, f) + D)^-1 gram(f, f) )``. Covariances among the points summed over are never
needed. On a grid the cost depends neither on these points nor on the observations; other families
keep the joint Gaussian at the points and compute one ``q x P`` block per call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, cast

import torch
from torch import Tensor

from bo_stream.mathematics.joint import Joint

__all__ = ["FeatureIntegral", "Integral", "PointIntegral"]

FEATURE_TILE = 4096
"""Points whose features are computed at a time."""

TILE = 1024
"""Points summed over at a time."""

KEPT = 2**25
"""Covariances kept between calls at most: 256 MiB."""


class Integral(Protocol):
    """Sums over fixed points under one process; arguments are its joint posteriors."""

    @property
    def total(self) -> Tensor:
        """Weighted sum of the variances, ``batch x o``."""
        ...

    def gram(self, a: Joint, b: Joint) -> Tensor:
        """``sum_t w_t cov(a, t) cov(t, b)``: ``batch x o x q x q'``."""
        ...

    def gram_diagonal(self, a: Joint) -> Tensor:
        """The diagonal of ``gram(a, a)``: ``batch x o x q``."""
        ...


@dataclass(frozen=True)
class PointIntegral:
    """Sums through the ``q x P`` covariance with the points summed over: O(P r) memory.

    A call costs O(P q (d + r)) time; r is the rank of the family's factors, n for an exact GP.

    Attributes:
        total: Weighted sum of the variances, ``batch x o``.
        tiles: Joint posteriors at the points summed over, `TILE` at a time.
        weights: Weights of the points of each tile.
        kept: The last argument of `gram_diagonal` and its covariances with each tile, if few.
    """

    total: Tensor
    tiles: list[Joint]
    weights: list[Tensor]
    kept: list[tuple[Joint, list[Tensor]]] = field(default_factory=list, compare=False)

    @classmethod
    def over(cls, at: Callable[[Tensor], Joint], points: Tensor, weights: Tensor) -> Self:
        """The sums over ``points`` (``P x d``) of a process, given by its method `at`."""
        with torch.no_grad():
            return cls.summing([at(part) for part in points.split(TILE)], weights.split(TILE))

    @classmethod
    def summing(cls, tiles: list[Joint], weights: Sequence[Tensor]) -> Self:
        """The sums over the points of some joint posteriors."""
        total = sum(((t.variance() * w).sum(-1) for t, w in zip(tiles, weights, strict=True)))
        return cls(torch.as_tensor(total), tiles, list(weights))

    def of(self, change: Callable[[Joint], Joint]) -> PointIntegral:
        """The sums over the same points, whose joint posteriors are changed."""
        with torch.no_grad():
            return PointIntegral.summing([change(tile) for tile in self.tiles], self.weights)

    def gram(self, a: Joint, b: Joint) -> Tensor:
        """``sum_t w_t cov(a, t) cov(t, b)``."""
        if a is b:
            pairs = zip(self._covariances(a), self.weights, strict=True)
            return torch.stack([cov @ (cov * w).mT for cov, w in pairs]).sum(0)
        pairs = zip(self._covariances(b), self.weights, strict=True)
        weighted = ((cov * w).mT for cov, w in pairs)
        kept = self._kept(a)
        if kept is not None:
            parts = [cov @ M for cov, M in zip(kept, weighted, strict=True)]
        else:
            parts = [a.times(tile, M) for tile, M in zip(self.tiles, weighted, strict=True)]
        return torch.stack(parts).sum(0)

    def gram_diagonal(self, a: Joint) -> Tensor:
        """The diagonal of ``gram(a, a)``. The covariances with the last ``a`` are kept, up to
        `KEPT` entries: those of a pool from which a batch is selected.
        """
        covs = self._covariances(a)
        if not a.mean.requires_grad and a.mean.numel() * sum(map(len, self.weights)) <= KEPT:
            covs = list(covs)
            self.kept[:] = [(a, covs)]
        pairs = zip(covs, self.weights, strict=True)
        return torch.stack([(cov.square() * w).sum(-1) for cov, w in pairs]).sum(0)

    def _covariances(self, a: Joint) -> Iterable[Tensor]:
        """Covariances with the points of each tile, ``batch x o x q x TILE``."""
        kept = self._kept(a)
        return (a.covariance(tile) for tile in self.tiles) if kept is None else kept

    def _kept(self, a: Joint) -> list[Tensor] | None:
        """The covariances kept of these points, if they are the last ones of any thread."""
        return next((covs for joint, covs in tuple(self.kept) if joint is a), None)


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
        cls, basis: Callable[[Tensor], Tensor], L: Tensor | None, points: Tensor, weights: Tensor
    ) -> FeatureIntegral:
        """Sum over the points: O(P r^2 + r^3).

        Args:
            basis: The functions ``a``, ``n x d`` to ``o x n x r``.
            L: Lower triangular, ``o x r x r``: ``V = L^-1 a``; None: ``V = a``.
            points: ``P x d``.
            weights: ``P``.
        """
        B = torch.zeros((), dtype=weights.dtype, device=weights.device)
        for X, w in zip(points.split(FEATURE_TILE), weights.split(FEATURE_TILE), strict=True):
            a = basis(X)
            B = B + (a * w.unsqueeze(-1)).mT @ a
        if L is None:
            return cls(B)
        half = torch.linalg.solve_triangular(L, B, upper=False)
        return cls(torch.linalg.solve_triangular(L, half.mT, upper=False))

    @property
    def total(self) -> Tensor:
        """Weighted sum of the variances, ``o``."""
        return self.M.diagonal(dim1=-2, dim2=-1).sum(-1)

    def gram(self, a: Joint, b: Joint) -> Tensor:
        """``sum_t w_t cov(a, t) cov(t, b)``, ``batch x o x q x q'``."""
        few, many = sorted((a, b), key=lambda joint: joint.mean.shape[-1])
        product = (cast(Tensor, few.plus) @ self.M) @ cast(Tensor, many.plus).mT
        return product if few is a else product.mT

    def gram_diagonal(self, a: Joint) -> Tensor:
        """The diagonal of ``gram(a, a)``, ``batch x o x q``."""
        V = cast(Tensor, a.plus)
        return ((V @ self.M) * V).sum(-1)
