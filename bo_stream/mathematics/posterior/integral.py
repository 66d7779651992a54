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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from bo_stream.mathematics.posterior.gaussian import JointGaussian

__all__ = ["Integral", "PointIntegral"]

TILE = 1024
"""Points summed over at a time."""


class Integral(Protocol):
    """Sums over fixed points under one process; arguments are its joint posteriors."""

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


@dataclass(frozen=True)
class PointIntegral:
    """Sums through the ``q x P`` covariance with the points summed over: O(P r) memory.

    A call costs O(P q (d + r)) time; r is the rank of the family's factors, n for an exact GP.
    """

    total: Tensor
    tiles: list[JointGaussian]
    weights: list[Tensor]

    @classmethod
    def over(cls, at: Callable[[Tensor], JointGaussian], points: Tensor, weights: Tensor) -> Self:
        """The sums over ``points`` (``P x d``) of a process, given by its method `at`."""
        with torch.no_grad():
            tiles = [at(part) for part in points.split(TILE)]
            parts = weights.split(TILE)
            total = sum(((t.variance() * w).sum(-1) for t, w in zip(tiles, parts, strict=True)))
            return cls(torch.as_tensor(total), tiles, list(parts))

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
