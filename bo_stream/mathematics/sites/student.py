"""Measurements with outliers: Student's t, by variational sites (MATHS 11.5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy import special
from torch import Tensor

from bo_stream.errors import InputError
from bo_stream.mathematics.sites.likelihood import Likelihood, at_least, of_numpy
from bo_stream.mathematics.sites.quadrature import FINE, WIDE

__all__ = ["StudentT"]

SPREAD, SHARE = 1.4826, 0.25
"""A normal standard deviation in median absolute deviations; the first squared scale as a share of
the outcomes' variance."""


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

    variational: ClassVar[bool] = True
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not at_least(self.df, 1e-3):
            raise InputError("degrees of freedom above 0", repr(self.df), "4 is usual.")
        if self.nugget == 0.0:
            raise InputError("a squared scale above 0", "0", "Leave it out to learn it.")

    def _check(self, y: Tensor, n: Tensor) -> None:
        """Any number may occur."""

    # -- the squared scale -----------------------------------------------------------------------

    def latent(self, nugget: Tensor) -> Tensor:
        """None: all noise is in the outcome."""
        return torch.zeros_like(nugget)

    def outcome_size(self, size: Tensor, nugget: Tensor) -> Tensor:
        """The squared scale, times ``size``."""
        return size * nugget

    def first_nugget(self, y: Tensor) -> float:
        """A quarter of the outcomes' variance, estimated robustly."""
        spread = SPREAD * float((y - y.median()).abs().median())
        return SHARE * spread**2 if spread > 0.0 else 1.0

    def next_nugget(self, m: Tensor, v: Tensor, y: Tensor, size: Tensor, nugget: Tensor) -> Tensor:
        """A step of parameter-expanded EM."""
        weight = self.weights(m, v, y, size * nugget)
        return (weight * self._square(m, v, y) / size).sum() / weight.sum()

    # -- sites -----------------------------------------------------------------------------------

    def _square(self, m: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Expected squared residuals."""
        return (y - m).square() + v

    def weights(self, m: Tensor, v: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Expected precisions, in units of the squared scale; small for outliers."""
        return (self.df + 1.0) / (self.df + self._square(m, v, y) / size)

    def precisions(self, m: Tensor, v: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Precisions of the sites, whose targets are the outcomes."""
        return self.weights(m, v, y, size) / size

    def bound(self, m: Tensor, v: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Lower bound of the expected log density."""
        return self.constant(y, size) + self._log(self._square(m, v, y), size)

    # -- density ---------------------------------------------------------------------------------

    def _log(self, square: Tensor, size: Tensor) -> Tensor:
        return -0.5 * (self.df + 1.0) * (square / (self.df * size)).log1p() - 0.5 * size.log()

    def log_density(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``-(df + 1) / 2 log(1 + (y - g)^2 / (df scale^2)) - log scale``."""
        return self._log((y - g).square(), size)

    def constant(self, y: Tensor, size: Tensor) -> Tensor:
        """The norm of t's density."""
        half = self.df / 2.0
        value = math.lgamma(half + 0.5) - math.lgamma(half) - 0.5 * math.log(self.df * math.pi)
        return torch.full_like(y, value)

    def log_marginal(self, mean: Tensor, variance: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """Over a fine grid of latent values, because the density may have two modes with them."""
        z = torch.linspace(-WIDE, WIDE, FINE).to(mean)
        g = mean.unsqueeze(-1) + variance.sqrt().unsqueeze(-1) * z
        logs = self.log_density(g, y.unsqueeze(-1), size.unsqueeze(-1)) - 0.5 * z.square()
        norm = (-0.5 * z.square()).logsumexp(-1)
        return logs.logsumexp(-1) - norm + self.constant(y, size)

    def slope(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``(df + 1) (y - g) / (df scale^2 + (y - g)^2)``."""
        return (self.df + 1.0) * (y - g) / (self.df * size + (y - g).square())

    def curvature(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """That of the Gaussian that bounds it from below at g."""
        return (self.df + 1.0) / (self.df * size + (y - g).square())

    def start(self, y: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """The outcome with the squared scale."""
        return y, size

    def cdf(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """By the incomplete beta function."""
        return of_numpy(special.stdtr, torch.full_like(y, self.df), (y - g) / size.sqrt())

    def sample(self, g: Tensor, size: Tensor, rng: np.random.Generator) -> Tensor:
        """Draws of t."""
        return g + size.sqrt() * torch.from_numpy(rng.standard_t(self.df, tuple(g.shape))).to(g)

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
