"""Expectation-propagation sites: outcomes that are not Gaussian, in a Gaussian stream (MATHS 11).

An outcome y of density ``p(y | g)``, with ``g = f + e`` and an independent nugget
``e ~ N(0, tau2)``, enters a surrogate as a target of known noise. This *site* has natural
parameters ``l1`` and ``l2``, target ``t = l1 / l2`` and noise ``D = 1 / l2 + tau2``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from bo_stream.likelihoods import Likelihood, Moments, Sites
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.rows import Rows
from bo_stream.mathematics.shapes import shaped

__all__ = ["Outcomes", "batch_evidence", "batch_sites"]

SWEEPS, CLOSE = 4, 1e-4
"""Sweeps over a batch, fewer once no mean moves by this share of its standard deviation."""
SLACK = 1.2
"""A prior on features may have a variance larger than the kernel's by this factor."""


def batch_sites(kind: Likelihood, mean: Tensor, S: Tensor, y: Tensor, size: Tensor) -> Sites:
    """The sites of a batch under the prior ``N(mean, S)`` of g, from Haldane's: O(n^3).

    Args:
        kind: The likelihood of the outcomes.
        mean: ``n``.
        S: ``n x n``, with the nugget on the diagonal.
        y: Outcomes, ``n``.
        size: Trials, exposures, or squared scales, ``n``.
    """
    about, spread = kind.start(y, size)
    sites, before = Sites(about / spread, 1.0 / spread), None
    for _ in range(SWEEPS):
        m, v, _, _ = _marginals(mean, S, sites)
        if before is not None and bool(((m - before).abs() < CLOSE * v.sqrt()).all()):
            break
        before, cavity = m, _cavities(m, v, sites.l1, sites.l2, S.diagonal())
        sites = kind.sites((m, v), cavity, y, size)
    return sites


def batch_evidence(
    kind: Likelihood, mean: Tensor, S: Tensor, y: Tensor, size: Tensor, sites: Sites
) -> Tensor:
    """EP's log evidence of a batch under ``N(mean, S)``, 0-dim; the arguments are `batch_sites`'s,
    and the sites.
    """
    m, v, white, L = _marginals(mean, S, sites)
    cavity = _cavities(m, v, sites.l1, sites.l2, S.diagonal())
    gaussian = 0.5 * (sites.l2 / (2.0 * math.pi)).log().sum() - L.diagonal().log().sum()
    gaussian = gaussian - 0.5 * white.square().sum()
    return gaussian + kind.corrections((m, v), cavity, y, size, sites).sum()


def _marginals(mean: Tensor, S: Tensor, sites: Sites) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Posterior means and variances (``n``), whitened residuals of the targets (``n x 1``), and the
    factor of ``I + l2^1/2 S l2^1/2``.
    """
    root = sites.l2.sqrt().unsqueeze(-1)
    L = chol_psd(root * S * root.mT + torch.eye(len(root)).to(S))
    residuals = root * (sites.target - mean).unsqueeze(-1)
    V, white = torch.linalg.solve_triangular(
        L, torch.cat([root * S, residuals], -1), upper=False
    ).split([len(root), 1], -1)
    return mean + (V.mT @ white).squeeze(-1), S.diagonal() - V.square().sum(0), white, L


def _cavities(m: Tensor, v: Tensor, l1: Tensor, l2: Tensor, widest: Tensor) -> Moments:
    """Means and variances without Gaussian factors of these natural parameters, never wider than
    ``widest``.
    """
    precision = (1.0 / v - l2).maximum(1.0 / widest)
    return (m / v - l1) / precision, 1.0 / precision


@dataclass(frozen=True)
class Outcomes:
    """Outcomes whose sites can be computed again, as they were absorbed (MATHS 11.3, 11.4).

    Attributes:
        X: Points, transformed.
        y: Outcomes.
        size: Trials, exposures, or ones.
        l1, l2: Natural parameters of the sites of g.
        D: Noise variances of the targets that were absorbed.
    """

    X: Tensor = shaped("h d")
    y: Tensor = shaped("h")
    size: Tensor = shaped("h", "positive")
    l1: Tensor = shaped("h")
    l2: Tensor = shaped("h", "positive")
    D: Tensor = shaped("h", "positive")

    def __len__(self) -> int:
        return len(self.X)

    @property
    def target(self) -> Tensor:
        """The targets, ``h``."""
        return self.l1 / self.l2

    @property
    def regression(self) -> Rows:
        """The data of one output that the outcomes are replaced by."""
        return Rows(self.X, self.target.unsqueeze(0), self.D.unsqueeze(0))

    def __getitem__(self, rows: slice) -> Self:
        return replace(self, **{name: value[rows] for name, value in vars(self).items()})

    def __add__(self, other: Outcomes) -> Self:
        theirs = vars(other)
        return replace(self, **{k: torch.cat([v, theirs[k]]) for k, v in vars(self).items()})

    def _moments(
        self, kind: Likelihood, m: Tensor, v: Tensor, prior: Tensor, nugget: Tensor
    ) -> tuple[Moments, Moments, Tensor, Tensor]:
        """Moments of g with and without its site (MATHS 11.1), outcomes and their sizes."""
        size, extra = kind.sized(self.size, nugget)
        mean, variance = _cavities(m, v, self.target / self.D, 1.0 / self.D, SLACK * prior)
        return (m, v), (mean, variance + extra), self.y, size

    def refreshed(
        self, kind: Likelihood, m: Tensor, v: Tensor, prior: Tensor, nugget: Tensor
    ) -> tuple[Self, float]:
        """The outcomes with new sites, and the largest move of a mean, in standard deviations.

        Args:
            kind: The likelihood of the outcomes.
            m: Posterior means of f at the points, ``h``.
            v: Posterior variances, ``h``.
            prior: Prior variances, ``h``.
            nugget: The variance of the nugget, 0-dim.
        """
        l1, l2 = kind.sites(*self._moments(kind, m, v, prior, nugget))
        moved = (l1 - self.l1 - (l2 - self.l2) * m).abs() * v.sqrt()
        _, extra = kind.sized(self.size, nugget)
        return replace(self, l1=l1, l2=l2, D=1.0 / l2 + extra), float(moved.max())

    def corrections(
        self, kind: Likelihood, m: Tensor, v: Tensor, prior: Tensor, nugget: Tensor
    ) -> Tensor:
        """What outcomes add to the evidence of the targets as Gaussian data, 0-dim; the arguments
        are those of `refreshed`.
        """
        moments = self._moments(kind, m, v, prior, nugget)
        return kind.corrections(*moments, Sites(self.l1, self.l2)).sum()
