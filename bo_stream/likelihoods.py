"""Likelihoods of outcomes that are not Gaussian, for `CountGP` (MATHS 11.5).

Every one has a *nugget*: independent Gaussian noise of the latent value at each observation, so
that two surveys of one place may differ by more than chance.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import scipy  # which imports its parts when they are first used
import torch
from torch import Tensor
from torch.nn.functional import softplus

from bo_stream.errors import InputError, ShapeError, is_number
from bo_stream.mathematics.labels import Label, checked_classes, read_labels, unseen
from bo_stream.mathematics.outcomes import fine_nodes

__all__ = [
    "Bernoulli",
    "Binomial",
    "Likelihood",
    "NegativeBinomial",
    "Poisson",
    "StudentT",
    "cavities",
]

Moments = tuple[Tensor, Tensor]
"""Means and variances."""
LINEAR = 40.0
"""Above this, ``log(1 + e^g)`` is g to the last bit."""
HIGHEST = 60.0
"""Largest logarithm of a rate that is told from larger ones."""
FIRST_NUGGET = 0.1
SPREAD, SHARE = 1.4826, 0.25
"""A normal standard deviation in median absolute deviations; the first squared scale as a share of
the outcomes' variance."""
DAMPING, MAX_FACTOR, NUGGET_FROM_ZERO = 0.7, 4.0, 0.05
"""Steps of the nugget: share of a Fisher step, largest change, largest value after a step from
zero."""
LEAST_NUGGET, LEAST_SHARE = 1e-4, 0.01
"""Least nugget: at most this, and at most this share of the targets' median noise."""
MAX_STEP, MAX_ITERATIONS, NEAR = 2.0, 40, 1e-5
"""Newton steps are at most this long, at most this many, and end below this length. The nodes need
the mode only roughly."""
LEAST = 1e-8
"""Smallest precision of a site."""
SWEEPS, CLOSE = 4, 1e-4
"""Sweeps over a batch, fewer once no mean moves by this share of its standard deviation."""

_x, _w = np.polynomial.hermite_e.hermegauss(32)
ROOTS = torch.from_numpy(_x).unsqueeze(-1)
LOG_WEIGHTS = torch.from_numpy(np.log(_w) + 0.5 * _x**2).unsqueeze(-1)
"""Nodes of quadrature and the logarithms of their weights, ``32 x 1``, without a density."""


class Sites(NamedTuple):
    """Natural parameters of the sites of g, each ``n``: ``exp(l1 g - l2 g^2 / 2)``."""

    l1: Tensor
    l2: Tensor

    @property
    def target(self) -> Tensor:
        """The mean of each site, ``n``."""
        return self.l1 / self.l2


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

    def sized(self, size: Tensor, nugget: Tensor) -> tuple[Tensor, Tensor]:
        """The size that the density depends on, and the variance that the nugget adds to f."""
        return size, nugget

    def first_nugget(self, y: Tensor) -> float:
        """Where learning the nugget starts, given the first outcomes."""
        return FIRST_NUGGET

    def next_nugget(
        self, nugget: Tensor, m: Tensor, v: Tensor, t: Tensor, D: Tensor, y: Tensor, size: Tensor
    ) -> Tensor:
        """A step of the nugget's variance uphill in the evidence, 0-dim (MATHS 11.4).

        Args:
            nugget: The present variance.
            m: Posterior means of f at ``n`` points.
            v: Posterior variances.
            t: Targets.
            D: Their noise variances.
            y: Outcomes.
            size: Trials, exposures, or ones.
        """
        a, c = (t - m) / D, (1.0 / D - v / D.square()).clamp_min(0.0)
        step = (a.square() - c).sum() / c.square().sum()
        least = (LEAST_SHARE * D.median()).clamp_max(LEAST_NUGGET)
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

    def tilted(
        self, mean: Tensor, variance: Tensor, y: Tensor, size: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Moments of ``N(g; mean, variance) p(y | g)``: the logarithm of its integral, mean and
        variance, each ``n``.

        By quadrature at the place and scale of the mode: O(32 n).
        """
        about, spread = self.start(y, size)
        g = (mean / variance + about / spread) / (1.0 / variance + 1.0 / spread)
        for _ in range(MAX_ITERATIONS):
            rise = self.slope(g, y, size) - (g - mean) / variance
            step = rise / (self.curvature(g, y, size) + 1.0 / variance)
            g = g + step.clamp(-MAX_STEP, MAX_STEP)
            if not g.numel() or float(step.abs().max()) < NEAR:
                break
        scale = (self.curvature(g, y, size) + 1.0 / variance).rsqrt()
        nodes = g + scale * ROOTS.to(g)
        logs = self.log_density(nodes, y, size) - 0.5 * (nodes - mean).square() / variance
        logs = logs + LOG_WEIGHTS.to(g)
        log_total = logs.logsumexp(0)
        shares = (logs - log_total).exp()
        center = (shares * nodes).sum(0)
        spread = (shares * (nodes - center).square()).sum(0)
        log_norm = log_total + scale.log() - 0.5 * (2.0 * math.pi * variance).log()
        return log_norm, center, spread

    def log_marginal(self, mean: Tensor, variance: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Log probability of outcomes under latent values ``N(mean, variance)``."""
        return self.tilted(mean, variance, y, size)[0]

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

    def batch_sites(self, mean: Tensor, S: Tensor, y: Tensor, size: Tensor) -> Sites:
        """The sites of a batch under the prior ``N(mean, S)`` of g, from Haldane's: O(n^3).

        Args:
            mean: ``n``.
            S: ``n x n``, with the nugget on the diagonal.
            y: Outcomes, ``n``.
            size: Trials, exposures, or squared scales, ``n``.
        """
        about, spread = self.start(y, size)
        sites, before = Sites(about / spread, 1.0 / spread), None
        for _ in range(SWEEPS):
            m, v, _, _ = _joint_marginals(mean, S, sites)
            if before is not None and bool(((m - before).abs() < CLOSE * v.sqrt()).all()):
                break
            before, cavity = m, cavities(m, v, sites.l1, sites.l2, S.diagonal())
            sites = self.sites((m, v), cavity, y, size)
        return sites

    def batch_evidence(
        self, mean: Tensor, S: Tensor, y: Tensor, size: Tensor, sites: Sites
    ) -> Tensor:
        """EP's log evidence of a batch under ``N(mean, S)``, 0-dim; the arguments are those of
        `batch_sites`, and the sites.
        """
        m, v, white, L = _joint_marginals(mean, S, sites)
        cavity = cavities(m, v, sites.l1, sites.l2, S.diagonal())
        gaussian = 0.5 * (sites.l2 / (2.0 * math.pi)).log().sum() - L.diagonal().log().sum()
        gaussian = gaussian - 0.5 * white.square().sum()
        return gaussian + self.corrections((m, v), cavity, y, size, sites).sum()


def _joint_marginals(
    mean: Tensor, S: Tensor, sites: Sites
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Posterior means and variances (``n``), whitened residuals of the targets (``n x 1``), and the
    factor of ``I + l2^1/2 S l2^1/2``.
    """
    root = sites.l2.sqrt().unsqueeze(-1)
    L = torch.linalg.cholesky(root * S * root.mT + torch.eye(len(root)).to(S))  # eigenvalues >= 1
    residuals = root * (sites.target - mean).unsqueeze(-1)
    V, white = torch.linalg.solve_triangular(
        L, torch.cat([root * S, residuals], -1), upper=False
    ).split([len(root), 1], -1)
    return mean + (V.mT @ white).squeeze(-1), S.diagonal() - V.square().sum(0), white, L


def cavities(m: Tensor, v: Tensor, l1: Tensor, l2: Tensor, widest: Tensor) -> Moments:
    """Means and variances without Gaussian factors of these natural parameters, never wider than
    ``widest``.
    """
    precision = (1.0 / v - l2).maximum(1.0 / widest)
    return (m / v - l1) / precision, 1.0 / precision


@dataclass(frozen=True, kw_only=True)
class Binomial(Likelihood):
    """Positives among the examined: ``k ~ Binomial(n, p)``, ``logit p = g``.

    Attributes:
        trials: Name of the column of the numbers examined, where outcomes come in tables.
        nugget: The variance of the nugget, or ``"learn"``.
    """

    trials: str | None = None

    def _check(self, y: Tensor, n: Tensor) -> None:
        super()._check(y, n)
        if bool((n != n.round()).any()):
            raise InputError("whole numbers of trials", "fractions", "Give numbers examined.")
        if bool((y > n).any()):
            first = int((y > n).nonzero()[0])
            raise InputError(
                "at most as many positives as trials",
                f"{float(y[first]):g} of {float(n[first]):g} in row {first}",
                "Give `trials=` with every batch, in the order of the rows.",
            )

    def log_density(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``log C(n, y) + y g - n log(1 + e^g)``."""
        ways = (size + 1).lgamma() - (y + 1).lgamma() - (size - y + 1).lgamma()
        return ways + y * g - size * softplus(g, threshold=LINEAR)

    def start(self, y: Tensor, size: Tensor) -> Moments:
        """Empirical logit with half a count added to both sides."""
        yes, no = y + 0.5, size - y + 0.5
        return (yes / no).log(), 1.0 / yes + 1.0 / no

    def most_precise(self, y: Tensor, size: Tensor) -> Tensor:
        """``n / 4``."""
        return size / 4.0

    def distribution(self, g: Tensor, size: Tensor) -> Any:
        """Binomial."""
        return scipy.stats.binom(size.long().numpy(force=True), g.sigmoid().numpy(force=True))

    def response(self, g: Tensor) -> Tensor:
        """The prevalence."""
        return g.sigmoid()

    def response_slope(self, g: Tensor) -> Tensor:
        """``p (1 - p)``."""
        return g.sigmoid() * (-g).sigmoid()

    def pooled(self, y: Tensor, size: Tensor) -> Tensor:
        """Logit of ``(sum k + 1/2) / (sum n + 1)``."""
        return ((y.sum() + 0.5) / (size.sum() - y.sum() + 0.5)).log()

    def informative(self, y_sum: float, size_sum: float) -> bool:
        """Neither all zero nor all positive."""
        return 0.0 < y_sum < size_sum


@dataclass(frozen=True, kw_only=True)
class Bernoulli(Binomial):
    """Yes or no: 1 or 0, or two classes by their labels; ``logit p = g``.

    Attributes:
        classes: The labels, integers or strings, that stand for 0 and 1; None for 0 and 1.
        nugget: The variance of the nugget, or ``"learn"``. 0 is usual for a classifier: it does not
            survey a place twice.
    """

    classes: tuple[Label, Label] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes is None:
            return
        if len(checked_classes(list(self.classes))) != 2:
            raise InputError(
                "two classes", f"{self.classes!r}", "Use DirichletClassifier for more than two."
            )
        object.__setattr__(self, "classes", tuple(self.classes))  # a list, if read from a file

    def read(self, k: Any, size: Any, X: Tensor) -> tuple[Tensor, Tensor]:
        """As `Likelihood.read`; with ``classes``, outcomes are labels."""
        if self.classes is None:
            return super().read(k, size, X)
        labels, classes = read_labels(k, len(X)), list(self.classes)
        strange = unseen(labels, classes)
        if strange:
            raise InputError(f"labels {classes}", repr(strange[0]), "Use DirichletClassifier.")
        return super().read([float(classes.index(label)) for label in labels], size, X)

    def read_size(self, size: Any, X: Tensor) -> Tensor:
        """Ones; anything else is refused."""
        n = super().read_size(size, X)
        if bool((n != 1.0).any()):
            raise InputError("no trials", "trials", "Use Binomial for several trials.")
        return n


@dataclass(frozen=True, kw_only=True)
class Poisson(Likelihood):
    """Cases in an exposure: ``k ~ Poisson(exposure e^g)``.

    Attributes:
        exposure: Name of the column of exposures, such as person-years, where outcomes come in
            tables.
        nugget: The variance of the nugget, or ``"learn"``.
    """

    exposure: str | None = None

    size_name: ClassVar[str] = "exposure"

    def log_density(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``y log mu - mu - log y!``, ``mu = exposure e^g``."""
        return y * g - size * self.response(g) + (y * size.log() - (y + 1).lgamma())

    def start(self, y: Tensor, size: Tensor) -> Moments:
        """Logarithm of the rate with half a count added."""
        return ((y + 0.5) / size).log(), 1.0 / (y + 0.5)

    def distribution(self, g: Tensor, size: Tensor) -> Any:
        """Poisson."""
        return scipy.stats.poisson((size * self.response(g)).numpy(force=True))

    def response(self, g: Tensor) -> Tensor:
        """The rate of one unit of exposure."""
        return g.clamp_max(HIGHEST).exp()

    def response_slope(self, g: Tensor) -> Tensor:
        """The rate."""
        return self.response(g)

    def pooled(self, y: Tensor, size: Tensor) -> Tensor:
        """Logarithm of ``(sum k + 1/2) / (sum exposure + 1)``."""
        return ((y.sum() + 0.5) / (size.sum() + 1.0)).log()


@dataclass(frozen=True, kw_only=True)
class NegativeBinomial(Poisson):
    """Cases that cluster: variance ``mu + mu^2 / shape`` about the mean ``mu = exposure e^g``.

    Attributes:
        shape: Above 0; infinite would be `Poisson`.
        exposure: Name of the column of exposures, where outcomes come in tables.
        nugget: The variance of the nugget, or ``"learn"``. It, too, makes outcomes vary.
    """

    shape: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.shape, 1e-6):
            raise InputError("a shape above 0", repr(self.shape), "1 is a geometric spread.")

    def _log_odds(self, g: Tensor, size: Tensor) -> Tensor:
        """``log(mu / shape)``."""
        return g + (size / self.shape).log()

    def log_density(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``log C(y + shape - 1, y) + y log(mu / shape) - (y + shape) log(1 + mu / shape)``."""
        shape = torch.as_tensor(self.shape).to(y)
        ways = (y + shape).lgamma() - shape.lgamma() - (y + 1).lgamma()
        odds = self._log_odds(g, size)
        return ways + y * odds - (y + shape) * softplus(odds, threshold=LINEAR)

    def slope(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``y - (y + shape) mu / (mu + shape)``."""
        return y - (y + self.shape) * self._log_odds(g, size).sigmoid()

    def curvature(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``(y + shape) s (1 - s)``, with ``s = mu / (mu + shape)``."""
        share = self._log_odds(g, size).sigmoid()
        return (y + self.shape) * share * (1.0 - share)

    def start(self, y: Tensor, size: Tensor) -> Moments:
        """Logarithm of the rate with half a count added."""
        mean, variance = super().start(y, size)
        return mean, variance + 1.0 / self.shape

    def most_precise(self, y: Tensor, size: Tensor) -> Tensor:
        """``(y + shape) / 4``."""
        return (y + self.shape) / 4.0

    def distribution(self, g: Tensor, size: Tensor) -> Any:
        """Negative binomial."""
        share = (-self._log_odds(g, size)).sigmoid()
        return scipy.stats.nbinom(self.shape, share.numpy(force=True))

    def information(self, g: Tensor, size: Tensor) -> Tensor:
        """``shape mu / (mu + shape)``."""
        return self.shape * self._log_odds(g, size).sigmoid()


@dataclass(frozen=True, kw_only=True)
class StudentT(Likelihood):
    """Measurements with outliers: ``y = f + scale t``, with t of ``df`` degrees of freedom.

    The density is not log-concave, so sites are variational: targets are the outcomes, and noise
    grows with the residual. Means are those of robust regression, and `CountGP.log_evidence` is a
    lower bound. `CountGP.refresh` is needed where outcomes come in order of their size.

    Attributes:
        df: Degrees of freedom, above 0.
        nugget: The squared scale, above 0, or ``"learn"``. It is all of the noise: f has no nugget.
    """

    df: float = 4.0

    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.df, 1e-3):
            raise InputError("degrees of freedom above 0", repr(self.df), "4 is usual.")
        if self.nugget == 0.0:
            raise InputError("a squared scale above 0", "0", "Leave it out to learn it.")

    def _check(self, y: Tensor, n: Tensor) -> None:
        """Any number may occur."""

    # -- the squared scale: the nugget times the size --------------------------------------------

    def sized(self, size: Tensor, nugget: Tensor) -> tuple[Tensor, Tensor]:
        """The squared scale; f has no nugget."""
        return size * nugget, torch.zeros_like(nugget)

    def first_nugget(self, y: Tensor) -> float:
        """A quarter of the outcomes' variance, estimated robustly."""
        spread = SPREAD * float((y - y.median()).abs().median())
        return SHARE * spread**2 if spread > 0.0 else 1.0

    def next_nugget(
        self, nugget: Tensor, m: Tensor, v: Tensor, t: Tensor, D: Tensor, y: Tensor, size: Tensor
    ) -> Tensor:
        """A step of parameter-expanded EM."""
        square = (y - m).square() + v
        weight = self._weights(square, size * nugget)
        return (weight * square / size).sum() / weight.sum()

    def _weights(self, square: Tensor, size: Tensor) -> Tensor:
        """Expected precisions from expected squared residuals, in units of the squared scale; small
        for outliers.
        """
        return (self.df + 1.0) / (self.df + square / size)

    # -- density ---------------------------------------------------------------------------------

    def _log_of_square(self, square: Tensor, size: Tensor) -> Tensor:
        """The log density, which is convex in the squared residual."""
        half = self.df / 2.0
        norm = math.lgamma(half + 0.5) - math.lgamma(half) - 0.5 * math.log(self.df * math.pi)
        return norm - (half + 0.5) * (square / (self.df * size)).log1p() - 0.5 * size.log()

    def log_density(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """That of t, ``-(df + 1) / 2 log(1 + (y - g)^2 / (df scale^2)) - log scale + norm``."""
        return self._log_of_square((y - g).square(), size)

    def log_marginal(self, mean: Tensor, variance: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Over a fine grid of latent values, because the density may have two modes with them."""
        g, log_weights = fine_nodes(mean, variance)
        return (self.log_density(g, y, size) + log_weights).logsumexp(0)

    def slope(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``(df + 1) (y - g) / (df scale^2 + (y - g)^2)``."""
        return self.curvature(g, y, size) * (y - g)

    def curvature(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """That of the Gaussian that bounds it from below at g."""
        return (self.df + 1.0) / (self.df * size + (y - g).square())

    def start(self, y: Tensor, size: Tensor) -> Moments:
        """The outcome with the squared scale."""
        return y, size

    def distribution(self, g: Tensor, size: Tensor) -> Any:
        """Student's t."""
        return scipy.stats.t(self.df, loc=g.numpy(force=True), scale=size.sqrt().numpy(force=True))

    # -- variational sites -----------------------------------------------------------------------

    def sites(self, marginal: Moments, cavity: Moments, y: Tensor, size: Tensor) -> Sites:
        """Sites whose targets are the outcomes, with expected precisions."""
        mean, variance = marginal
        l2 = self._weights((y - mean).square() + variance, size) / size
        return Sites(l2 * y, l2)

    def corrections(
        self, marginal: Moments, cavity: Moments, y: Tensor, size: Tensor, sites: Sites
    ) -> Tensor:
        """A lower bound of the expected log density, less that of the sites."""
        mean, variance = marginal
        square = (mean - sites.target).square() + variance
        gaussian = 0.5 * (2.0 * math.pi / sites.l2).log() + 0.5 * sites.l2 * square
        return self._log_of_square((y - mean).square() + variance, size) + gaussian

    # -- response --------------------------------------------------------------------------------

    def response(self, g: Tensor) -> Tensor:
        """The latent value itself."""
        return g

    def response_slope(self, g: Tensor) -> Tensor:
        """One."""
        return torch.ones_like(g)

    def information(self, g: Tensor, size: Tensor) -> Tensor:
        """``(df + 1) / ((df + 3) scale^2)``."""
        return (self.df + 1.0) / ((self.df + 3.0) * size) + torch.zeros_like(g)

    def pooled(self, y: Tensor, size: Tensor) -> Tensor:
        """The median."""
        return y.median()

    def informative(self, y_sum: float, size_sum: float) -> bool:
        """From two outcomes on."""
        return size_sum > 1.0


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
