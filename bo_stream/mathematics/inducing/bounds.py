"""Bounds on the online bound of a batch, which VIPS uses (MATHS 4.1) [VIPS].

``L-hat(Z) <= L* <= U-hat(Z)``. ``L*`` is the log predictive density of the batch under the old
posterior, which no choice of inducing points can exceed; ``L* - L-hat = KL[q_n || q*_n]`` exactly
when the hyperparameters stay the same.
"""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.inducing.posterior import predict
from bo_stream.mathematics.inducing.state import Batch, SGPRState, dense, factor_B, solve
from bo_stream.mathematics.inducing.update import Update
from bo_stream.mathematics.linalg import chol_psd

__all__ = ["log_density", "log_noise_model", "optimal_bound", "upper_bound"]


def log_density(e: Tensor, C: Tensor) -> Tensor:
    """``log N(e; 0, C)`` for a vector of N and a covariance ``N x N``, O(N^3)."""
    L = chol_psd(C)
    quadratic = solve(L, e).square().sum()
    return -0.5 * (quadratic + e.shape[0] * math.log(2.0 * math.pi)) - L.diagonal().log().sum()


def optimal_bound(
    state: SGPRState, batch: Batch, kernel: Kernel, K: Tensor | None = None
) -> Tensor:
    """``L* = log N(y; m_o(X), k_o(X, X) + D)``, O(N^3 + N M^2).

    Args:
        state: State before the batch, rebased to the current hyperparameters.
        batch: The data.
        kernel: The kernel of the state.
        K: ``K(X, X)`` if it is known already.
    """
    mean, A, V = predict(state, kernel, batch.X)
    K = dense(kernel, batch.X) if K is None else K
    return log_density(batch.y - mean, K - A.mT @ A + V.mT @ V + torch.diag(batch.noise))


def upper_bound(out: Update, batch: Batch) -> Tensor:
    """``U-hat`` of an update that kept all old points, kernel and mean; O(N M^2 + M^3).

    The Nystroem error of the old points is zero, so only the noise of the new data is inflated, by
    the trace ``t = sum_i (k_ii - |A_i|^2)``: the log-determinant has D, the quadratic form ``D~ = D
    + t I``. (The paper's display omits the former.)
    """
    t = out.residual.sum().clamp_min(0.0)
    d = batch.noise
    A_t = out.A / (d + t)
    G_t = A_t @ out.A.mT + out.prior_G
    c_t = A_t @ out.e + out.prior_c
    _, beta_t, _ = factor_B(G_t, c_t)
    quadratic = (out.e.square() / (d + t)).sum() - beta_t.square().sum()
    log_det = 2.0 * out.L_B.diagonal().log().sum()  # log|I + G_n|
    return -0.5 * (log_det + (2.0 * math.pi * d).log().sum() + quadratic) + out.offset


def log_noise_model(batch: Batch, fallback: float) -> float:
    """``L_noise`` of MATHS 4.2: the batch under one Gaussian fitted to all targets so far.

    Args:
        batch: The batch; its ``moments`` include its own targets, and default to theirs alone.
        fallback: The variance to use if the targets so far are one, or all equal.
    """
    count, mu, M2 = batch.moments if batch.moments is not None else moments_of(batch.y)
    variance = M2 / (count - 1.0) if count > 1.0 and M2 > 0.0 else fallback
    e = batch.y - mu
    return float(-0.5 * (math.log(2.0 * math.pi * variance) + e.square() / variance).sum())


def moments_of(y: Tensor) -> tuple[float, float, float]:
    """``(n, mean, sum of squared deviations)`` of a vector."""
    if not y.shape[0]:
        return 0.0, 0.0, 0.0
    mean = y.mean()
    return float(y.shape[0]), float(mean), float((y - mean).square().sum())


def merged_moments(
    a: tuple[float, float, float], b: tuple[float, float, float]
) -> tuple[float, float, float]:
    """Moments of the union of two sets (Chan et al. 1983), free of cancellation."""
    n = a[0] + b[0]
    if n == 0.0:
        return a
    shift = b[1] - a[1]
    return n, a[1] + shift * b[0] / n, a[2] + b[2] + shift * shift * a[0] * b[0] / n
