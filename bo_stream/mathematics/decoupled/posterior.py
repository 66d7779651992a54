"""The posterior process of a decoupled stream (MATHS 6.8)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.mathematics.decoupled.state import DecoupledState, Hyperparameters
from bo_stream.mathematics.decoupled.update import folded_mean
from bo_stream.mathematics.inducing.state import eye
from bo_stream.mathematics.posterior.expansion import Expansion, on_nodes
from bo_stream.mathematics.posterior.factor import FactorGaussian, cross_kernel
from bo_stream.mathematics.posterior.paths import prior_path, solved, times
from bo_stream.mathematics.posterior.pool import ExpandedProcess
from bo_stream.mathematics.posterior.process import Path

__all__ = ["DecoupledProcess"]


@dataclass(frozen=True)
class DecoupledProcess(ExpandedProcess):
    """Mean ``c + A_x'h + k(x, R) w``, covariance ``k - A'A + V'V``, ``V = L_B^-1 A``.

    Attributes:
        kernel: The kernel, frozen.
        Z: Inducing points, ``M x d``.
        L: Factor of ``K(Z, Z)`` and the nugget, ``M x M``.
        nugget: ``M``.
        L_B: ``chol(I + G)``, ``M x M``.
        h: ``M``.
        X: Rows of the window, ``r x d``.
        w: Their coefficients, ``r``.
        mean: The prior mean, 0-dim.
    """

    kernel: Kernel
    Z: Tensor
    L: Tensor
    nugget: Tensor
    L_B: Tensor
    h: Tensor
    X: Tensor
    w: Tensor
    mean: Tensor

    @classmethod
    def of(cls, state: DecoupledState, prior: Hyperparameters) -> DecoupledProcess:
        """From a state under these hyperparameters: O(r M + M^2)."""
        past, own = state.past, state.window.rows()
        a = own.A @ own.w
        h = folded_mean(state) + torch.cholesky_solve(a[:, None], state.L_D)[:, 0] - a
        sparse = past.Z, past.L, past.nugget, state.L_B, h
        return cls(prior.kernel, *sparse, own.X.clone(), own.w.clone(), prior.mean)

    def at(self, X: Tensor) -> FactorGaussian:
        """The joint posterior at points ``batch x q x d``: O((M^2 + r) q), in one solve."""
        shape, flat = X.shape[:-1], X.reshape(-1, X.shape[-1])
        K = cross_kernel(self.kernel, flat, torch.cat([self.Z, self.X]))
        M = len(self.Z)
        A_t = torch.linalg.solve_triangular(self.L.mT, K[..., :M], upper=True, left=False)
        V_t = torch.linalg.solve_triangular(self.L_B.mT, A_t, upper=True, left=False)
        mean = self.mean + A_t @ self.h + K[..., M:] @ self.w
        A, V = (t.unflatten(-2, shape).movedim(0, -3).mT for t in (A_t, V_t))
        return FactorGaussian(mean.unflatten(-1, shape).movedim(0, -2), X, self.kernel, A, V)

    def path(self, sample_shape: Size) -> Path:
        """Sample functions by Matheron's rule: a draw of the values at Z, random features of the
        prior.
        """
        points, zero = torch.cat([self.Z, self.X]), torch.zeros_like(self.mean).reshape(1)
        prior = prior_path(self.kernel, self.Z.shape[-1], zero, sample_shape, points)
        shape = (*sample_shape, 1, len(self.Z))
        draw, own = torch.randn(2, *shape, dtype=points.dtype, device=points.device)
        v = solved(self.L_B.mT[None], draw, upper=True)
        values = prior(self.Z) + self.nugget.sqrt() * own
        gap = self.h + v - solved(self.L[None], values, upper=False)
        at_Z = solved(self.L.mT[None], gap, upper=True)
        weights = torch.cat([at_Z, self.w.expand(*at_Z.shape[:-1], -1)], -1)

        def sample(X: Tensor) -> Tensor:
            return self.mean + prior(X) + times(cross_kernel(self.kernel, X, points), weights)

        return sample

    def expansion(self, before: Expansion | None) -> Expansion:
        """In kernels at the inducing points."""
        W = eye(self.L_B, len(self.Z)) - torch.cholesky_inverse(self.L_B)
        return on_nodes(self.kernel, self.Z, self.L[None], W[None], before)
