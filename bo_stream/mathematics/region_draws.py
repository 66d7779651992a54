"""Samples of a trust region's local process, and points at which they are high [MATHS 14.4].

Candidates and samples are float32; the factor is float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from bo_stream.mathematics.exact import FARTHEST, Solved
from bo_stream.mathematics.region import Geometry

__all__ = ["RegionDraws", "candidates", "refined", "worth_refining"]

MOVED = (1.0, 3.0, 8.0, 20.0)
"""Expected numbers of moved coordinates, one for each candidate at random."""
FEATURES = 512
"""Random features of a sample of the prior."""
ROUNDS, TRIES, MOVED_AGAIN = 2, 20, 3.0
"""Rounds of a refinement, points tried in each, and the coordinates that these move."""
LONGEST, HALVINGS = 0.1, 4.0
"""The largest standard deviation of such a move, in sides of the region; most halvings of it."""
ROUGH = 0.01
"""Ratio of noise to amplitude above which samples are not refined."""
FEW_INPUTS = 30
"""Number of inputs above which they are not either."""
BLOCK = 256
"""Rows of a kernel matrix that are formed at once: they stay in the processor's cache."""


def candidates(centre: Tensor, geometry: Geometry, size: float, count: int) -> Tensor:
    """Steps from the centre to candidates, ``count x d``: uniform in the region, masked.

    Each coordinate of a candidate moves with the candidate's own probability, at least one does.

    Args:
        centre: ``d``.
        geometry: Lengths.
        size: The region's L.
        count: Number of candidates.
    """
    d, (low, high) = len(centre), _limits(centre, geometry, size)
    steps = low + torch.rand(count, d, dtype=torch.float64).to(centre) * (high - low)
    kinds = torch.tensor([min(1.0, k / d) for k in MOVED])
    moved = torch.rand(count, d) < kinds[torch.randint(len(MOVED), (count, 1))]
    moved[torch.arange(count), torch.randint(d, (count,))] = True
    return steps * moved.to(centre.device)


def _limits(centre: Tensor, geometry: Geometry, size: float) -> tuple[Tensor, Tensor]:
    """The least and largest steps within the region and the box, ``d`` each."""
    half = 0.5 * size * geometry.shape
    low = torch.maximum(-half, geometry.low - centre)
    return low, torch.minimum(half, geometry.low + geometry.width - centre)


@dataclass(frozen=True)
class RegionDraws:
    """Samples of the local process, in units of the square root of the amplitude, without the mean.

    A sample is one of the prior on 512 random features plus the correction of Matheron's rule,
    ``k(., X) C^-1 (y - m - f(X) - noise)``, for Matern-5/2. float32.

    Attributes:
        lengthscales: ``d``.
        points: The window's points over the lengthscales, ``n x d``.
        frequencies: ``d x 512``.
        phases: 512.
        weights: Of the features and of the window's points, ``(512 + n) x q``.
    """

    lengthscales: Tensor
    points: Tensor
    frequencies: Tensor
    phases: Tensor
    weights: Tensor

    @classmethod
    def of(cls, factor: Solved, y: Tensor, points: Tensor, lengthscales: Tensor, q: int) -> Self:
        """Draw q samples: O(n^2 q).

        Args:
            factor: Of the window's covariance.
            y: The window's outcomes, ``n``.
            points: The window's points relative to the centre, ``n x d``.
            lengthscales: ``d``.
            q: Number of samples.
        """
        f32, unit = torch.float32, factor.variance**0.5
        Z = (points / lengthscales).to(f32)
        # the spectral density of Matern-5/2 is a multivariate t of five degrees of freedom
        chi = torch.randn(5, FEATURES).square().mean(0).to(Z)
        omega = torch.randn(Z.shape[1], FEATURES).to(Z) * chi.rsqrt()
        phases = 2.0 * math.pi * torch.rand(FEATURES).to(Z)
        weights = torch.randn(FEATURES, q).to(Z) * math.sqrt(2.0 / FEATURES)
        prior = torch.addmm(phases, Z, omega).cos_() @ weights
        sd = torch.as_tensor(factor.noise).sqrt().to(Z).unsqueeze(-1)
        noise = torch.randn(len(y), q).to(Z) * sd
        gap = ((y - factor.mean) / unit).unsqueeze(-1) - (prior + noise).double()
        correction = torch.cholesky_solve(gap, torch.from_numpy(factor.L).to(gap)).to(f32)
        return cls(lengthscales, Z, omega, phases, torch.cat([weights, correction]))

    def at(self, steps: Tensor) -> Tensor:
        """All samples at steps from the centre ``count x d``, ``count x q``.

        O(count (n + 512) (d + q)).
        """
        W = (steps / self.lengthscales).to(torch.float32)
        return torch.cat([self._rows(part) @ self.weights for part in W.split(BLOCK)])

    def each_at(self, steps: Tensor) -> Tensor:
        """Every sample at steps of its own ``q x k x d``, ``q x k``: O(q k (n + 512) d)."""
        W = (steps / self.lengthscales).to(torch.float32)
        some, values = max(1, BLOCK // W.shape[1]), []
        for part, weights in zip(W.split(some), self.weights.mT.split(some), strict=True):
            rows = self._rows(part.flatten(0, 1)).unflatten(0, part.shape[:2])
            values.append((rows @ weights.unsqueeze(-1)).squeeze(-1))
        return torch.cat(values)

    def _rows(self, W: Tensor) -> Tensor:
        """Features, and Matern-5/2 with the window's points, of points over the lengthscales:
        ``p x (512 + n)``.

        Distances by one matrix product are accurate to rounding times the squared norms.
        """
        features = torch.addmm(self.phases, W, self.frequencies).cos_()
        squares = torch.addmm(self.points.square().sum(-1), W, self.points.mT, alpha=-2.0)
        squares.add_(W.square().sum(-1, keepdim=True))
        r = squares.mul_(5.0).clamp_(0.0, FARTHEST).sqrt_()
        e = r.neg().exp_()
        return torch.cat([features, e.addcmul_(r.addcmul_(r, r, value=1.0 / 3.0), e)], -1)


def worth_refining(factor: Solved, d: int) -> bool:
    """Whether samples of the local process are known well enough in their details."""
    return d <= FEW_INPUTS and float(np.max(factor.noise)) <= ROUGH


def refined(
    draws: RegionDraws,
    steps: Tensor,
    values: Tensor,
    centre: Tensor,
    geometry: Geometry,
    size: float,
) -> Tensor:
    """Better steps for every sample, near those given, ``q x d``: the best of a few small moves.

    Args:
        draws: The samples.
        steps: One for each sample, ``q x d``.
        values: The samples there, ``q``.
        centre: ``d``.
        geometry: Lengths.
        size: The region's L.
    """
    (q, d), (low, high) = steps.shape, _limits(centre, geometry, size)
    rows, longest = torch.arange(q), LONGEST * size * geometry.shape
    for _ in range(ROUNDS):
        moves = torch.randn(q, TRIES, d, dtype=torch.float64)
        moves *= torch.exp2(-HALVINGS * torch.rand(q, TRIES, 1, dtype=torch.float64))
        moves *= torch.rand(q, TRIES, d) < MOVED_AGAIN / d
        tried = steps.unsqueeze(1) + moves.to(centre) * longest
        tried = torch.minimum(torch.maximum(tried, low), high)
        found, best = draws.each_at(tried).max(1)
        better = found > values
        steps = torch.where(better.unsqueeze(-1), tried[rows, best], steps)
        values = torch.where(better, found, values)
    return steps
