"""Cases in an exposure: Poisson, or clustered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch.nn.functional import softplus

from bo_stream.errors import InputError
from bo_stream.mathematics.sites.likelihood import LINEAR, Likelihood, at_least, of_numpy

__all__ = ["NegativeBinomial", "Poisson"]

HIGHEST = 60.0
"""Largest logarithm of a rate that is told from larger ones."""


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
        """``y g - exposure e^g``."""
        return y * g - self.information(g, size)

    def constant(self, y: Tensor, size: Tensor) -> Tensor:
        """``y log exposure - log y!``."""
        return y * size.log() - (y + 1).lgamma()

    def slope(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``y - mu``."""
        return y - self.information(g, size)

    def curvature(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``mu``."""
        return self.information(g, size)

    def start(self, y: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithm of the rate with half a count added."""
        return ((y + 0.5) / size).log(), 1.0 / (y + 0.5)

    def cdf(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """By the incomplete gamma function."""
        made = of_numpy(special.gammaincc, y.clamp_min(0.0) + 1.0, self.information(g, size))
        return torch.where(y < 0.0, 0.0, made)

    def sample(self, g: Tensor, size: Tensor, rng: np.random.Generator) -> Tensor:
        """Poisson draws."""
        return of_numpy(rng.poisson, self.information(g, size)).to(g)

    def response(self, g: Tensor) -> Tensor:
        """The rate of one unit of exposure."""
        return g.clamp_max(HIGHEST).exp()

    def response_slope(self, g: Tensor) -> Tensor:
        """The rate."""
        return self.response(g)

    def information(self, g: Tensor, size: Tensor) -> Tensor:
        """``mu = exposure e^g``."""
        return size * self.response(g)

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
        if not at_least(self.shape, 1e-6):
            raise InputError("a shape above 0", repr(self.shape), "1 is a geometric spread.")

    def _odds(self, g: Tensor, size: Tensor) -> Tensor:
        """``log(mu / shape)``."""
        return g + (size / self.shape).log()

    def log_density(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``y g - (y + shape) log(1 + mu / shape)``."""
        return y * g - (y + self.shape) * softplus(self._odds(g, size), threshold=LINEAR)

    def constant(self, y: Tensor, size: Tensor) -> Tensor:
        """Logarithm of the number of ways, and of the exposure."""
        shape = torch.as_tensor(self.shape).to(y)
        ways = (y + shape).lgamma() - shape.lgamma() - (y + 1).lgamma()
        return ways + y * (size / shape).log()

    def slope(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``y - (y + shape) mu / (mu + shape)``."""
        return y - (y + self.shape) * self._odds(g, size).sigmoid()

    def curvature(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """``(y + shape) s (1 - s)``, with ``s = mu / (mu + shape)``."""
        share = self._odds(g, size).sigmoid()
        return (y + self.shape) * share * (1.0 - share)

    def start(self, y: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithm of the rate with half a count added."""
        return ((y + 0.5) / size).log(), 1.0 / (y + 0.5) + 1.0 / self.shape

    def most_precise(self, y: Tensor, size: Tensor) -> Tensor:
        """``(y + shape) / 4``."""
        return (y + self.shape) / 4.0

    def cdf(self, g: Tensor, y: Tensor, size: Tensor) -> Tensor:
        """By the incomplete beta function."""
        shape = torch.full_like(y, self.shape)
        share = (-self._odds(g, size)).sigmoid()
        made = of_numpy(special.betainc, shape, y.clamp_min(0.0) + 1.0, share)
        return torch.where(y < 0.0, 0.0, made)

    def sample(self, g: Tensor, size: Tensor, rng: np.random.Generator) -> Tensor:
        """Negative binomial draws."""
        share = (-self._odds(g, size)).sigmoid()
        return of_numpy(rng.negative_binomial, torch.full_like(g, self.shape), share).to(g)

    def information(self, g: Tensor, size: Tensor) -> Tensor:
        """``shape mu / (mu + shape)``."""
        return self.shape * self._odds(g, size).sigmoid()
