"""Nodes and newcomers while places change hands: rank-two updates of everything (MATHS 2.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from bo_stream.scattered.posterior import node_law
from bo_stream.scattered.prior import NodePrior, Projection
from bo_stream.scattered.state import NodeState

__all__ = ["Contest"]

TINY = 1e-300
"""Instead of zero, where something is divided by it."""


@dataclass
class Contest:
    """Working copies, changed in place, all over the same slots.

    Attributes:
        A, b, w1: The sums, as in the state.
        inverse: ``K(Z, Z)^-1``, ``o x m x m``.
        G: ``k(Z, X)``, ``o x m x q``.
        W: ``K^-1 G``: the newcomers' rows, transposed.
        rho: The newcomers' conditional variances, ``o x q``.
        u: Posterior means at the nodes, without the prior's, ``o x m``.
        own: Prior variances of the nodes, ``o x m``.
    """

    A: Tensor
    b: Tensor
    w1: Tensor
    inverse: Tensor
    G: Tensor
    W: Tensor
    rho: Tensor
    u: Tensor
    own: Tensor

    @classmethod
    def of(cls, state: NodeState, seen: Projection, prior: NodePrior) -> Self:
        """Before any place has changed hands: O(m^3)."""
        L_Q, h = node_law(state, seen.L, prior)
        q = torch.linalg.solve_triangular(L_Q.mT, h.unsqueeze(-1), upper=True)
        return cls(
            A=state.A.clone(),
            b=state.b.clone(),
            w1=state.w1.clone(),
            inverse=torch.cholesky_inverse(seen.L),
            G=seen.G.clone(),
            W=seen.W.clone(),
            rho=seen.rho.clone(),
            u=(seen.L @ q).squeeze(-1),
            own=seen.K.diagonal(dim1=-2, dim2=-1).clone(),
        )

    def scores(self) -> Tensor:
        """``loo_j exp((mu_j - mu_max) / sd(mu))`` relative to the prior variance, ``m``."""
        loo = torch.minimum(1.0 / self.inverse.diagonal(dim1=-2, dim2=-1).clamp_min(TINY), self.own)
        sd = self.u.std(-1, keepdim=True).clamp_min(TINY)
        worth = ((self.u - self.u.amax(-1, keepdim=True)) / sd).exp()
        return (loo * worth / self.own).amax(0)

    def exchange(self, j: int, i: int, k: Tensor, variance: Tensor) -> None:
        """Newcomer i in the place of node j, whose rows pass to the other nodes.

        Args:
            j: The node.
            i: The newcomer.
            k: The newcomer's kernel with all newcomers, ``o x q``.
            variance: Its prior variance, ``o``.
        """
        column, pivot = self.inverse[:, :, j].clone(), self.inverse[:, j, j].clone()
        t = -column / pivot.unsqueeze(-1)  # the value at j, of the values at the other nodes
        t[:, j], column[:, j] = 0.0, 0.0
        self._pass_on(j, t)
        w = self.W[:, j].clone()
        self.rho += w.square() / pivot.unsqueeze(-1)
        for rows in (self.inverse, self.W, self.G):
            rows[:, j] = 0.0
        self.inverse[:, :, j] = 0.0
        v = self.W[:, :, i] + t * w[:, i, None]  # the newcomer's row, without j
        s = self.rho[:, i].clone()
        cov = k - (v.unsqueeze(-2) @ self.G).squeeze(-2)
        self.u[:, j] = (v * self.u).sum(-1)
        v[:, j] = -1.0
        left = torch.stack([t, v / s.unsqueeze(-1)], -1)
        self.inverse.baddbmm_(left, torch.stack([column, v], -2))
        self.W.baddbmm_(left, torch.stack([w, -cov], -2))
        self.rho -= cov.square() / s.unsqueeze(-1)
        self.G[:, j], self.own[:, j] = k, variance

    def _pass_on(self, j: int, t: Tensor) -> None:
        """``T'A T``, ``T'b`` and ``T'w1`` with ``T = [I; t']``; an empty place j is left."""
        half = self.A[:, j] + 0.5 * self.A[:, j, j, None] * t
        self.A.baddbmm_(torch.stack([t, half], -1), torch.stack([half, t], -2))
        self.A[:, j], self.A[:, :, j] = 0.0, 0.0
        for sums in (self.b, self.w1):
            sums += t * sums[:, j, None]
            sums[:, j] = 0.0
