"""Expectation propagation on a batch of points with a joint Gaussian prior (MATHS 11.1, 11.2)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.sites.quadrature import Density, tilted

__all__ = ["Sites", "batch_evidence", "batch_sites", "corrections", "renewed"]

Moments = tuple[Tensor, Tensor]
SWEEPS, CLOSE = 4, 1e-4
"""Sweeps over a batch, fewer once no mean moves by this share of its standard deviation."""
LEAST = 1e-8
"""Smallest precision of a site."""


class Sites(NamedTuple):
    """Natural parameters of the sites of g, each ``n``: ``exp(l1 g - l2 g^2 / 2)``."""

    l1: Tensor
    l2: Tensor

    @property
    def target(self) -> Tensor:
        """The mean of each site, ``n``."""
        return self.l1 / self.l2


def renewed(density: Any, marginal: Moments, cavity: Moments, y: Tensor, size: Tensor) -> Sites:
    """New sites, from marginals of g with their own site, or from cavities without.

    Args:
        density: The likelihood of the outcomes.
        marginal: Means and variances of g, each ``n``.
        cavity: Those without the own site.
        y: Outcomes, ``n``.
        size: Trials, exposures, or squared scales, ``n``.
    """
    if density.variational:
        l2 = density.precisions(*marginal, y, size)
        return Sites(l2 * y, l2)
    return matched(density, *cavity, y, size)


def matched(density: Density, mean: Tensor, variance: Tensor, y: Tensor, size: Tensor) -> Sites:
    """The sites that give cavities of g the moments that the outcomes give them (MATHS 11.1).

    A precision out of range is clipped, and the site keeps the tilted mean.

    Args:
        density: The density of the outcomes.
        mean: Cavity means of g, ``n``.
        variance: Cavity variances of g, ``n``.
        y: Outcomes, ``n``.
        size: Trials, exposures, or ones, ``n``.
    """
    made = tilted(density, mean, variance, y, size)
    l2 = 1.0 / made.variance - 1.0 / variance
    l2 = l2.minimum(density.most_precise(y, size)).clamp_min(LEAST)
    return Sites(made.mean * (l2 + 1.0 / variance) - mean / variance, l2)


def batch_sites(density: Any, mean: Tensor, S: Tensor, y: Tensor, size: Tensor) -> Sites:
    """The sites of a batch under the prior ``N(mean, S)`` of g, from Haldane's: O(n^3).

    Args:
        density: The density of the outcomes.
        mean: ``n``.
        S: ``n x n``, with the nugget on the diagonal.
        y: Outcomes, ``n``.
        size: Trials, exposures, or ones, ``n``.
    """
    if len(y) == 1 and not density.variational:  # its cavity is the prior
        return matched(density, mean, S.diagonal(), y, size)
    about, spread = density.start(y, size)
    sites, before = Sites(about / spread, 1.0 / spread), None
    for _ in range(SWEEPS):
        m, v, _ = _marginals(mean, S, sites)
        if before is not None and float(((m - before) / v.sqrt()).abs().max()) < CLOSE:
            break
        before = m
        sites = renewed(density, (m, v), _cavities(m, v, S, sites), y, size)
    return sites


def batch_evidence(
    density: Any, mean: Tensor, S: Tensor, y: Tensor, size: Tensor, sites: Sites
) -> tuple[Tensor, Tensor]:
    """EP's log evidence of a batch under ``N(mean, S)``, 0-dim, and the part of it, ``n``, by which
    it exceeds that of the targets as Gaussian data.
    """
    m, v, L = _marginals(mean, S, sites)
    parts = corrections(density, (m, v), _cavities(m, v, S, sites), y, size, sites)
    white = torch.linalg.solve_triangular(
        L, (sites.l2.sqrt() * (sites.target - mean)).unsqueeze(-1), upper=False
    )
    gaussian = -0.5 * white.square().sum() - L.diagonal().log().sum()
    gaussian += 0.5 * sites.l2.log().sum() - 0.5 * len(y) * math.log(2.0 * math.pi)
    return gaussian + parts.sum(), parts


def corrections(
    density: Any, marginal: Moments, cavity: Moments, y: Tensor, size: Tensor, sites: Sites
) -> Tensor:
    """What each outcome adds to the evidence of the sites as Gaussian data, ``n`` (MATHS 11.3).

    The arguments are those of `renewed`, and the sites.
    """
    if density.variational:
        square = (marginal[0] - sites.target).square() + marginal[1]
        gaussian = 0.5 * (2.0 * math.pi / sites.l2).log() + 0.5 * sites.l2 * square
        return cast(Tensor, density.bound(*marginal, y, size)) + gaussian
    total = cavity[1] + 1.0 / sites.l2
    gap = (cavity[0] - sites.target).square() / total
    log_norm = tilted(density, *cavity, y, size).log_norm
    return log_norm + 0.5 * (2.0 * math.pi * total).log() + 0.5 * gap


def _marginals(mean: Tensor, S: Tensor, sites: Sites) -> tuple[Tensor, Tensor, Tensor]:
    """Posterior means and variances (``n``), and the factor of ``I + l2^1/2 S l2^1/2``."""
    root = sites.l2.sqrt()
    B = root.unsqueeze(-1) * S * root
    L = chol_psd(B + torch.eye(len(root)).to(B))
    V = torch.linalg.solve_triangular(L, root.unsqueeze(-1) * S, upper=False)
    gap = sites.l1 - sites.l2 * mean
    return mean + S @ gap - V.mT @ (V @ gap), S.diagonal() - V.square().sum(0), L


def _cavities(m: Tensor, v: Tensor, S: Tensor, sites: Sites) -> tuple[Tensor, Tensor]:
    """Means and variances of g without its own site; never wider than the prior."""
    precision = (1.0 / v - sites.l2).maximum(1.0 / S.diagonal())
    return (m / v - sites.l1) / precision, 1.0 / precision
