"""Gaussian processes given the projected data S'y: the mathematics of computation-aware GPs.

[CaGP] Wenger, Wu, Hennig, Gardner, Pleiss, Cunningham 2024; MATHS.md 5.1, 5.2, 5.4. Pure functions
of tensors; the letters are the paper's:

    S (n x i)  actions            D = diag(noise)            e = y - c (n)         B = K S (n x i)
    G = S'(K + D) S,  L = chol(G),  w = L^-1 S'e,  v = L^-T w = G^-1 S'e,  delta = S'D S

    mean(x) = c + k(x, X) S v,   cov(x, z) = k(x, z) - V_x'V_z,   V_x = L^-1 S'k(X, x)
    [eq. 5]

The covariance is never below the exact GP's on the same data, for any S, and the ELBO never above
its log evidence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_stream.action_matrix import ActionMatrix
from bo_stream.errors import StateError

__all__ = ["Projected", "border", "chol_of", "elbo", "projected_log_likelihood"]


@dataclass(frozen=True)
class Projected:
    """What both losses share.

    Attributes:
        B: K S, ``n x i``.
        L: chol(S'(K + D) S), ``i x i``.
        w: L^-1 S'e, ``i``.
        delta: S'D S, ``i x i``.
    """

    B: Tensor
    L: Tensor
    w: Tensor
    delta: Tensor

    @classmethod
    def of(cls, B: Tensor, S: ActionMatrix, e: Tensor, noise: Tensor) -> Projected:
        """From B = K S (``n x i``), residuals and noise variances (``n``). O(n i + i^3)."""
        delta = S.gram(noise)
        L = chol_of(S.transpose_times(B) + delta)
        w = torch.linalg.solve_triangular(L, S.transpose_times(e)[:, None], upper=False)[:, 0]
        return cls(B, L, w, delta)

    def logdet(self) -> Tensor:
        """log|G|."""
        return 2.0 * self.L.diagonal().log().sum()


def chol_of(G: Tensor) -> Tensor:
    """Lower Cholesky factor of S'(K + D) S, symmetrised: its halves were summed separately.

    Raises:
        StateError: if it is not positive definite: S without full column rank, or noise below
            rounding.
    """
    L, info = torch.linalg.cholesky_ex(0.5 * (G + G.mT))
    if bool(info):
        raise StateError(
            "S'(K + D)S positive definite",
            f"a failure at action {int(info)} of {G.shape[-1]}",
            "Give linearly independent actions, or noise above 1e-12 of the outputscale.",
        )
    return L


def elbo(B: Tensor, prior_variance: Tensor, S: ActionMatrix, e: Tensor, noise: Tensor) -> Tensor:
    """The evidence lower bound [eq. 11; MATHS.md 5.2, with the sign of a log likelihood], 0-dim.

    Equals log p(y) - KL(posterior given S'y || exact posterior), so at most the log evidence, and
    equal to it for S = I. Invariant under any change of S within its column span.

    Args:
        B: K S, ``n x i``.
        prior_variance: k(x_j, x_j), ``n``.
        S: Actions, ``n x i``.
        e: Residuals y - c, ``n``.
        noise: Noise variances d_j, ``n``.

    Returns:
        The bound, differentiable in all five. O(n i^2) time, O(n i) memory.
    """
    p = Projected.of(B, S, e, noise)
    A = torch.linalg.solve_triangular(p.L, B.mT, upper=False)  # L^-1 S'K, i x n
    v = torch.linalg.solve_triangular(p.L.mT, p.w[:, None], upper=True)[:, 0]
    misfit = ((e - B @ v).square() + prior_variance - A.square().sum(0)) / noise
    # v'S'KS v = w'w - v'delta v and tr(G^-1 S'KS) = i - tr(G^-1 delta), as S'KS = G - delta
    fit = p.w.square().sum() - v @ p.delta @ v
    trace = S.num_actions - (torch.cholesky_inverse(p.L) * p.delta).sum()
    log_two_pi = e.numel() * math.log(2.0 * math.pi)
    logs = noise.log().sum() + log_two_pi + p.logdet() - S.gram_logdet(noise)
    return -0.5 * (misfit.sum() + fit - trace + logs)


def projected_log_likelihood(B: Tensor, S: ActionMatrix, e: Tensor, noise: Tensor) -> Tensor:
    """Log N(S'y; S'c, G), with normalised columns [eq. 9; MATHS.md 5.2], 0-dim.

    It sees S'y alone, not what S leaves out; good for study, not recommended for training.
    Arguments as in `elbo`.
    """
    p = Projected.of(B, S, e, noise)
    logs = p.logdet() - S.gram_logdet(torch.ones_like(noise))
    return -0.5 * (p.w.square().sum() + logs + S.num_actions * math.log(2.0 * math.pi))


def border(L: Tensor, cross: Tensor, corner: Tensor) -> Tensor:
    """Chol of the bordered matrix [[L L', cross'], [cross, corner]]. [MATHS.md 5.4]

    Args:
        L: ``i x i`` lower factor.
        cross: S2'K21 S, ``j x i``.
        corner: S2'(K22 + D2) S2, ``j x j``.

    Returns:
        ``(i + j) x (i + j)``. O(i^2 j + i j^2 + j^3).
    """
    i, j = L.shape[-1], corner.shape[-1]
    L21 = torch.linalg.solve_triangular(L, cross.mT, upper=False).mT
    bordered = L.new_zeros(i + j, i + j)
    bordered[:i, :i], bordered[i:, :i] = L, L21
    bordered[i:, i:] = chol_of(corner - L21 @ L21.mT)
    return bordered
