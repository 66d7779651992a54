"""Exchanging nodes with candidates, by updates of rank two (MATHS 2.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from bo_stream.mathematics.data_nodes.prior import Projection
from bo_stream.mathematics.data_nodes.state import NodeState

__all__ = ["NodeExchange"]

TINY = 1e-300
"""Replaces zero in divisions."""


@dataclass
class NodeExchange:
    """Working copies of statistics and projections, changed in place.

    Attributes:
        A, b, w1: The statistics, as in the state.
        inverse: ``K(Z, Z)^-1``, ``o x m x m``.
        G: ``k(Z, X)``, ``o x m x q``.
        W: ``K^-1 G``, the candidates' rows, transposed.
        rho: The candidates' conditional variances, ``o x q``.
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
        """Before any exchange: O(m^3)."""
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

    def replace_node(self, j: int, i: int, k: Tensor, variance: Tensor) -> None:
        """Replace node j by candidate i; node j's rows are projected on the other nodes.

        Args:
            j: The node.
            i: The candidate.
            k: The candidate's kernel with all candidates, ``o x q``.
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
        v = self.W[:, :, i] + t * w[:, i, None]  # the candidate's row, without j
        s = self.rho[:, i].clone()
        cov = k - (v.unsqueeze(-2) @ self.G).squeeze(-2)
        v[:, j] = -1.0
        left = torch.stack([t, v / s.unsqueeze(-1)], -1)
        self.inverse.baddbmm_(left, torch.stack([column, v], -2))
        self.W.baddbmm_(left, torch.stack([w, -cov], -2))
        self.rho -= cov.square() / s.unsqueeze(-1)
        self.G[:, j], self.own[:, j] = k, variance

    def _pass_on(self, j: int, t: Tensor) -> None:
        """``T'A T``, ``T'b`` and ``T'w1`` with ``T = [I; t']``; row and column j become zero."""
        half = self.A[:, j] + 0.5 * self.A[:, j, j, None] * t
        self.A.baddbmm_(torch.stack([t, half], -1), torch.stack([half, t], -2))
        self.A[:, j], self.A[:, :, j] = 0.0, 0.0
        for sums in (self.b, self.w1):
            sums += t * sums[:, j, None]
            sums[:, j] = 0.0
