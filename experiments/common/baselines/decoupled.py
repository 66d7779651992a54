"""A GP with a basis for the mean and another for the covariance, and gradients of its bound.

[SVDGP] Cheng, Boots 2017, Variational Inference for Gaussian Process Models with Linear Complexity;
as corrected in MATHS 6.1 to 6.3. The form of the paper, for stochastic gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

__all__ = ["Decoupled", "gradients", "grown", "moments"]


@dataclass(frozen=True, eq=False)
class Decoupled:
    """A law over functions, of prior mean zero.

    Attributes:
        alpha: Mean basis, ``M_a x d``.
        a: Its coefficients, ``M_a``.
        beta: Covariance basis, ``M_b x d``.
        L: Root of ``B = L L'``, ``M_b x M_b``.
    """

    alpha: Tensor
    a: Tensor
    beta: Tensor
    L: Tensor


def moments(q: Decoupled, kernel: Kernel, X: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the function at ``n x d`` points, ``n`` each (MATHS 6.1)."""
    S = torch.linalg.solve_triangular(
        _factor(q, kernel(q.beta, q.beta).to_dense()),
        q.L.mT @ kernel(q.beta, X).to_dense(),
        upper=False,
    )
    mean = kernel(X, q.alpha).to_dense() @ q.a
    return mean, kernel(X, diag=True) - S.square().sum(0)


def gradients(
    q: Decoupled,
    kernel: Kernel,
    noise: float,
    X: Tensor,
    y: Tensor,
    total: int,
    columns: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients of the bound in ``a`` and ``L`` (MATHS 6.3), without a graph.

    O(N_m M_a + s M_a + N_m M_b^2 + M_b^3) for a minibatch of N_m rows and s columns: linear in the
    mean basis. Unbiased, if rows and columns are drawn uniformly.

    Args:
        q: The law.
        kernel: The prior's.
        noise: Variance.
        X: Minibatch, ``N_m x d``.
        y: Its targets less the prior mean, ``N_m``.
        total: Rows that the minibatch stands for.
        columns: Indices of the s columns of ``K_alpha`` that stand for all; None: all, O(M_a^2).
    """
    scale, K_x = total / len(X), kernel(X, q.alpha).to_dense()
    g_m = scale / noise * (y - K_x @ q.a)
    if columns is None:
        K_a = kernel(q.alpha, q.alpha).to_dense() @ q.a
    else:
        drawn = kernel(q.alpha, q.alpha[columns]).to_dense() @ q.a[columns]
        K_a = len(q.a) / len(columns) * drawn
    K, K_bx = kernel(q.beta, q.beta).to_dense(), kernel(q.beta, X).to_dense()
    root = torch.linalg.solve_triangular(_factor(q, K), q.L.mT, upper=False)
    C = K - (root @ K).mT @ (root @ K)  # (I + K B)^-1 K
    P = K_bx - (root @ K).mT @ (root @ K_bx)  # (I + K B)^-1 K_bx
    d_B = 0.5 * (scale / noise * P @ P.mT - (C @ q.L) @ (C @ q.L).mT)
    return K_x.mT @ g_m - K_a, 2.0 * d_B @ q.L


def grown(q: Decoupled, alpha: Tensor, beta: Tensor, noise: float) -> Decoupled:
    """The law with points added to both bases.

    The mean stays as it is; the covariance is that given an observation at each new point of its
    basis (MATHS 6.6), for new columns of zeros would be a saddle (E-S4).
    """
    start = torch.eye(len(beta), dtype=q.L.dtype) / noise**0.5
    return replace(
        q,
        alpha=torch.cat([q.alpha, alpha]),
        a=torch.cat([q.a, q.a.new_zeros(len(alpha))]),
        beta=torch.cat([q.beta, beta]),
        L=torch.block_diag(q.L, start),
    )


def _factor(q: Decoupled, K: Tensor) -> Tensor:
    """``chol(I + L'K L)``."""
    H = q.L.mT @ K @ q.L
    return torch.linalg.cholesky(H + torch.eye(len(H), dtype=H.dtype))
