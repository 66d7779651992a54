"""The posterior process of an online sparse GP (MATHS 3.4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.mathematics.inducing.state import SGPRState, dense, eye, factor_B, solve
from bo_stream.mathematics.posterior.expansion import Expansion, on_nodes
from bo_stream.mathematics.posterior.factor import FactorGaussian, cross_kernel
from bo_stream.mathematics.posterior.paths import prior_path, solved, times
from bo_stream.mathematics.posterior.pool import ExpandedProcess
from bo_stream.mathematics.posterior.process import Path

__all__ = ["SparseProcess", "predict"]


def predict(state: SGPRState, kernel: Kernel, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and covariance factors of the latent at X, ``... x q x d`` (MATHS 3.4).

    Args:
        state: The state.
        kernel: The kernel of that state.
        X: The points.

    Returns:
        ``mean (... x q)``, ``A (... x M x q)``, ``V (... x M x q)``: the covariance is ``K(X, X) -
        A'A + V'V``. O(M^3) once and O(q M^2).
    """
    L_B, beta, _ = factor_B(state.G, state.c)
    A = solve(state.L, dense(kernel, state.Z, X))
    V = solve(L_B, A)
    mean = state.mean + (V.mT @ beta.unsqueeze(-1)).squeeze(-1)
    return mean, A, V


@dataclass(frozen=True)
class SparseProcess(ExpandedProcess):
    """Posterior of an online SGPR: covariance ``k - A'A + V'V`` (MATHS 3.4)."""

    kernel: Kernel
    state: SGPRState
    L_B: Tensor
    beta: Tensor

    @classmethod
    def of(cls, kernel: Kernel, state: SGPRState) -> SparseProcess:
        """From a state under this kernel: O(M^3)."""
        L_B, beta, _ = factor_B(state.G, state.c)
        return cls(kernel, state, L_B, beta)

    def at(self, X: Tensor) -> FactorGaussian:
        """The joint posterior at points ``batch x q x d``: O(M^2 q), in one solve for a batch."""
        s, shape = self.state, X.shape[:-1]
        K = cross_kernel(self.kernel, X.reshape(-1, X.shape[-1]), s.Z)
        A_t = torch.linalg.solve_triangular(s.L.mT, K, upper=True, left=False)
        V_t = torch.linalg.solve_triangular(self.L_B.mT, A_t, upper=True, left=False)
        mean = (s.mean + V_t @ self.beta).unflatten(-1, shape).movedim(0, -2)
        A, V = (t.unflatten(-2, shape).movedim(0, -3).mT for t in (A_t, V_t))
        return FactorGaussian(mean, X, self.kernel, A, V)

    def path(self, sample_shape: Size) -> Path:
        """Sample functions by Matheron's rule: a draw of ``f(Z)``, random features of the prior."""
        s = self.state
        mean = s.mean.unsqueeze(-1)
        prior = prior_path(self.kernel, s.Z.shape[-1], mean, sample_shape, s.Z)
        shape = (*sample_shape, 1, s.size)
        draw, own = torch.randn(2, *shape, dtype=s.Z.dtype, device=s.Z.device)
        v = solved(self.L_B.mT[None], self.beta + draw, upper=True)
        values = prior(s.Z) - s.mean + s.nugget.sqrt() * own
        weights = solved(s.L.mT[None], v - solved(s.L[None], values, upper=False), upper=True)
        return lambda X: prior(X) + times(cross_kernel(self.kernel, X, s.Z), weights)

    def expansion(self, before: Expansion | None) -> Expansion:
        """In kernels at the inducing points."""
        W = eye(self.L_B, self.state.size) - torch.cholesky_inverse(self.L_B)
        return on_nodes(self.kernel, self.state.Z, self.state.L[None], W[None], before)
