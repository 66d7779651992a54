"""Log evidence from a factor of the data's covariance, and from sufficient statistics.

The evidence from statistics has closed-form gradients [WISKI, MATHS 2.3 and 2.4]. With a root ``K =
R R'`` of the prior covariance, the matrix ``Q = I + R'A R / s2`` needs no inverse of K and no
difference of near-equal matrices. The statistics are put under the root: ``R'A R``, ``R'b`` and
``R'w1`` are those of features whose prior covariance is the identity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bo_stream.mathematics.autograd import attach
from bo_stream.mathematics.kernels import Prior, cross_kernel
from bo_stream.mathematics.linalg import (
    REPAIR,
    chol_psd,
    congruence,
    flushed,
    inverse_factor,
    lower_factor,
)
from bo_stream.mathematics.shapes import Rows

__all__ = [
    "Factorisation",
    "OutputStatistics",
    "covariance_evidence",
    "diagonal_evidence",
    "factorise",
    "factorise_diagonal",
    "log_evidence",
    "root_gradient",
    "rows_evidence",
    "under_root",
]


def log_evidence(L: Tensor, Y: Tensor, mean: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The log evidence summed over outputs, 0-dim, differentiable: O(n^2) given the factor.

    Args:
        L: Cholesky factor of the covariance, noise included, ``o x n x n``.
        Y: Targets, ``o x n``.
        mean: Constant means, ``o``; None for the optimal ones, which carry no gradient.

    Returns:
        The log evidence, and the optimal means (``o``) if ``mean`` is None.
    """
    targets = torch.stack([Y, torch.ones_like(Y)], -1)
    H = torch.linalg.solve_triangular(L, targets, upper=False)
    best = None
    if mean is None:
        mean = best = ((H[..., 1] * H[..., 0]).sum(-1) / H[..., 1].square().sum(-1)).detach()
    w = H[..., 0] - mean.unsqueeze(-1) * H[..., 1]
    logdet = 2.0 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    n = Y.shape[-1]
    return -0.5 * (w.square().sum(-1) + logdet + n * math.log(2.0 * math.pi)).sum(), best


def covariance_evidence(
    C: Tensor, L: Tensor, Y: Tensor, mean: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """As `log_evidence`, with a closed-form gradient in the covariance and the means.

    Args:
        C: Covariance, noise included, ``o x n x n``.
        L: Its Cholesky factor.
        Y: As for `log_evidence`.
        mean: As for `log_evidence`.
    """
    with torch.no_grad():
        value, best = log_evidence(L, Y, mean)
        e = Y - torch.as_tensor(best if mean is None else mean).unsqueeze(-1)
        alpha = torch.cholesky_solve(e.unsqueeze(-1), L)
        G = 0.5 * (alpha @ alpha.mT - torch.cholesky_inverse(L))
    slopes = [(C, G)] if mean is None else [(C, G), (mean, alpha.sum((-1, -2)))]
    return attach(value, *zip(*slopes, strict=True)), best


def rows_evidence(rows: Rows, prior: Prior, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
    """The exact log evidence of rows, summed over outputs, 0-dim, with a closed-form gradient, and
    the optimal constant means if they were asked for: O(n^3).

    Args:
        rows: The observations.
        prior: The hyperparameters, differentiable.
        profile_mean: Take the optimal constant means instead, and return them.
    """
    noise = prior.s2.unsqueeze(-1) * rows.R
    C = cross_kernel(prior.kernel, rows.X, rows.X) + noise.diag_embed()
    mean = None if profile_mean and len(rows) else prior.mean
    return covariance_evidence(C, chol_psd(C.detach(), least=REPAIR), rows.Y, mean)


@dataclass(frozen=True)
class OutputStatistics:
    """The statistics of one output (MATHS 2.2), with the number of observations or their weight."""

    A: Tensor
    b: Tensor
    yy: Tensor
    ld: Tensor
    n: Tensor
    w1: Tensor
    y1: Tensor
    one: Tensor


@dataclass(frozen=True)
class Factorisation:
    """Factorisation of ``Q = I + r A r / s2`` of features with prior standard deviations ``r``.

    Attributes:
        stats: The statistics; of A, only the lower triangle is used.
        s2: Noise scale, 0-dim.
        L: Cholesky factor of Q.
        H: ``L^-1 r [b, w1] / s2``, ``m x 2``.
        mean: Constant mean, counted from the statistics' origin.
    """

    stats: OutputStatistics
    s2: Tensor
    L: Tensor
    H: Tensor
    mean: Tensor

    @property
    def h(self) -> Tensor:
        """``L^-1 r b / s2`` for outcomes less the mean."""
        return self.H[:, 0] - self.mean * self.H[:, 1]

    @property
    def q(self) -> Tensor:
        """``Q^-1 r b / s2``: the coefficients' posterior mean in units of r."""
        return torch.linalg.solve_triangular(self.L.mT, self.h.unsqueeze(-1), upper=True)[:, 0]

    @property
    def squares(self) -> Tensor:
        """``sum_i (y_i - mean)^2 / r_i``."""
        stats, c = self.stats, self.mean
        return stats.yy - 2.0 * c * stats.y1 + c * c * stats.one

    def value(self) -> Tensor:
        """Log evidence, 0-dim."""
        n, h = self.stats.n, self.h
        logdet = n * self.s2.log() + self.stats.ld + 2.0 * self.L.diagonal().log().sum()
        return -0.5 * (n * math.log(2.0 * math.pi) + logdet + self.squares / self.s2 - h @ h)

    def gradients(self) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients in the noise scale and in the mean, and the matrix ``Y = Q^-1 + q q' - I``.

        The gradient in a kernel value with derivative ``dK`` is ``1/2 tr(Y R^-1 dK R^-T)``.
        """
        q, inverse = self.q, torch.cholesky_inverse(self.L)
        Y = torch.addr(inverse, q, q)
        Y.diagonal().sub_(1.0)
        return *self._slopes(q, inverse.diagonal()), Y

    def diagonal_gradients(self) -> tuple[Tensor, Tensor, Tensor]:
        """As `gradients`, with only the diagonal of Y: half the cost."""
        q, inverse = self.q, inverse_factor(self.L).square().sum(0)
        return *self._slopes(q, inverse), inverse + q.square() - 1.0

    def _slopes(self, q: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients in the noise scale and in the mean, from the diagonal of ``Q^-1``."""
        stats, s2, h = self.stats, self.s2, self.h
        residual = self.squares - s2 * (h @ h + q @ q)
        trace = stats.n - len(q) + inverse.sum()
        d_s2 = 0.5 * (residual / s2**2 - trace / s2)
        return d_s2, stats.y1 / s2 - self.H[:, 1] @ h - self.mean * stats.one / s2


def factorise(
    stats: OutputStatistics,
    s2: Tensor,
    c: Tensor,
    profile_mean: bool,
    roots: Tensor | None = None,
) -> Factorisation:
    """The factorisation at some hyperparameters: one Cholesky factor, whatever n is.

    Args:
        stats: The statistics of one output; of A, only the lower triangle is used.
        s2: Noise scale, 0-dim.
        c: Constant mean, counted from the statistics' origin.
        profile_mean: Take the optimal constant mean instead (MATHS 2.4).
        roots: Standard deviations of the features under the prior, ``m``; ones if left out.
    """
    r = torch.ones_like(stats.b) if roots is None else roots
    L = lower_factor(lambda: _precision(stats.A, r * s2.rsqrt()))
    G = (r / s2).unsqueeze(-1) * torch.stack([stats.b, stats.w1], -1)
    H = torch.linalg.solve_triangular(L, G, upper=False)
    if profile_mean and bool(stats.n > 0):  # (1' Sigma^-1 y) / (1' Sigma^-1 1)
        ones = H[:, 1]
        c = (stats.y1 / s2 - ones @ H[:, 0]) / (stats.one / s2 - ones @ ones)
    return Factorisation(stats, s2, L, H, c)


def _precision(A: Tensor, r: Tensor) -> Tensor:
    """``I + diag(r) A diag(r)``."""
    Q = (r.unsqueeze(-1) * A).mul_(r)
    Q.diagonal().add_(1.0)
    return Q


def factorise_diagonal(
    stats: Sequence[OutputStatistics], logs: Tensor, s2: Tensor, c: Tensor, profile_mean: bool
) -> tuple[Tensor, list[Factorisation]]:
    """Roots of the features' prior variances, ``o x f``, and the factorisation of every output.

    Args:
        stats: The statistics of each output.
        logs: Logarithms of the features' prior variances, ``o x f``.
        s2: Noise scales, ``o``.
        c: Constant means, counted from the statistics' origin, ``o``.
        profile_mean: Take the optimal constant means instead (MATHS 2.4).
    """
    r = flushed((0.5 * logs).exp())
    each = zip(stats, s2, c, r, strict=True)
    return r, [factorise(sums, s, mean, profile_mean, root) for sums, s, mean, root in each]


def diagonal_evidence(
    factors: Sequence[Factorisation],
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Log evidence summed over outputs, its gradients, and the constant means, ``o``.

    Costs one triangular inverse for each output.

    Returns:
        Gradients in noise scales and means, ``o`` each, and in the logarithms of the prior
        variances, ``o x f``.
    """
    slopes = zip(*(f.diagonal_gradients() for f in factors), strict=True)
    d_s2, d_c, d_logs = map(torch.stack, slopes)
    value, means = sum(f.value() for f in factors), torch.stack([f.mean for f in factors])
    return torch.as_tensor(value), [d_s2, d_c, 0.5 * d_logs], means


def under_root(stats: OutputStatistics, R: Tensor) -> OutputStatistics:
    """The statistics of features of unit prior covariance.

    Args:
        stats: Statistics of values whose prior covariance is ``R R'``.
        R: Lower triangular, ``m x m``.
    """
    b, w1 = (R.mT @ torch.stack([stats.b, stats.w1], -1)).unbind(-1)
    return replace(stats, A=congruence(R, stats.A), b=b, w1=w1)


def root_gradient(R: Tensor, Y: Tensor) -> Tensor:
    """The gradient ``1/2 R^-T Y R^-1`` in a kernel matrix ``R R'``; `Factorisation.gradients`."""
    half = torch.linalg.solve_triangular(R.mT, Y, upper=True)
    return torch.linalg.solve_triangular(R, half, upper=False, left=False).mul_(0.5)
