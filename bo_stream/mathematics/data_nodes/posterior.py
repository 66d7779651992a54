"""Posterior of a Gaussian process on data nodes, at fixed hyperparameters [MATHS 2.8]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Size, Tensor

from bo_stream.mathematics.data_nodes.prior import NodePrior, node_root
from bo_stream.mathematics.data_nodes.state import NodeState
from bo_stream.mathematics.posterior.expansion import Expansion, on_nodes
from bo_stream.mathematics.posterior.factor import FactorGaussian, cross_kernel
from bo_stream.mathematics.posterior.paths import prior_path, solved, times
from bo_stream.mathematics.posterior.pool import ExpandedProcess
from bo_stream.mathematics.posterior.process import Path
from bo_stream.mathematics.sufficient_statistics.roots import DenseRoot

__all__ = ["NodeProcess", "node_posterior"]


def node_posterior(state: NodeState, R: Tensor, prior: NodePrior) -> tuple[Tensor, Tensor]:
    """``L_Q`` (``o x m x m``) and ``h`` (``o x m``) of MATHS 2.3, R a root of ``K(Z, Z)``."""
    c = (prior.mean - state.origin).unsqueeze(-1)
    g = R.mT @ (state.b - c * state.w1).unsqueeze(-1)
    Q = torch.stack([DenseRoot(r).project(A) for r, A in zip(R, state.A, strict=True)])
    Q = Q / prior.s2[:, None, None]
    Q.diagonal(dim1=-2, dim2=-1).add_(1.0)
    L_Q = torch.linalg.cholesky(Q)
    h = torch.linalg.solve_triangular(L_Q, g / prior.s2[:, None, None], upper=False)
    return L_Q, h.squeeze(-1)


@dataclass(frozen=True)
class NodeProcess(ExpandedProcess):
    """Mean ``c + V_x'h``, covariance ``k(x, z) - a_x'a_z + V_x'V_z``; ``V_x = L_Q^-1 a_x``."""

    prior: NodePrior
    Z: Tensor
    R: Tensor
    L_Q: Tensor
    h: Tensor

    @classmethod
    def of(cls, state: NodeState, prior: NodePrior) -> Self:
        """From a state: O(m^3)."""
        R = node_root(prior.between(state.Z, state.Z))
        return cls(prior, state.Z, R, *node_posterior(state, R, prior))

    def at(self, X: Tensor) -> FactorGaussian:
        """The joint posterior at points ``batch x q x d``: O(m^2 q), in one solve for a batch."""
        shape, kernel = X.shape[:-1], self.prior.kernel
        K = cross_kernel(kernel, X.reshape(-1, X.shape[-1]), self.Z)
        a_t = torch.linalg.solve_triangular(self.R.mT, K, upper=True, left=False)
        V_t = torch.linalg.solve_triangular(self.L_Q.mT, a_t, upper=True, left=False)
        mean = self.prior.mean.unsqueeze(-1) + (V_t @ self.h.unsqueeze(-1)).squeeze(-1)
        a, V = (t.unflatten(-2, shape).movedim(0, -3).mT for t in (a_t, V_t))
        return FactorGaussian(mean.unflatten(-1, shape).movedim(0, -2), X, kernel, a, V)

    def path(self, sample_shape: Size) -> Path:
        """Sample functions by Matheron's rule: a draw of ``f(Z)``, random features of the prior."""
        mean, kernel = self.prior.mean, self.prior.kernel
        prior = prior_path(kernel, self.Z.shape[-1], mean, sample_shape, self.Z)
        values = prior(self.Z) - mean.unsqueeze(-1)
        v = solved(self.L_Q.mT, self.h + torch.randn_like(values), upper=True)
        weights = solved(self.R.mT, v - solved(self.R, values, upper=False), upper=True)
        return lambda X: prior(X) + times(cross_kernel(kernel, X, self.Z), weights)

    def expansion(self, before: Expansion | None) -> Expansion:
        """In kernels at the nodes."""
        W = torch.eye(self.L_Q.shape[-1]).to(self.L_Q) - torch.cholesky_inverse(self.L_Q)
        return on_nodes(self.prior.kernel, self.Z, self.R, W, before)
