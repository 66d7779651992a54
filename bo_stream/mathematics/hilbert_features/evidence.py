"""Evidence on sine features, with closed-form gradients (MATHS 2.3, 2.4, 2.9)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.linalg import lapack
from torch import Tensor

from bo_stream.mathematics.evidence import OutputStatistics, attach

__all__ = ["DiagonalFactorisation", "factorise", "hilbert_evidence"]

ROUNDING = 1e-13
"""Share of the largest entry that is added to the diagonal of a matrix that does not factorise."""
TINY = 1e-50
"""Relative size below which roots of variances are set to zero: subnormal numbers are slow."""


@dataclass(frozen=True)
class DiagonalFactorisation:
    """Factorisation of ``Q = I + R A R / s2`` for a diagonal prior covariance ``R^2``.

    Attributes:
        stats: The statistics.
        r: The diagonal of R, ``f``.
        s2: Noise scale, 0-dim.
        L: Cholesky factor of Q.
        H: ``L^-1 R [b, W'R^-1 1] / s2``, ``f x 2``.
        mean: Constant mean, counted from the statistics' origin.
    """

    stats: OutputStatistics
    r: Tensor
    s2: Tensor
    L: Tensor
    H: Tensor
    mean: Tensor

    @property
    def h(self) -> Tensor:
        """``L^-1 R b / s2`` for outcomes less the mean."""
        return self.H[:, 0] - self.mean * self.H[:, 1]

    @property
    def q(self) -> Tensor:
        """``Q^-1 R b / s2``: the coefficients' posterior mean in units of R."""
        return torch.linalg.solve_triangular(self.L.mT, self.h.unsqueeze(-1), upper=True)[:, 0]

    @property
    def squares(self) -> Tensor:
        """``sum_i (y_i - mean)^2 / r_i``."""
        stats, c = self.stats, self.mean
        return stats.yy - 2.0 * c * stats.y1 + c * c * stats.one

    def value(self) -> Tensor:
        """Log evidence, 0-dim."""
        stats, n = self.stats, self.stats.n
        logdet = n * self.s2.log() + stats.ld + 2.0 * self.L.diagonal().log().sum()
        fit = self.squares / self.s2 - self.h.square().sum()
        return -0.5 * (n * math.log(2.0 * math.pi) + logdet + fit)

    def gradients(self) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients in the noise scale, the mean and the logarithms of the prior variances.

        Costs the inverse of one triangular matrix.
        """
        stats, s2, h, q = self.stats, self.s2, self.h, self.q
        inverse = _inverse_diagonal(self.L)
        residual = self.squares - s2 * (h @ h + q @ q)
        d_s2 = 0.5 * residual / s2**2 - 0.5 * (stats.n - len(q) + inverse.sum()) / s2
        d_c = stats.y1 / s2 - self.H[:, 1] @ h - self.mean * stats.one / s2
        return d_s2, d_c, 0.5 * (inverse + q * q - 1.0)


def factorise(
    stats: OutputStatistics, logs: Tensor, s2: Tensor, c: Tensor, profile_mean: bool
) -> DiagonalFactorisation:
    """The factorisation at some hyperparameters: one Cholesky factor of an ``f x f`` matrix.

    Args:
        stats: The statistics; of A, only the lower triangle is used.
        logs: Logarithms of the features' prior variances, ``f``.
        s2: Noise scale, 0-dim.
        c: Constant mean, counted from the statistics' origin.
        profile_mean: Take the optimal constant mean instead (MATHS 2.4).
    """
    r = (0.5 * logs).exp()
    r = torch.where(r < TINY * r.max(), 0.0, r)
    L = _cholesky(stats.A, r * s2.rsqrt())
    G = (r / s2).unsqueeze(-1) * torch.stack([stats.b, stats.w1], -1)
    H = torch.linalg.solve_triangular(L, G, upper=False)
    if profile_mean and bool(stats.n > 0):
        ones = H[:, 1]
        c = (stats.y1 / s2 - ones @ H[:, 0]) / (stats.one / s2 - ones @ ones)
    return DiagonalFactorisation(stats, r, s2, L, H, c)


def hilbert_evidence(
    stats: Sequence[OutputStatistics], logs: Tensor, s2: Tensor, c: Tensor, profile_mean: bool
) -> tuple[Tensor, Tensor]:
    """Log evidence summed over outputs, differentiable (once), and the constant means.

    Costs one Cholesky factor and one triangular inverse of an ``f x f`` matrix for each output.

    Args:
        stats: The statistics of each output.
        logs: Logarithms of the features' prior variances, ``o x f``.
        s2: Noise scales, ``o``.
        c: Constant means, counted from the statistics' origin, ``o``.
        profile_mean: Take the optimal constant means instead.
    """
    values, means = [], []
    for own, log, scale, mean in zip(stats, logs, s2, c, strict=True):
        with torch.no_grad():
            made = factorise(own, log.detach(), scale.detach(), mean.detach(), profile_mean)
            value, gradients = made.value(), made.gradients()
        values.append(attach(value, [scale, mean, log], gradients))
        means.append(made.mean)
    return torch.stack(values).sum(), torch.stack(means)


def _cholesky(A: Tensor, scale: Tensor) -> Tensor:
    """The lower Cholesky factor of ``I + S A S`` for a diagonal S.

    Where rounding errors of A exceed the one, a share of the largest entry is added to the
    diagonal.

    Raises:
        torch.linalg.LinAlgError: if that does not help.
    """
    Q = (scale.unsqueeze(-1) * A).mul_(scale)
    Q.diagonal().add_(1.0)
    if Q.device.type == "cpu":  # the rows of a tensor are the columns of LAPACK
        upper, info = lapack.dpotrf(Q.numpy().T, lower=0, clean=1, overwrite_a=1)
        if not info:
            return torch.from_numpy(upper.T)
    else:
        L, failed = torch.linalg.cholesky_ex(Q)
        if not bool(failed):
            return L
    Q = (scale.unsqueeze(-1) * A).mul_(scale)
    Q.diagonal().add_(1.0 + ROUNDING * Q.diagonal().max())
    return torch.linalg.cholesky(Q)


def _inverse_diagonal(L: Tensor) -> Tensor:
    """The diagonal of ``(L L')^-1``: column norms of the inverse of L."""
    if L.device.type == "cpu":  # as torch has no inverse of triangular matrices
        upper, _ = lapack.dtrtri(L.numpy().T, lower=0)
        inverse = torch.from_numpy(upper.T)
    else:
        eye = torch.eye(len(L), dtype=L.dtype, device=L.device)
        inverse = torch.linalg.solve_triangular(L, eye, upper=False)
    return inverse.square().sum(0)
