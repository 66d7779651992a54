"""Evidence from sufficient statistics, with closed-form gradients [WISKI, MATHS 2.3 and 2.4].

With a root ``K = R R'``, the matrix ``Q = I + R' A R / s2`` needs no inverse of K and no difference
of near-equal matrices. A `Root` applies ``R`` and ``R'``, and turns a gradient in ``R^-1 dK R^-T``
into one in the kernel values that the root was made from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bo_stream.mathematics.evidence import OutputStatistics, attach

__all__ = ["RootFactorisation", "Root", "OutputStatistics", "attach", "factorise"]


class Root(Protocol):
    """A root ``R`` of the prior covariance of the coefficients of W, without gradient."""

    def left(self, M: Tensor) -> Tensor:
        """``R M`` for ``m x p`` M."""
        ...

    def left_t(self, M: Tensor) -> Tensor:
        """``R' M``."""
        ...

    def project(self, A: Tensor) -> Tensor:
        """``R' A R`` for the statistics A; only its lower triangle is used."""
        ...

    def lift(self, Q_inv: Tensor) -> Tensor:
        """``R Q^-1 R'``."""
        ...

    def gradient(self, Y: Tensor) -> list[Tensor]:
        """Gradient of ``1/2 tr(Y R^-1 dK R^-T)`` in the tensors the root was made from."""
        ...


@dataclass(frozen=True)
class RootFactorisation:
    """RootFactorisation of Q, kept for the posterior at the same hyperparameters."""

    root: Root
    L: Tensor
    Q_inv: Tensor
    q: Tensor
    mean: Tensor

    def node_values(self) -> tuple[Tensor, Tensor]:
        """``m_u`` (with the constant mean added) and ``S_u = R Q^-1 R'`` of MATHS 2.3."""
        S = self.root.lift(self.Q_inv)
        return self.root.left(self.q.unsqueeze(-1)).squeeze(-1) + self.mean, S


def factorise(
    root: Root, stats: OutputStatistics, s2: Tensor, c: Tensor, profile_mean: bool
) -> tuple[Tensor, list[Tensor], RootFactorisation]:
    """Log evidence, its gradients in ``(s2, c, *root's tensors)``, and the factorisation.

    With ``profile_mean`` the constant mean is first set to its optimum (MATHS 2.4). Costs ``R'AR``,
    one Cholesky factor and one inverse of ``Q``, whatever n is.
    """
    n, y1, one = stats.n, stats.y1, stats.one
    m = stats.A.shape[-1]
    Q = root.project(stats.A).div_(s2)
    Q.diagonal().add_(1.0)
    L = torch.linalg.cholesky(Q)
    G = root.left_t(torch.stack([stats.b, stats.w1], -1)) / s2
    H = torch.linalg.solve_triangular(L, G, upper=False)
    cross, ones = y1 / s2 - H[:, 1] @ H[:, 0], one / s2 - H[:, 1] @ H[:, 1]
    if profile_mean and bool(n > 0):
        c = cross / ones  # (1' Sigma^-1 y) / (1' Sigma^-1 1)
    h = H[:, 0] - c * H[:, 1]
    hh = h @ h
    yy = stats.yy - 2.0 * c * y1 + c * c * one
    logdet = n * s2.log() + stats.ld + 2.0 * L.diagonal().log().sum()
    value = -0.5 * (n * math.log(2.0 * math.pi) + logdet + yy / s2 - hh)
    Q_inv = torch.cholesky_inverse(L)
    q = torch.linalg.solve_triangular(L.mT, h.unsqueeze(-1), upper=True).squeeze(-1)
    # R'p = q and R'P R = I - Q^-1, so that 1/2 (p' dK p - tr(P dK)) = 1/2 tr(Y R^-1 dK R^-T)
    residual = yy - s2 * (hh + q @ q)
    d_s2 = 0.5 * residual / s2**2 - 0.5 * (n - m + Q_inv.diagonal().sum()) / s2
    d_c = cross - c * ones
    Y = torch.addr(Q_inv, q, q)
    Y.diagonal().sub_(1.0)
    return value, [d_s2, d_c, *root.gradient(Y)], RootFactorisation(root, L, Q_inv, q, c)
