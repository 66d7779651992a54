"""Outcomes that are held, whose sites can be computed again (MATHS 11.3, 11.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from bo_stream.mathematics.shapes import shaped
from bo_stream.mathematics.sites.batch import Sites, corrections, matched
from bo_stream.mathematics.sites.quadrature import Density

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

    def cavities(
        self, m: Tensor, v: Tensor, prior: Tensor, nugget: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Means and variances of g without its own site (MATHS 11.1).

        Args:
            m: Posterior means of f at the points, ``h``.
            v: Posterior variances, ``h``.
            prior: Prior variances, ``h``.
            nugget: The variance of the nugget, 0-dim.
        """
        precision = (1.0 / v - 1.0 / self.D).maximum(1.0 / (SLACK * prior))
        return (m / v - self.targets / self.D) / precision, 1.0 / precision + nugget

    def refreshed(
        self, density: Density, m: Tensor, v: Tensor, prior: Tensor, nugget: Tensor
    ) -> tuple[Self, float]:
        """The outcomes with new sites, and the largest move of a mean, in standard deviations."""
        cavity = self.cavities(m, v, prior, nugget)
        sites = matched(density, *cavity, self.y, self.size)
        moved = (sites.l1 - self.l1 - (sites.l2 - self.l2) * m).abs() * v.sqrt()
        made = replace(self, l1=sites.l1, l2=sites.l2, D=1.0 / sites.l2 + nugget)
        return made, float(moved.max())

    def corrections(
        self, density: Density, m: Tensor, v: Tensor, prior: Tensor, nugget: Tensor
    ) -> Tensor:
        """What outcomes add to the evidence of the targets as Gaussian data, 0-dim."""
        cavity = self.cavities(m, v, prior, nugget)
        return corrections(density, *cavity, self.y, self.size, self.sites).sum()

    def next_nugget(self, m: Tensor, v: Tensor, nugget: Tensor) -> Tensor:
        """A step of the nugget's variance uphill in EP's evidence, 0-dim (MATHS 11.4).

        Args:
            m: Posterior means of f at the points, ``h``.
            v: Posterior variances, ``h``.
            nugget: The present variance.
        """
        a = (self.targets - m) / self.D
        c = (1.0 / self.D - v / self.D.square()).clamp_min(0.0)
        step = (a.square() - c).sum() / c.square().sum()
        least = (LEAST_SHARE / self.l2.median()).clamp_max(LEAST_NUGGET)
        lowest = (nugget / MAX_FACTOR).maximum(least)
        highest = (nugget * MAX_FACTOR).clamp_min(FIRST_NUGGET)
        return (nugget + DAMPING * step).clamp(lowest, highest)
