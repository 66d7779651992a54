"""Nodes and newcomers while places change hands: rank-two updates of everything (MATHS 2.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from bo_stream.mathematics.data_nodes.prior import Projection
from bo_stream.mathematics.data_nodes.state import NodeState

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
        own: Prior variances of the nodes, ``o x m``.
    """

    A: Tensor
    b: Tensor
    w1: Tensor
    inverse: Tensor
    G: Tensor
    W: Tensor
    rho: Tensor
    own: Tensor

    @classmethod
    def of(cls, state: NodeState, seen: Projection) -> Self:
        """Before any place has changed hands: O(m^3)."""
        return cls(
            A=state.A.clone(),
            b=state.b.clone(),
            w1=state.w1.clone(),
            inverse=torch.cholesky_inverse(seen.L),
            G=seen.G.clone(),
            W=seen.W.clone(),
            rho=seen.rho.clone(),
            own=seen.K.diagonal(dim1=-2, dim2=-1).clone(),
        )

    def scores(self) -> Tensor:
        """``loo_j``, the variance of a node given the others, over its prior variance: ``m``."""
        loo = 1.0 / self.inverse.diagonal(dim1=-2, dim2=-1).clamp_min(TINY)
        return (torch.minimum(loo, self.own) / self.own).amax(0)

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
