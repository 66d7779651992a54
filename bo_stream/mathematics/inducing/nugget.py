"""The independent noise of inducing values, which makes their covariance positive definite."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.inducing.state import dense, diagonal

__all__ = ["factored", "split_noise"]

LEAST_NOISE = 1e-13
"""Smallest noise that double precision resolves, relative to the prior variance."""


def split_noise(noise: Tensor, variance: Tensor, jitter: float, size: int) -> tuple[Tensor, Tensor]:
    """Split the noise of points that become inducing points into their nugget and the rest.

    The nugget is the jitter, but at most half of the noise, so that data and inducing values
    together have the noise given. Noise below the resolution of double precision is raised to it.

    Args:
        noise: Noise variances, ``N``.
        variance: The mean prior variance of all inducing points, 0-dim.
        jitter: The largest nugget, relative to it.
        size: Number of inducing points, these included; rounding errors grow with it.
    """
    least = max(LEAST_NOISE, 4.0 * size * torch.finfo(torch.float64).eps)
    noise = noise.clamp_min(least * variance)
    nugget = (0.5 * noise).clamp_max(jitter * variance)
    return nugget, noise - nugget


def factored(kernel: Kernel, Z: Tensor, nugget: Tensor, jitter: float) -> tuple[Tensor, Tensor]:
    """``chol(K(Z, Z) + diag(nugget))`` and the nugget: where that of points of little noise is too
    small for this kernel, the jitter for all. O(M^3).
    """
    K = dense(kernel, Z)
    L, info = torch.linalg.cholesky_ex(K + torch.diag(nugget))
    if not bool(info):
        return L, nugget
    nugget = jitter * diagonal(kernel, Z).mean().expand_as(nugget)
    return torch.linalg.cholesky(K + torch.diag(nugget)), nugget
