"""A posterior process given more data: exact Gaussian conditioning, for every family (MATHS 1).

Given a genuine Gaussian process and ``y_q = f(X_q) + eps``, the law of ``f`` given ``y_q`` costs
one law at ``X_q`` and the test points, a ``q x q`` Cholesky factor and a ``q x p`` product. The
covariance does not depend on ``y_q``: it is shared by all fantasies. Nested fantasies concatenate
their points; wrappers do not nest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from linear_operator.operators import LinearOperator, MatmulLinearOperator
from torch import Size, Tensor

from bo_stream.linalg import chol_psd
from bo_stream.posterior.process import JointGaussian, Path, PosteriorProcess

__all__ = ["ConditionedGaussian", "ConditionedProcess"]


@dataclass(frozen=True)
class ConditionedGaussian(JointGaussian):
    """Law with covariance ``cov(x, z) - V_x' V_z``, ``V = L^-1 cov(X_f, .)``."""

    mean: Tensor
    base: JointGaussian
    V: Tensor

    def variance(self) -> Tensor:
        """Marginal variances, ``batch x o x q``."""
        return self.base.variance() - self.V.square().sum(-2)

    def covariance(self, other: ConditionedGaussian) -> Tensor:
        """Covariance with another law of the same process."""
        return self.base.covariance(other.base) - self.V.mT @ other.V

    def operator(self) -> LinearOperator:
        """The covariance as an operator whose diagonal is cheap."""
        return self.base.operator() + MatmulLinearOperator(-self.V.mT, self.V)


@dataclass(frozen=True)
class ConditionedProcess:
    """A process given ``Y`` (``batch' x o x q``) at ``X`` (``batch x q x d``) with noise
    variances like ``Y``.

    Nothing is cached: each law recomputes the ``q x q`` factor, so that graphs are never shared
    between backward passes.
    """

    base: PosteriorProcess
    X: Tensor
    Y: Tensor
    noise: Tensor

    def _update(self) -> tuple[JointGaussian, Tensor, Tensor]:
        """Law at X, the factor ``L`` of ``C = cov + D``, and ``L^-1 (Y - mean)``."""
        f = self.base.at(self.X)
        L = chol_psd(f.covariance(f) + torch.diag_embed(self.noise))
        return f, L, torch.linalg.solve_triangular(L, (self.Y - f.mean).unsqueeze(-1), upper=False)

    def at(self, X: Tensor) -> ConditionedGaussian:
        """The law at points ``batch x p x d``: O(q^3 + q^2 p) beyond the base's."""
        f, L, r = self._update()
        s = self.base.at(X)
        V = torch.linalg.solve_triangular(L, f.covariance(s), upper=False)
        return ConditionedGaussian((s.mean.unsqueeze(-1) + V.mT @ r).squeeze(-1), s, V)

    def path(self, sample_shape: Size) -> Path:
        """Sample functions by Matheron's rule on the base's sample functions."""
        batch = torch.broadcast_shapes(self.X.shape[:-2], self.Y.shape[:-2])
        base = self.base.path(Size([*sample_shape, *batch]))
        values = base(self.X)
        noisy = values + self.noise.sqrt() * torch.randn_like(values)
        f, L, _ = self._update()
        weights = torch.cholesky_solve((self.Y - noisy).unsqueeze(-1), L)

        def sample(X: Tensor) -> Tensor:
            return base(X) + (self.base.at(X).covariance(f) @ weights).squeeze(-1)

        return sample
