"""Gaussian processes given the projected data S'y: the mathematics of computation-aware GPs.

[CaGP] Wenger, Wu, Hennig, Gardner, Pleiss, Cunningham 2024; MATHS 5.1, 5.2, 5.4. Pure functions
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

from bo_stream.errors import StateError
from bo_stream.mathematics.computation_aware.matrix import ActionMatrix
from bo_stream.mathematics.linalg import REPAIR, chol_psd

__all__ = ["Projected", "border", "chol_of"]


@dataclass(frozen=True)
class Projected:
    """A Gaussian process seen through S: what posterior and losses share, free of y.

    Attributes:
        S: Actions, ``n x i``.
        noise: Noise variances d_j, ``n``.
        B: K S, ``n x i``.
        L: chol(S'(K + D) S), ``i x i``.
        delta: S'D S, ``i x i``.
    """

    S: ActionMatrix
    noise: Tensor
    B: Tensor
    L: Tensor
    delta: Tensor

    @classmethod
    def of(cls, B: Tensor, S: ActionMatrix, noise: Tensor) -> Projected:
        """From B = K S and noise variances. O(n i + i^3)."""
        delta = S.gram(noise)
        return cls(S, noise, B, chol_of(S.transpose_times(B) + delta), delta)

    def weights(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """For residuals e = y - c (``n`` or ``n x p``), w = L^-1 S'e and v = L^-T w."""
        u = self.S.transpose_times(e).reshape(self.L.shape[-1], -1)
        w = torch.linalg.solve_triangular(self.L, u, upper=False)
        v = torch.linalg.solve_triangular(self.L.mT, w, upper=True)
        return w.reshape(-1, *e.shape[1:]), v.reshape(-1, *e.shape[1:])

    def elbo(self, prior_variance: Tensor, e: Tensor) -> Tensor:
        """The evidence lower bound [eq. 11; MATHS 5.2, signed as a log likelihood], 0-dim.

        Equals log p(y) - KL(posterior given S'y || exact posterior): at most the log evidence,
        and equal to it for S = I. Invariant under any change of S within its column span.
        Differentiable in everything. O(n i^2) time, O(n i) memory.

        Args:
            prior_variance: k(x_j, x_j), ``n``.
            e: Residuals y - c, ``n``.
        """
        w, v = self.weights(e)
        A = torch.linalg.solve_triangular(self.L, self.B.mT, upper=False)  # L^-1 S'K, i x n
        misfit = (e - self.B @ v).square() + prior_variance - A.square().sum(0)
        # v'S'KS v = w'w - v'delta v and tr(G^-1 S'KS) = i - tr(G^-1 delta), as S'KS = G - delta
        fit = w.square().sum() - v @ self.delta @ v
        trace = v.numel() - (torch.cholesky_inverse(self.L) * self.delta).sum()
        logs = self._logdet() - self.S.gram_logdet(self.noise) + self.noise.log().sum()
        logs = logs + e.numel() * math.log(2.0 * math.pi)
        return -0.5 * ((misfit / self.noise).sum() + fit - trace + logs)

    def log_likelihood(self, e: Tensor) -> Tensor:
        """The projected log likelihood log N(S'y; S'c, G), columns normalised [eq. 9], 0-dim.

        It sees S'y alone, not what S leaves out: for study, not recommended for training.
        """
        w, _ = self.weights(e)
        logs = self._logdet() - self.S.gram_logdet(torch.ones_like(self.noise))
        return -0.5 * (w.square().sum() + logs + w.numel() * math.log(2.0 * math.pi))

    def best_constant(self, y: Tensor) -> Tensor:
        """The constant mean c that maximises `elbo` for targets y (``n``), 0-dim.

        With e = y - c 1 the bound is a parabola in c: of r'D^-1 r + v'(G - delta)v, r = e - B v.
        """
        e = torch.stack([y, torch.ones_like(y)], -1)
        w, v = self.weights(e)
        r = e - self.B @ v
        form = r.mT @ (r / self.noise[:, None]) + w.mT @ w - v.mT @ self.delta @ v
        return form[0, 1] / form[1, 1]

    def _logdet(self) -> Tensor:
        """The log determinant of G."""
        return 2.0 * self.L.diagonal().log().sum()


def chol_of(G: Tensor, repair: bool = False) -> Tensor:
    """Lower Cholesky factor of S'(K + D) S, symmetrised: its halves were summed separately.

    With ``repair`` a failure is mended once, by a little more noise (`chol_psd`).

    Raises:
        StateError: if it is not positive definite: S without full column rank, or noise below
            rounding.
    """

    def error(row: int) -> StateError:
        return StateError(
            "S'(K + D)S positive definite",
            f"a failure at action {row} of {G.shape[-1]}",
            "Give linearly independent actions, or noise above 1e-12 of the outputscale.",
        )

    return chol_psd(0.5 * (G + G.mT), REPAIR if repair else 0.0, error)


def border(L: Tensor, cross: Tensor, corner: Tensor) -> Tensor:
    """Chol of the bordered matrix [[L L', cross'], [cross, corner]]. [MATHS 5.4]

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
    bordered[i:, i:] = chol_of(corner - L21 @ L21.mT, repair=True)
    return bordered
