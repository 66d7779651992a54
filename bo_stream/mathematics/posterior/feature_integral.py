"""Weighted sums over fixed points of products of covariances, on features [MATHS 10].

With ``B = sum_t w_t phi_t phi_t'``: ``total = tr(B S)`` and ``gram(a, b) = phi_a' S B S phi_b``.
Once ``B`` is known, the cost does not depend on the number of points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bo_stream.mathematics.posterior.feature_map import FeatureMap

__all__ = ["FeatureIntegral"]

TILE = 4096
"""Points whose features are computed at a time."""


@dataclass(frozen=True)
class FeatureIntegral:
    """The sums over ``P`` weighted points under one ``S``.

    Attributes:
        points: ``P x d``, transformed space.
        weights: ``P``.
        basis: The features.
        B: ``f x f``.
        S: ``o x f x f``.
        SBS: ``o x f x f``.
    """

    points: Tensor
    weights: Tensor
    basis: FeatureMap
    B: Tensor
    S: Tensor
    SBS: Tensor

    @classmethod
    def over(cls, points: Tensor, weights: Tensor, basis: FeatureMap, S: Tensor) -> FeatureIntegral:
        """Sum over the points, O(P f^2)."""
        B = S.new_zeros(S.shape[-2:])
        for X, w in zip(points.split(TILE), weights.split(TILE), strict=True):
            phi = basis.features(X)
            B.addmm_(phi.mT * w, phi)
        return cls(points, weights, basis, B, S, S @ B @ S)

    def serves(self, points: Tensor, weights: Tensor, basis: FeatureMap) -> bool:
        """Whether these are the points, weights and features summed over."""
        pairs = ((self.points, points), (self.weights, weights))
        alike = all(a.device == b.device and torch.equal(a, b) for a, b in pairs)
        return alike and basis.same_as(self.basis)

    def under(self, S: Tensor) -> FeatureIntegral:
        """The same points under another S: O(f^3), independent of P."""
        return FeatureIntegral(self.points, self.weights, self.basis, self.B, S, S @ self.B @ S)

    @property
    def total(self) -> Tensor:
        """Weighted sum of the variances, ``o``."""
        return (self.S * self.B).sum((-2, -1))

    def gram(self, a: Any, b: Any) -> Tensor:
        """``sum_t w_t cov(a, t) cov(t, b)``, ``batch x o x q x q'``."""
        right = b.phi if b.phi.ndim == 2 else b.phi.unsqueeze(-3)
        product: Tensor = a.spread(self.SBS) @ right.mT
        return product

    def gram_diagonal(self, a: Any) -> Tensor:
        """The diagonal of ``gram(a, a)``, ``batch x o x q``."""
        diagonal: Tensor = (a.spread(self.SBS) * a.phi.unsqueeze(-3)).sum(-1)
        return diagonal
