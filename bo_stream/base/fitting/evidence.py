"""The log evidence of Gaussian data, given a factor of their covariance."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["log_evidence"]


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
