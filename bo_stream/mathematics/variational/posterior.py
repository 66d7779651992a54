"""Posterior of the online variational GP: predictions and sample functions (MATHS 3.4, 6.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.mathematics.inducing.state import eye, solve
from bo_stream.mathematics.posterior.expansion import Expansion, on_nodes
from bo_stream.mathematics.posterior.factor import FactorGaussian, cross_kernel
from bo_stream.mathematics.posterior.paths import prior_path
from bo_stream.mathematics.posterior.pool import ExpandedProcess
from bo_stream.mathematics.posterior.process import Path
from bo_stream.mathematics.variational.state import SVGPState, factor

__all__ = ["VariationalProcess"]


@dataclass(frozen=True)
class VariationalProcess(ExpandedProcess):
    """``A_x = L^-1 k(Z, x)``, ``V_x = T' A_x``: mean ``m + A'mu``, covariance ``k - A'A + V'V``."""

    kernel: Kernel
    state: SVGPState
    L: Tensor
    nugget: Tensor
    mean: Tensor

    @classmethod
    def of(cls, kernel: Kernel, state: SVGPState, mean: Tensor) -> Self:
        """From a state, a frozen kernel and the constant mean (0-dim): O(M^3)."""
        return cls(kernel, state, *factor(state, kernel), mean)

    def at(self, X: Tensor) -> FactorGaussian:
        """The law at points ``batch x q x d``: O(M^2 q), in one solve for the whole batch."""
        s, shape = self.state, X.shape[:-1]
        K = cross_kernel(self.kernel, X.reshape(-1, X.shape[-1]), s.Z)
        A_t = torch.linalg.solve_triangular(self.L.mT, K, upper=True, left=False)
        mean = (self.mean + A_t @ s.mu).unflatten(-1, shape).movedim(0, -2)
        A, V = (t.unflatten(-2, shape).movedim(0, -3).mT for t in (A_t, A_t @ s.T))
        return FactorGaussian(mean, X, self.kernel, A, V)

    def path(self, sample_shape: Size) -> Path:
        """Sample functions by Matheron's rule: a draw of ``f(Z)``, random features of the prior."""
        s = self.state
        mean = self.mean.reshape(1)
        prior = prior_path(self.kernel, s.Z.shape[-1], mean, sample_shape, s.Z)
        draw, noise = torch.randn(
            2, *sample_shape, 1, s.size, 1, dtype=s.Z.dtype, device=s.Z.device
        )
        v = s.mu.unsqueeze(-1) + s.T @ draw
        values = prior(s.Z).unsqueeze(-1) - self.mean + self.nugget.sqrt().unsqueeze(-1) * noise
        weights = torch.linalg.solve_triangular(self.L.mT, v - solve(self.L, values), upper=True)
        return lambda X: prior(X) + (cross_kernel(self.kernel, X, s.Z) @ weights).squeeze(-1)

    def expansion(self, before: Expansion | None) -> Expansion:
        """In kernels at the inducing points."""
        W = eye(self.L, self.state.size) - self.state.T @ self.state.T.mT
        return on_nodes(self.kernel, self.state.Z, self.L[None], W[None], before)
