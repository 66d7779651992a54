"""Likelihoods of outcomes that are not Gaussian, for `CountGP` (MATHS 11.5).

Every one has a *nugget*: independent Gaussian noise of the latent value at each observation, so
that two surveys of one place may differ by more than chance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch.nn.functional import softplus

from bo_stream.errors import InputError, ShapeError

__all__ = ["Bernoulli", "Binomial", "Likelihood", "NegativeBinomial", "Poisson", "named"]

LINEAR = 40.0
"""Above this, ``log(1 + e^g)`` is g to the last bit."""
HIGHEST = 60.0
"""Largest logarithm of a rate that is told from larger ones."""


@dataclass(frozen=True, kw_only=True)
class Likelihood(ABC):
    """The distribution of an outcome given a latent value g; tensors broadcast.

    Attributes:
        nugget: The variance of the nugget, or ``"learn"``.
    """

    nugget: float | Literal["learn"] = "learn"

    size_name: ClassVar[str] = "trials"
    link_name: ClassVar[str] = "logit"

    def __post_init__(self) -> None:
        value = self.nugget
        if value != "learn" and not _at_least(value, 0.0):
            raise InputError(
                "a nugget of variance 0 or more, or 'learn'", repr(value), "Leave it out to learn."
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
        y = _column(k, "k", X)
        n = torch.ones_like(y) if size is None else self.read_size(size, X)
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
        given = 1.0 if size is None else size
        n = _column(given, self.size_name, X)
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

    # -- density ---------------------------------------------------------------------------------

    @abstractmethod
    def log_density(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Log density, up to `constant`."""

    @abstractmethod
    def constant(self, y: Tensor, size: Tensor) -> Tensor:
        """The part of the log density that does not depend on g."""

    @abstractmethod
    def slope(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Derivative of the log density in g."""

    @abstractmethod
    def curvature(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Minus its second derivative, not negative."""

    @abstractmethod
    def start(self, y: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """Haldane's site: mean and variance of a Gaussian near the likelihood of g."""

    def most_precise(self, y: Tensor, size: Tensor) -> Tensor:
        """An upper bound of the curvature; infinite if there is none."""
        return torch.full_like(y, torch.inf)

    def limit(self, size: Tensor) -> Tensor:
        """The largest outcome that can occur, infinite if there is none."""
        return torch.full_like(size, torch.inf)

    def largest(self, size: Tensor) -> int | None:
        """The largest outcome over all sizes, or None."""
        return None

    @abstractmethod
    def cdf(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Probability of an outcome of at most y."""

    @abstractmethod
    def sample(self, g: Tensor, size: Tensor, rng: np.random.Generator) -> Tensor:
        """Draws of outcomes."""

    # -- response --------------------------------------------------------------------------------

    @abstractmethod
    def response(self, g: Tensor) -> Tensor:
        """What a user reads: the prevalence or the rate of one unit of size. The inverse link."""

    @abstractmethod
    def response_slope(self, g: Tensor) -> Tensor:
        """Its derivative in g."""

    @abstractmethod
    def information(self, g: Tensor, size: Tensor) -> Tensor:
        """Expected curvature of a future outcome's log density."""

    @abstractmethod
    def pooled(self, y: Tensor, size: Tensor) -> Tensor:
        """The latent value of the pooled rate, 0-dim; finite for any outcomes (MATHS 11.5)."""

    def informative(self, y_sum: float, size_sum: float) -> bool:
        """Whether outcomes of this sum determine hyperparameters: neither all zero nor all full."""
        return y_sum > 0.0


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
        return y * g - size * softplus(g, threshold=LINEAR)

    def constant(self, y: Tensor, size: Tensor) -> Tensor:
        return (size + 1).lgamma() - (y + 1).lgamma() - (size - y + 1).lgamma()

    def slope(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        return y - size * g.sigmoid()

    def curvature(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        return size * self.response_slope(g)

    def start(self, y: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        yes, no = y + 0.5, size - y + 0.5
        return (yes / no).log(), 1.0 / yes + 1.0 / no

    def most_precise(self, y: Tensor, size: Tensor) -> Tensor:
        return size / 4.0

    def limit(self, size: Tensor) -> Tensor:
        return size

    def largest(self, size: Tensor) -> int | None:
        return int(size.max()) if len(size) else 0

    def cdf(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        inside = y.clamp_min(0.0).minimum(size - 1.0)
        low = _of_numpy(special.betainc, size - inside, inside + 1.0, (-g).sigmoid())
        return torch.where(y < 0.0, 0.0, torch.where(y >= size, 1.0, low))

    def sample(self, g: Tensor, size: Tensor, rng: np.random.Generator) -> Tensor:
        trials = size.expand(g.shape).long()
        return _of_numpy(rng.binomial, trials, g.sigmoid()).to(g)

    def response(self, g: Tensor) -> Tensor:
        return g.sigmoid()

    def response_slope(self, g: Tensor) -> Tensor:
        return g.sigmoid() * (-g).sigmoid()

    def information(self, g: Tensor, size: Tensor) -> Tensor:
        return size * self.response_slope(g)

    def pooled(self, y: Tensor, size: Tensor) -> Tensor:
        return ((y.sum() + 0.5) / (size.sum() - y.sum() + 0.5)).log()

    def informative(self, y_sum: float, size_sum: float) -> bool:
        return 0.0 < y_sum < size_sum


@dataclass(frozen=True, kw_only=True)
class Bernoulli(Binomial):
    """Yes or no: 1 or 0, ``logit p = g``. For two classes with labels that may be wrong.

    Attributes:
        nugget: The variance of the nugget, or ``"learn"``; 0 for a plain classifier.
    """

    def read_size(self, size: Any, X: Tensor) -> Tensor:
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
    link_name: ClassVar[str] = "log"

    def log_density(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        return y * g - self.information(g, size)

    def constant(self, y: Tensor, size: Tensor) -> Tensor:
        return y * size.log() - (y + 1).lgamma()

    def slope(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        return y - self.information(g, size)

    def curvature(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        return self.information(g, size)

    def start(self, y: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        return ((y + 0.5) / size).log(), 1.0 / (y + 0.5)

    def cdf(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        made = _of_numpy(special.gammaincc, y.clamp_min(0.0) + 1.0, self.information(g, size))
        return torch.where(y < 0.0, 0.0, made)

    def sample(self, g: Tensor, size: Tensor, rng: np.random.Generator) -> Tensor:
        return _of_numpy(rng.poisson, self.information(g, size)).to(g)

    def response(self, g: Tensor) -> Tensor:
        return g.clamp_max(HIGHEST).exp()

    def response_slope(self, g: Tensor) -> Tensor:
        return self.response(g)

    def information(self, g: Tensor, size: Tensor) -> Tensor:
        return size * self.response(g)

    def pooled(self, y: Tensor, size: Tensor) -> Tensor:
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
        if not _at_least(self.shape, 1e-6):
            raise InputError("a shape above 0", repr(self.shape), "1 is a geometric spread.")

    def _odds(self, g: Tensor, size: Tensor) -> Tensor:
        """``log(mu / shape)``."""
        return g + (size / self.shape).log()

    def log_density(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        return y * g - (y + self.shape) * softplus(self._odds(g, size), threshold=LINEAR)

    def constant(self, y: Tensor, size: Tensor) -> Tensor:
        shape = torch.as_tensor(self.shape).to(y)
        ways = (y + shape).lgamma() - shape.lgamma() - (y + 1).lgamma()
        return ways + y * (size / shape).log()

    def slope(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        return y - (y + self.shape) * self._odds(g, size).sigmoid()

    def curvature(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        share = self._odds(g, size).sigmoid()
        return (y + self.shape) * share * (1.0 - share)

    def start(self, y: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        return ((y + 0.5) / size).log(), 1.0 / (y + 0.5) + 1.0 / self.shape

    def most_precise(self, y: Tensor, size: Tensor) -> Tensor:
        return (y + self.shape) / 4.0

    def cdf(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        shape = torch.full_like(y, self.shape)
        share = (-self._odds(g, size)).sigmoid()
        made = _of_numpy(special.betainc, shape, y.clamp_min(0.0) + 1.0, share)
        return torch.where(y < 0.0, 0.0, made)

    def sample(self, g: Tensor, size: Tensor, rng: np.random.Generator) -> Tensor:
        share = (-self._odds(g, size)).sigmoid()
        return _of_numpy(rng.negative_binomial, torch.full_like(g, self.shape), share).to(g)

    def information(self, g: Tensor, size: Tensor) -> Tensor:
        return self.shape * self._odds(g, size).sigmoid()


def named(settings: dict[str, Any]) -> Likelihood:
    """The likelihood of these settings: its fields, and its class's name as ``name``."""
    kinds = {kind.__name__: kind for kind in (Binomial, Bernoulli, Poisson, NegativeBinomial)}
    return kinds[settings["name"]](**{k: v for k, v in settings.items() if k != "name"})


def _at_least(value: Any, least: float) -> bool:
    """Whether a value is a finite number of at least ``least``."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    return number and least <= float(value) < float("inf")


def _column(values: Any, name: str, X: Tensor) -> Tensor:
    """One finite number for each of ``n`` points, float64; one for all is expanded."""
    try:
        made = torch.as_tensor(np.asarray(values) if not isinstance(values, Tensor) else values)
    except (TypeError, ValueError) as error:
        raise InputError(f"numbers as {name}", type(values).__name__, "Convert them.") from error
    made = made.detach().to(device=X.device, dtype=torch.float64)
    if made.ndim == 0 and name != "k":
        made = made.expand(len(X))
    if made.shape not in ((len(X),), (len(X), 1)):
        raise ShapeError(
            f"{name} with {len(X)} entries, one for each point",
            f"shape {tuple(made.shape)}",
            "Give one number per row of X.",
        )
    if not bool(made.isfinite().all()):
        raise InputError(f"finite {name}", "NaN or infinite entries", "Drop those rows.")
    return made.reshape(-1)


def _of_numpy(function: Any, *values: Tensor) -> Tensor:
    """A function of scipy at tensors that broadcast."""
    arrays = (value.detach().cpu().numpy() for value in values)
    return torch.from_numpy(np.asarray(function(*arrays))).to(values[0])
