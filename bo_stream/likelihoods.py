"""Likelihoods of outcomes that are not Gaussian, for `CountGP` (MATHS 11.5).

Every one has a *nugget*: independent Gaussian noise of the latent value at each observation, so
that two surveys of one place may differ by more than chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from scipy import stats
from torch import Tensor
from torch.nn.functional import softplus

from bo_stream.errors import InputError
from bo_stream.mathematics.labels import Label, checked_classes, read_labels, unseen
from bo_stream.mathematics.quadrature import fine_nodes
from bo_stream.mathematics.sites import Likelihood, Moments, Outcomes, Sites, is_number

__all__ = ["Bernoulli", "Binomial", "Likelihood", "NegativeBinomial", "Poisson", "StudentT"]

LINEAR = 40.0
"""Above this, ``log(1 + e^g)`` is g to the last bit."""
HIGHEST = 60.0
"""Largest logarithm of a rate that is told from larger ones."""
SPREAD, SHARE = 1.4826, 0.25
"""A normal standard deviation in median absolute deviations; the first squared scale as a share of
the outcomes' variance."""


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
        return stats.binom(size.long().numpy(force=True), g.sigmoid().numpy(force=True))

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
        if self.classes is not None and len(checked_classes(list(self.classes))) != 2:
            raise InputError(
                "two classes", f"{self.classes!r}", "Use DirichletClassifier for more than two."
            )

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
        return stats.poisson((size * self.response(g)).numpy(force=True))

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
        return stats.nbinom(self.shape, share.numpy(force=True))

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

    def latent(self, nugget: Tensor) -> Tensor:
        """None: all noise is in the outcome."""
        return torch.zeros_like(nugget)

    def outcome_size(self, size: Tensor, nugget: Tensor) -> Tensor:
        """The squared scale."""
        return size * nugget

    def first_nugget(self, y: Tensor) -> float:
        """A quarter of the outcomes' variance, estimated robustly."""
        spread = SPREAD * float((y - y.median()).abs().median())
        return SHARE * spread**2 if spread > 0.0 else 1.0

    def next_nugget(self, held: Outcomes, m: Tensor, v: Tensor, nugget: Tensor) -> Tensor:
        """A step of parameter-expanded EM."""
        square = (held.y - m).square() + v
        weight = self._weights(square, held.size * nugget)
        return (weight * square / held.size).sum() / weight.sum()

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
        logs = self.log_density(g, y.unsqueeze(-1), size.unsqueeze(-1))
        return (logs + log_weights).logsumexp(-1)

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
        return stats.t(self.df, loc=g.numpy(force=True), scale=size.sqrt().numpy(force=True))

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
