"""Predictions of responses and of future outcomes, from latent marginals (MATHS 11.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from bo_stream.errors import InputError
from bo_stream.likelihoods import Likelihood
from bo_stream.mathematics.outcomes import OutcomeDistribution
from bo_stream.mathematics.quadrature import expected, fine_nodes

__all__ = ["OutcomePrediction", "Response"]

HALVINGS, REACH = 60, 1e4
"""Steps of bisection; standard deviations within which quantiles of measurements are sought."""


@dataclass(frozen=True)
class Response(OutcomeDistribution):
    """The distribution of the response at each of ``n`` points: a prevalence, or a rate."""

    @classmethod
    def of(cls, likelihood: Likelihood, mean: Tensor, variance: Tensor) -> Self:
        """That of latent values of these means and variances, each ``n``."""
        one = mean.new_ones(1)
        return cls(one, mean.unsqueeze(0), variance.unsqueeze(0), likelihood.response)

    @property
    def latent_mean(self) -> Tensor:
        """Means of the latent values, ``n``."""
        return self.means[0]

    @property
    def latent_variance(self) -> Tensor:
        """Variances of the latent values, ``n``."""
        return self.variances[0]


@dataclass(frozen=True)
class OutcomePrediction:
    """The distribution of a future outcome at each of ``n`` points.

    Attributes:
        likelihood: The likelihood of the outcomes.
        latent_mean: Means of the latent values g, ``n``.
        latent_variance: Their variances, ``n``.
        size: Trials, exposures, or ones, ``n``.
    """

    likelihood: Likelihood
    latent_mean: Tensor
    latent_variance: Tensor
    size: Tensor

    @property
    def mean(self) -> Tensor:
        """Expected outcomes, ``n``."""
        response = expected(self.likelihood.response, self.latent_mean, self.latent_variance)
        return self.size * response if self.likelihood.whole else response

    def log_prob(self, k: Any) -> Tensor:
        """Log probability of outcomes, ``n``.

        Args:
            k: ``n`` outcomes.

        Raises:
            ShapeError, InputError: for outcomes that cannot occur.
        """
        y, _ = self.likelihood.read(k, self.size, self.latent_mean.unsqueeze(-1))
        return self._log_prob(y)

    def _log_prob(self, y: Tensor) -> Tensor:
        latent = self.latent_mean, self.latent_variance
        return self.likelihood.log_marginal(*latent, y, self.size)

    def pmf(self, most: int | None = None) -> Tensor:
        """Probabilities of 0, 1, ..., ``most`` outcomes: ``n x (most + 1)``. O(n most).

        Args:
            most: By default the largest number of trials; needed where there is no largest outcome.

        Raises:
            InputError: if ``most`` is not a number of 0 or more.
        """
        if not self.likelihood.whole:
            raise InputError("counts", "measurements", "Use `log_prob`, a density.")
        limit = self.likelihood.limit(self.size)
        if most is None and bool(limit.isfinite().all()):
            most = int(limit.max()) if len(limit) else 0
        if not isinstance(most, int) or most < 0:
            raise InputError("`most`, the largest count", repr(most), "Give it: there is no limit.")
        y = torch.arange(most + 1).to(limit).unsqueeze(-1)
        possible = y <= limit
        chances = self._log_prob(torch.where(possible, y, 0.0)).exp()
        return torch.where(possible, chances, 0.0).mT

    def cdf(self, k: Tensor) -> Tensor:
        """Probability of at most ``k``, which broadcasts with ``n``."""
        g, log_weights = fine_nodes(self.latent_mean, self.latent_variance)
        below = self.likelihood.cdf(g, k.unsqueeze(-1), self.size.unsqueeze(-1))
        return (below * log_weights.exp()).sum(-1)

    def quantiles(self, levels: Sequence[float]) -> Tensor:
        """The smallest outcomes whose probability of not being exceeded is at least each level,
        ``len(levels) x n``.

        Raises:
            InputError: for levels outside (0, 1).
        """
        asked = torch.as_tensor(list(levels), dtype=torch.float64, device=self.size.device)
        if not bool(((asked > 0.0) & (asked < 1.0)).all()):
            raise InputError(
                "levels between 0 and 1", f"{list(levels)}", "0.05 and 0.95 are usual."
            )
        asked, whole = asked.unsqueeze(-1).expand(-1, len(self.size)), self.likelihood.whole
        if whole:
            typical = self.size * self.likelihood.response(self.latent_mean)
            low, high = torch.full_like(asked, -1.0), (2.0 * typical + 1.0).floor().expand_as(asked)
        else:
            wide = REACH * (self.latent_variance + self.size).sqrt().expand_as(asked)
            low, high = self.latent_mean - wide, self.latent_mean + wide
        for _ in range(HALVINGS):
            enough = self.cdf(high) >= asked
            if bool(enough.all()):
                break
            low, high = torch.where(enough, low, high), torch.where(enough, high, 2.0 * high)
        for _ in range(HALVINGS):
            if whole and bool((high - low <= 1.0).all()):
                break
            middle = (low + high) / 2.0
            middle = middle.floor() if whole else middle
            enough = self.cdf(middle) >= asked
            low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
        return high.minimum(self.likelihood.limit(self.size))

    def sample(self, draws: int, seed: int = 0) -> Tensor:
        """Independent draws of the outcomes, ``draws x n``."""
        rng = np.random.default_rng(seed)
        z = torch.from_numpy(rng.standard_normal((draws, len(self.size)))).to(self.size)
        g = self.latent_mean + self.latent_variance.sqrt() * z
        return self.likelihood.sample(g, self.size, rng)
