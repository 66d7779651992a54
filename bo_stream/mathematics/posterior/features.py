"""Posterior of a process on features, at fixed hyperparameters (MATHS 2.3).

The coefficients of the features are Gaussian; new observations are folded in by a low-rank update.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from linear_operator.operators import LinearOperator, MatmulLinearOperator
from torch import Size, Tensor

from bo_stream.mathematics.lasting import lasting_property
from bo_stream.mathematics.linalg import chol_psd, with_jitter
from bo_stream.mathematics.posterior.expansion import Expansion
from bo_stream.mathematics.posterior.feature_integral import FeatureIntegral
from bo_stream.mathematics.posterior.feature_map import FeatureMap
from bo_stream.mathematics.posterior.gaussian import JointGaussian
from bo_stream.mathematics.posterior.integral import Integral
from bo_stream.mathematics.posterior.moments import Moments
from bo_stream.mathematics.posterior.pool import ExpandedProcess

__all__ = [
    "DenseCovariance",
    "FactoredCovariance",
    "FeatureGaussian",
    "FeaturePath",
    "FeatureProcess",
]

JITTER = 1e-10
LEAST = 1e-300
"""Added to variances, all of which may vanish."""


@dataclass(frozen=True)
class FeatureGaussian(JointGaussian):
    """Joint posterior with covariance ``phi_x' S phi_z``.

    Attributes:
        mean: ``batch x o x q``.
        phi: Features, ``batch x q x f``.
        S: Covariance of their coefficients, ``o x f x f``.
    """

    mean: Tensor
    phi: Tensor
    S: Tensor

    def spread(self, S: Tensor) -> Tensor:
        """``phi S``, ``batch x o x q x f``: one product whatever the batch."""
        shape = self.phi.shape[:-1]
        flat: Tensor = self.phi.reshape(-1, self.phi.shape[-1]) @ S
        return flat.unflatten(-2, shape).movedim(0, -3)

    def variance(self) -> Tensor:
        """Marginal variances, ``batch x o x q``: O(f^2) per point."""
        return (self.spread(self.S) * self.phi.unsqueeze(-3)).sum(-1)

    def covariance(self, other: FeatureGaussian) -> Tensor:
        """Covariance ``batch x o x q x q'``: O(f^2) per point of the smaller set, O(f) per pair."""
        if self.phi.shape[:-1].numel() > other.phi.shape[:-1].numel():
            return other.covariance(self).mT
        right = other.phi if other.phi.ndim == 2 else other.phi.unsqueeze(-3)
        return self.spread(self.S) @ right.mT

    def operator(self) -> LinearOperator:
        """The covariance as a product: O(q f) memory, cheap diagonal."""
        left = self.spread(self.S)
        right = self.phi.unsqueeze(-3).mT
        return MatmulLinearOperator(left, right.expand(*left.shape[:-2], *right.shape[-2:]))


@dataclass(frozen=True)
class DenseCovariance:
    """The covariance of coefficients.

    Attributes:
        matrix: ``o x f x f``.
    """

    matrix: Tensor

    formed = True

    @lasting_property
    def root(self) -> Tensor:
        """A lower root of the covariance with jitter."""
        C = with_jitter(self.matrix, JITTER)
        C.diagonal(dim1=-2, dim2=-1).add_(LEAST)
        return chol_psd(C)

    def colour(self, noise: Tensor) -> Tensor:
        """Draws ``o x f x p`` from standard normal ones."""
        return self.root @ noise


@dataclass(frozen=True)
class FactoredCovariance:
    """The covariance ``R (L L')^-1 R`` of coefficients, formed only if it is needed.

    Attributes:
        L: Lower triangular, ``o x f x f``.
        r: The diagonal of R, ``o x f``.
    """

    L: Tensor
    r: Tensor

    @lasting_property
    def matrix(self) -> Tensor:
        """The covariance, ``o x f x f``: O(f^3)."""
        return torch.cholesky_inverse(self.L) * self.r.unsqueeze(-1) * self.r.unsqueeze(-2)

    @property
    def formed(self) -> bool:
        """Whether the matrix has been formed."""
        return "matrix" in vars(self)

    def colour(self, noise: Tensor) -> Tensor:
        """Draws ``o x f x p`` from standard normal ones: O(p f^2)."""
        draws = torch.linalg.solve_triangular(self.L.mT, noise, upper=True)
        return self.r.unsqueeze(-1) * draws


@dataclass(frozen=True)
class FeaturePath:
    """Sample functions on features, as a `Path`.

    Attributes:
        basis: The features.
        mean: Constant prior mean, ``o``.
        weights: Coefficients, ``sample_shape x o x f``.
    """

    basis: FeatureMap
    mean: Tensor
    weights: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        """Values at points ``batch x q x d``, as in `Path`."""
        return self.mean.unsqueeze(-1) + self.weights @ self.basis.features(X).mT


@dataclass(frozen=True)
class FeatureProcess(ExpandedProcess):
    """Posterior of the coefficients ``u`` of the features.

    Attributes:
        basis: The features.
        mean: Constant prior mean, ``o``.
        mean_u: ``o x f``.
        covariance: Covariance of the coefficients, ``o x f x f``.
        folded_points: Observations folded in since the process was built.
    """

    basis: FeatureMap
    mean: Tensor
    mean_u: Tensor
    covariance: DenseCovariance | FactoredCovariance
    folded_points: int = 0

    @property
    def S_u(self) -> Tensor:
        """Covariance of the coefficients, ``o x f x f``."""
        return self.covariance.matrix

    def at(self, X: Tensor) -> FeatureGaussian:
        """The joint posterior at points ``batch x q x d``: O(f d) per mean."""
        phi = self.basis.features(X)
        return FeatureGaussian(self.mean.unsqueeze(-1) + self.mean_u @ phi.mT, phi, self.S_u)

    def moments(self, X: Tensor, *, slopes: bool) -> Moments | None:
        """O(f^2) per point."""
        if len(self.S_u) > 1:
            return None
        u, S = self.mean_u[0], self.S_u[0]
        if not slopes:
            phi = self.basis.features(X)
            spread = (phi.flatten(0, -2) @ S).view_as(phi)
            return Moments(self.mean[0] + phi @ u, spread @ phi.mT)
        rows, back = self.basis.sloped(X)
        phi = rows[..., 0, :]
        spread = (phi.reshape(-1, phi.shape[-1]) @ S).view(phi.shape)
        crossed = (rows.flatten(-3, -2) @ spread.mT).unflatten(-2, rows.shape[-3:-1])
        means = rows @ u
        means[..., 0] += self.mean[0]
        return Moments.of(means, crossed, back)

    def path(self, sample_shape: Size) -> FeaturePath:
        """Exact sample functions: draws of the coefficients."""
        outputs, f = self.mean_u.shape
        count = sample_shape.numel()
        noise = torch.randn(count, outputs, f, dtype=self.mean_u.dtype, device=self.mean_u.device)
        draws = self.covariance.colour(noise.permute(1, 2, 0)).permute(2, 0, 1)
        return FeaturePath(
            self.basis, self.mean, (self.mean_u + draws).view(*sample_shape, outputs, f)
        )

    @property
    def mean_path(self) -> FeaturePath:
        """The posterior mean as a function."""
        return FeaturePath(self.basis, self.mean, self.mean_u)

    def folded(self, X: Tensor, Y: Tensor, D: Tensor) -> FeatureProcess:
        """The process given ``Y`` (``o x q``) with noise D at these points: O(q f^2)."""
        joint = self.at(X)
        U = joint.spread(self.S_u)
        L = chol_psd(U @ joint.phi.mT + torch.diag_embed(D))
        V = torch.linalg.solve_triangular(L, U, upper=False)
        r = torch.linalg.solve_triangular(L, (Y - joint.mean).unsqueeze(-1), upper=False)
        return FeatureProcess(
            self.basis,
            self.mean,
            self.mean_u + (V.mT @ r).squeeze(-1),
            DenseCovariance(torch.baddbmm(self.S_u, V.mT, V, alpha=-1.0)),
            self.folded_points + len(X),
        )

    def integral(
        self, points: Tensor, weights: Tensor, previous: Integral | None = None
    ) -> FeatureIntegral:
        """O(P f^2) the first time; O(f^3) from an earlier one on the same features."""
        with torch.no_grad():
            if isinstance(previous, FeatureIntegral) and previous.serves(
                points, weights, self.basis
            ):
                return previous.under(self.S_u)
            return FeatureIntegral.over(points, weights, self.basis, self.S_u)

    def expansion(self, before: Expansion | None) -> Expansion:
        """In the features alone."""

        def values(X: Tensor, first: int) -> Tensor:
            if first:  # all of them are known
                return X.new_empty(1, 0, len(X))
            return self.basis.features(X).mT.unsqueeze(0)

        return Expansion(None, None, -self.S_u, values, self.basis.defining_tensors)
