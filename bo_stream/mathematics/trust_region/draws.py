"""Candidates of a trust region, and samples of the local process at them (MATHS 14.4).

What touches candidates is float32; the factor is float64. Draws come from torch's global generator.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bo_stream.mathematics.matern import BLOCK, matern52_product
from bo_stream.mathematics.trust_region.factor import Factor
from bo_stream.mathematics.trust_region.state import Geometry

__all__ = ["candidates", "distinct_winners", "pathwise_draws"]

MOVED = (1.0, 3.0, 8.0, 20.0)
"""Expected numbers of moved coordinates, one for each candidate at random."""
FEATURES = 512
"""Random features of a sample of the prior."""


def candidates(centre: Tensor, geometry: Geometry, size: float, count: int) -> Tensor:
    """Steps from the centre to candidates, ``count x d``: uniform in the region, masked.

    Each coordinate of a candidate moves with the candidate's own probability, at least one does.

    Args:
        centre: ``d``.
        geometry: Lengths.
        size: The region's L.
        count: Number of candidates.
    """
    d, half = len(centre), 0.5 * size * geometry.shape
    low = torch.maximum(-half, geometry.low - centre)
    high = torch.minimum(half, geometry.low + geometry.width - centre)
    steps = low + torch.rand(count, d, dtype=torch.float64).to(centre) * (high - low)
    kinds = torch.tensor([min(1.0, k / d) for k in MOVED])
    moved = torch.rand(count, d) < kinds[torch.randint(len(MOVED), (count, 1))]
    moved[torch.arange(count), torch.randint(d, (count,))] = True
    return steps * moved.to(centre.device)


def pathwise_draws(
    factor: Factor, y: Tensor, steps: Tensor, points: Tensor, lengthscales: Tensor, q: int
) -> Tensor:
    """Draw q samples of the local process at candidates, ``count x q`` float32 (Matern-5/2).

    A sample is one of the prior on 512 random features plus the correction of Matheron's rule,
    ``k(., X) C^-1 (y - m - f(X) - noise)``. O(n^2 q + count (n + 512)(d + q)).

    Args:
        factor: Of the window's covariance.
        y: The window's outcomes, ``n``.
        steps: Candidates relative to the centre, ``count x d``.
        points: The window's points relative to the centre, ``n x d``.
        lengthscales: ``d``.
        q: Number of samples.

    Returns:
        The samples in units of the square root of the amplitude, without the mean.
    """
    f32, unit = torch.float32, factor.amplitude.sqrt()
    Z, W = (points / lengthscales).to(f32), (steps / lengthscales).to(f32)
    d, like = Z.shape[1], Z
    # the spectral density of Matern-5/2 is a multivariate t of five degrees of freedom
    chi = torch.randn(5, FEATURES).square().mean(0).to(like)
    omega = torch.randn(d, FEATURES).to(like) * chi.rsqrt()
    phase = 2.0 * math.pi * torch.rand(FEATURES).to(like)
    weights = torch.randn(FEATURES, q).to(like) * math.sqrt(2.0 / FEATURES)

    def prior(A: Tensor) -> Tensor:
        blocks = A.split(BLOCK)
        return torch.cat([torch.addmm(phase, a, omega).cos_() @ weights for a in blocks])

    noise = torch.randn(len(y), q).to(like) * factor.ratios.sqrt().to(f32).unsqueeze(-1)
    gap = ((y - factor.mean) / unit).unsqueeze(-1) - (prior(Z) + noise).double()
    correction = torch.cholesky_solve(gap, factor.L).to(f32)
    return prior(W).add_(matern52_product(W, Z, correction))


def distinct_winners(values: Tensor, q: int) -> list[int]:
    """For each of q samples (columns) its best row that no earlier sample has taken."""
    best = values.topk(min(q, len(values)), 0).indices.T.tolist()
    taken: dict[int, None] = {}
    for column in best:
        taken[next(row for row in column if row not in taken)] = None
    return list(taken)
