"""Posterior of a Gaussian process on data nodes, at fixed hyperparameters [MATHS 2.8]."""

from __future__ import annotations

import torch
from torch import Tensor

from bo_stream.mathematics.data_nodes.prior import NodePrior, node_root
from bo_stream.mathematics.data_nodes.state import NodeState
from bo_stream.mathematics.process import KernelBasis, Process
from bo_stream.mathematics.sufficient_statistics.roots import DenseRoot

__all__ = ["node_posterior", "node_process"]


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


def node_process(state: NodeState, prior: NodePrior) -> Process:
    """The posterior from a state: O(m^3)."""
    R = node_root(prior.between(state.Z, state.Z))
    L_Q, h = node_posterior(state, R, prior)
    u = torch.linalg.solve_triangular(L_Q.mT, h.unsqueeze(-1), upper=True).squeeze(-1)
    return Process(prior.kernel, KernelBasis(prior.kernel, state.Z), R, L_Q, u, prior.mean)
