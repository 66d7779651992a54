"""Expectation-propagation sites: outcomes that are not Gaussian, in a Gaussian stream (MATHS 11).

An outcome y of density ``p(y | g)``, with ``g = f + e`` and an independent nugget
``e ~ N(0, tau2)``, enters a surrogate as a target of known noise. This *site* has natural
parameters ``l1`` and ``l2``, target ``t = l1 / l2`` and noise ``D = 1 / l2 + tau2``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from bo_stream.errors import InputError, ShapeError
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.quadrature import Tilted, tilted
from bo_stream.mathematics.shapes import shaped

__all__ = ["Likelihood", "Outcomes", "Sites", "batch_evidence", "batch_sites", "is_number"]

Moments = tuple[Tensor, Tensor]
FIRST_NUGGET = 0.1
MAX_STEP, MAX_ITERATIONS, NEAR = 2.0, 40, 1e-5
"""Newton steps are at most this long, at most this many, and end below this length. The nodes need
the mode only roughly."""
LEAST = 1e-8
"""Smallest precision of a site."""
SWEEPS, CLOSE = 4, 1e-4
"""Sweeps over a batch, fewer once no mean moves by this share of its standard deviation."""
SLACK = 1.2
"""A prior on features may have a variance larger than the kernel's by this factor."""
DAMPING, MAX_FACTOR, NUGGET_FROM_ZERO = 0.7, 4.0, 0.05
"""Steps of the nugget: share of a Fisher step, largest change, largest value after a step from
zero."""
LEAST_NUGGET, LEAST_SHARE = 1e-4, 0.01
"""Least nugget: at most this, and at most this share of the sites' median variance."""


class Sites(NamedTuple):
    """Natural parameters of the sites of g, each ``n``: ``exp(l1 g - l2 g^2 / 2)``."""

    l1: Tensor
    l2: Tensor

    @property
    def target(self) -> Tensor:
        """The mean of each site, ``n``."""
        return self.l1 / self.l2


# -- likelihoods -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Likelihood(ABC):
    """The distribution of an outcome given a latent value g; tensors broadcast (MATHS 11.5).

    A subclass supplies the log density, a first site (`start`), scipy's distribution, and the
    response. Slope and curvature are those of a canonical link, for which the log density is
    ``y g`` less a function of g, unless it overrides them.

    Attributes:
        nugget: The variance of the nugget, or ``"learn"``.
    """

    nugget: float | Literal["learn"] = "learn"

    size_name: ClassVar[str] = "trials"
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.nugget != "learn" and not is_number(self.nugget, 0.0):
            raise InputError(
                "a nugget of variance 0 or more, or 'learn'",
                repr(self.nugget),
                "Leave it out to learn.",
            )

    # -- data ------------------------------------------------------------------------------------

    def read(self, k: Any, size: Any, X: Tensor) -> tuple[Tensor, Tensor]:
        """Checked outcomes and sizes of ``n`` observations, each ``n``, float64.

        Args:
            k: Outcomes, ``n`` or ``n x 1``: a tensor, array, list or column.
            size: Trials or exposures likewise, or one number; None for ones.
            X: ``n x d`` points.

        Raises:
            ShapeError: if their numbers differ.
            InputError: for outcomes that cannot occur.
        """
        y, n = _column(k, "k", X), self.read_size(size, X)
        self._check(y, n)
        return y, n

    def read_size(self, size: Any, X: Tensor) -> Tensor:
        """Checked trials or exposures of ``n`` observations, ``n``, float64.

        Args:
            size: ``n`` or ``n x 1`` numbers, or one; None for ones.
            X: ``n x d`` points.

        Raises:
            ShapeError: if their number differs.
            InputError: if one is not positive.
        """
        n = _column(1.0 if size is None else size, self.size_name, X)
        if bool((n <= 0.0).any()):
            raise InputError(
                f"{self.size_name} above 0",
                f"{float(n.min()):g}",
                "Leave out rows where nothing was examined.",
            )
        return n

    def _check(self, y: Tensor, n: Tensor) -> None:
        """Refuse outcomes that are not whole numbers of 0 or more."""
        bad = (y < 0.0) | (y != y.round())
        if bool(bad.any()):
            raise InputError(
                "counts: whole numbers, 0 or more",
                f"{float(y[bad][0]):g}",
                "Give counts, not rates or logarithms.",
            )

    # -- nugget ----------------------------------------------------------------------------------

    def latent(self, nugget: Tensor) -> Tensor:
        """The variance that the nugget adds to the latent value."""
        return nugget

    def outcome_size(self, size: Tensor, nugget: Tensor) -> Tensor:
        """The size that the density depends on."""
        return size

    def first_nugget(self, y: Tensor) -> float:
        """Where learning the nugget starts, given the first outcomes."""
        return FIRST_NUGGET

    def next_nugget(self, held: Outcomes, m: Tensor, v: Tensor, nugget: Tensor) -> Tensor:
        """A step of the nugget's variance uphill in the evidence, 0-dim (MATHS 11.4).

        Args:
            held: Outcomes.
            m: Posterior means of f at their points.
            v: Posterior variances.
            nugget: The present variance.
        """
        a = (held.sites.target - m) / held.D
        c = (1.0 / held.D - v / held.D.square()).clamp_min(0.0)
        step = (a.square() - c).sum() / c.square().sum()
        least = (LEAST_SHARE / held.l2.median()).clamp_max(LEAST_NUGGET)
        lowest = (nugget / MAX_FACTOR).maximum(least)
        highest = (nugget * MAX_FACTOR).clamp_min(NUGGET_FROM_ZERO)
        return (nugget + DAMPING * step).clamp(lowest, highest)

    # -- density ---------------------------------------------------------------------------------

    @abstractmethod
    def log_density(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Log density or log probability of y."""

    def slope(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Derivative of the log density in g."""
        return y - size * self.response(g)

    def curvature(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Minus its second derivative, not negative."""
        return self.information(g, size)

    @abstractmethod
    def start(self, y: Tensor, size: Tensor) -> Moments:
        """Haldane's site: mean and variance of a Gaussian near the likelihood of g."""

    def most_precise(self, y: Tensor, size: Tensor) -> Tensor:
        """An upper bound of the curvature; infinite if there is none."""
        return torch.full_like(y, torch.inf)

    @abstractmethod
    def distribution(self, g: Tensor, size: Tensor) -> Any:
        """Scipy's distribution of the outcome."""

    def cdf(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Probability of an outcome of at most y."""
        return torch.as_tensor(self.distribution(g, size).cdf(y.numpy(force=True))).to(g)

    def limit(self, size: Tensor) -> Tensor:
        """The largest outcome that can occur, infinite if there is none."""
        return torch.as_tensor(self.distribution(0.0 * size, size).support()[1]).to(size)

    def sample(self, g: Tensor, size: Tensor, rng: np.random.Generator) -> Tensor:
        """Draws of outcomes, of the shape of g."""
        drawn = self.distribution(g, size).rvs(size=tuple(g.shape), random_state=rng)
        return torch.as_tensor(drawn).to(g)

    # -- response --------------------------------------------------------------------------------

    @abstractmethod
    def response(self, g: Tensor) -> Tensor:
        """What a user reads: the prevalence or the rate of one unit of size. The inverse link."""

    @abstractmethod
    def response_slope(self, g: Tensor) -> Tensor:
        """Its derivative in g."""

    def information(self, g: Tensor, size: Tensor) -> Tensor:
        """Expected curvature of a future outcome's log density."""
        return size * self.response_slope(g)

    @abstractmethod
    def pooled(self, y: Tensor, size: Tensor) -> Tensor:
        """The latent value of the pooled rate, 0-dim; finite for any outcomes (MATHS 11.5)."""

    def informative(self, y_sum: float, size_sum: float) -> bool:
        """Whether outcomes of this sum determine hyperparameters: neither all zero nor all full."""
        return y_sum > 0.0

    # -- expectation propagation -----------------------------------------------------------------

    def tilted(self, mean: Tensor, variance: Tensor, y: Tensor, size: Tensor) -> Tilted:
        """Moments of ``N(g; mean, variance) p(y | g)``, each ``n``."""
        about, spread = self.start(y, size)
        g = (mean / variance + about / spread) / (1.0 / variance + 1.0 / spread)
        for _ in range(MAX_ITERATIONS):
            rise = self.slope(g, y, size) - (g - mean) / variance
            step = rise / (self.curvature(g, y, size) + 1.0 / variance)
            g = g + step.clamp(-MAX_STEP, MAX_STEP)
            if not g.numel() or float(step.abs().max()) < NEAR:
                break

        def log_density(nodes: Tensor) -> Tensor:
            return self.log_density(nodes, y.unsqueeze(-1), size.unsqueeze(-1))

        return tilted(log_density, mean, variance, g, self.curvature(g, y, size))

    def log_marginal(self, mean: Tensor, variance: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Log probability of outcomes under latent values ``N(mean, variance)``."""
        return self.tilted(mean, variance, y, size).log_norm

    def sites(self, marginal: Moments, cavity: Moments, y: Tensor, size: Tensor) -> Sites:
        """The sites that give cavities of g the moments that the outcomes give them (MATHS 11.1).

        A precision out of range is clipped, and the site keeps the tilted mean.

        Args:
            marginal: Means and variances of g, each ``n``.
            cavity: Those without the present site.
            y: Outcomes, ``n``.
            size: Trials, exposures, or squared scales, ``n``.
        """
        mean, variance = cavity
        _, center, spread = self.tilted(mean, variance, y, size)
        l2 = 1.0 / spread - 1.0 / variance
        l2 = l2.minimum(self.most_precise(y, size)).clamp_min(LEAST)
        return Sites(center * (l2 + 1.0 / variance) - mean / variance, l2)

    def corrections(
        self, marginal: Moments, cavity: Moments, y: Tensor, size: Tensor, sites: Sites
    ) -> Tensor:
        """What each outcome adds to the evidence of the sites as Gaussian data, ``n`` (MATHS 11.3).

        The arguments are those of `sites`, and the sites.
        """
        mean, variance = cavity
        total = variance + 1.0 / sites.l2
        gap = (mean - sites.target).square() / total
        log_norm = self.log_marginal(mean, variance, y, size)
        return log_norm + 0.5 * (2.0 * math.pi * total).log() + 0.5 * gap


def is_number(value: Any, least: float) -> bool:
    """Whether a value is a finite number of at least ``least``."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    return number and least <= float(value) < float("inf")


def _column(values: Any, name: str, X: Tensor) -> Tensor:
    """One finite number for each of ``n`` points, float64; one for all is expanded."""
    try:
        column = torch.as_tensor(values if isinstance(values, Tensor) else np.asarray(values))
    except (TypeError, ValueError) as error:
        raise InputError(f"numbers as {name}", type(values).__name__, "Convert them.") from error
    column = column.detach().to(device=X.device, dtype=torch.float64)
    if column.ndim == 0 and name != "k":
        column = column.expand(len(X))
    if column.shape not in ((len(X),), (len(X), 1)):
        raise ShapeError(
            f"{name} with {len(X)} entries, one for each point",
            f"shape {tuple(column.shape)}",
            "Give one number per row of X.",
        )
    if not bool(column.isfinite().all()):
        raise InputError(f"finite {name}", "NaN or infinite entries", "Drop those rows.")
    return column.reshape(-1)


# -- a batch with a joint prior --------------------------------------------------------------------


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
        if before is not None and float(((m - before) / v.sqrt()).abs().max()) < CLOSE:
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


# -- outcomes that are held ------------------------------------------------------------------------


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

    @classmethod
    def none(cls, dim: int, like: Tensor) -> Outcomes:
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
    def targets(self) -> tuple[Tensor, Tensor, Tensor]:
        """Points ``h x d``, targets and noise variances, each ``1 x h``: data of one output."""
        return self.X, self.sites.target.unsqueeze(0), self.D.unsqueeze(0)

    def __getitem__(self, rows: slice) -> Self:
        return replace(self, **{name: value[rows] for name, value in vars(self).items()})

    def __add__(self, other: Outcomes) -> Self:
        theirs = vars(other)
        return replace(self, **{k: torch.cat([v, theirs[k]]) for k, v in vars(self).items()})

    def _moments(
        self, kind: Likelihood, m: Tensor, v: Tensor, prior: Tensor, nugget: Tensor
    ) -> tuple[Moments, Moments, Tensor, Tensor]:
        """Moments of g with and without its site (MATHS 11.1), outcomes and their sizes."""
        sites = self.sites.target / self.D, 1.0 / self.D
        mean, variance = _cavities(m, v, *sites, SLACK * prior)
        cavity = mean, variance + kind.latent(nugget)
        return (m, v), cavity, self.y, kind.outcome_size(self.size, nugget)

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
        return replace(self, l1=l1, l2=l2, D=1.0 / l2 + kind.latent(nugget)), float(moved.max())

    def corrections(
        self, kind: Likelihood, m: Tensor, v: Tensor, prior: Tensor, nugget: Tensor
    ) -> Tensor:
        """What outcomes add to the evidence of the targets as Gaussian data, 0-dim; the arguments
        are those of `refreshed`.
        """
        moments = self._moments(kind, m, v, prior, nugget)
        return kind.corrections(*moments, self.sites).sum()
