"""Outcomes that are held, whose sites can be computed again (MATHS 11.3, 11.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, cast

import torch
from torch import Tensor

from bo_stream.mathematics.shapes import shaped
from bo_stream.mathematics.sites.batch import Sites, corrections, renewed

__all__ = ["HeldOutcomes"]

SLACK = 1.2
"""A prior on features may have a variance larger than the kernel's by this factor."""
DAMPING, MAX_FACTOR, FIRST_NUGGET = 0.7, 4.0, 0.05
"""Steps of the nugget: share of a Fisher step, largest change, largest value after a step from
zero."""
LEAST_NUGGET, LEAST_SHARE = 1e-4, 0.01
"""Least nugget: at most this, and at most this share of the sites' median variance."""


@dataclass(frozen=True)
class HeldOutcomes:
    """Outcomes with their sites, as they were absorbed.

    Attributes:
        X: Points, transformed.
        y: Outcomes.
        size: Trials, exposures, or ones.
        l1, l2: Natural parameters of the sites of g.
        D: Noise variances of the targets that were absorbed.
    """

    X: Tensor = shaped("h d")
    y: Tensor = shaped("h", "any")
    size: Tensor = shaped("h", "positive")
    l1: Tensor = shaped("h")
    l2: Tensor = shaped("h", "positive")
    D: Tensor = shaped("h", "positive")

    @classmethod
    def none(cls, dim: int, like: Tensor) -> HeldOutcomes:
        """No outcomes of ``dim`` inputs, on the device of a tensor."""
        X = like.new_zeros(0, dim, dtype=torch.float64)
        return cls(X, *(X.new_zeros(0) for _ in range(5)))

    def __len__(self) -> int:
        return len(self.X)

    @property
    def sites(self) -> Sites:
        """The sites of g."""
        return Sites(self.l1, self.l2)

    @property
    def targets(self) -> Tensor:
        """The targets, ``h``."""
        return self.l1 / self.l2

    def part(self, rows: slice) -> Self:
        """Some of the outcomes."""
        return replace(self, **{name: value[rows] for name, value in vars(self).items()})

    def and_then(self, other: HeldOutcomes) -> Self:
        """These and others."""
        theirs = vars(other)
        return replace(self, **{k: torch.cat([v, theirs[k]]) for k, v in vars(self).items()})

    def _moments(
        self, density: Any, m: Tensor, v: Tensor, prior: Tensor, nugget: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], Tensor, Tensor]:
        """Moments of g with and without its own site (MATHS 11.1), outcomes and their sizes."""
        precision = (1.0 / v - 1.0 / self.D).maximum(1.0 / (SLACK * prior))
        extra = density.latent(nugget)
        without = (m / v - self.targets / self.D) / precision, 1.0 / precision + extra
        return (m, v), without, self.y, density.outcome_size(self.size, nugget)

    def refreshed(
        self, density: Any, m: Tensor, v: Tensor, prior: Tensor, nugget: Tensor
    ) -> tuple[Self, float]:
        """The outcomes with new sites, and the largest move of a mean, in standard deviations.

        Args:
            density: The likelihood of the outcomes.
            m: Posterior means of f at the points, ``h``.
            v: Posterior variances, ``h``.
            prior: Prior variances, ``h``.
            nugget: The variance of the nugget, 0-dim.
        """
        sites = renewed(density, *self._moments(density, m, v, prior, nugget))
        moved = (sites.l1 - self.l1 - (sites.l2 - self.l2) * m).abs() * v.sqrt()
        D = 1.0 / sites.l2 + density.latent(nugget)
        return replace(self, l1=sites.l1, l2=sites.l2, D=D), float(moved.max())

    def corrections(
        self, density: Any, m: Tensor, v: Tensor, prior: Tensor, nugget: Tensor
    ) -> Tensor:
        """What outcomes add to the evidence of the targets as Gaussian data, 0-dim; the arguments
        are those of `refreshed`.
        """
        moments = self._moments(density, m, v, prior, nugget)
        return corrections(density, *moments, self.sites).sum()

    def next_nugget(self, density: Any, m: Tensor, v: Tensor, nugget: Tensor) -> Tensor:
        """A step of the nugget's variance uphill in EP's evidence, 0-dim (MATHS 11.4).

        Args:
            density: The likelihood of the outcomes.
            m: Posterior means of f at the points, ``h``.
            v: Posterior variances, ``h``.
            nugget: The present variance.
        """
        if density.variational:
            return cast(Tensor, density.next_nugget(m, v, self.y, self.size, nugget))
        a = (self.targets - m) / self.D
        c = (1.0 / self.D - v / self.D.square()).clamp_min(0.0)
        step = (a.square() - c).sum() / c.square().sum()
        least = (LEAST_SHARE / self.l2.median()).clamp_max(LEAST_NUGGET)
        lowest = (nugget / MAX_FACTOR).maximum(least)
        highest = (nugget * MAX_FACTOR).clamp_min(FIRST_NUGGET)
        return (nugget + DAMPING * step).clamp(lowest, highest)
