"""The contract of a likelihood: its derivatives, its distribution, and a surrogate that uses it."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from bo_stream.likelihoods import Likelihood
from bo_stream.surrogates.counts import CountGP

__all__ = ["LikelihoodContract"]


class LikelihoodContract:
    """What `CountGP` needs of a likelihood.

    Attributes:
        likelihood: The likelihood under test.
        outcomes: Possible outcomes, ``n``, among them the smallest and the largest.
        sizes: Their trials or exposures, ``n``.
        latent: Latent values at which the density is looked at.
    """

    likelihood: ClassVar[Likelihood]
    outcomes: ClassVar[list[float]]
    sizes: ClassVar[list[float]]
    latent: ClassVar[list[float]] = [-6.0, -1.5, 0.0, 0.7, 2.0]

    @pytest.fixture
    def points(self) -> tuple[Tensor, Tensor, Tensor]:
        """Every latent value ``k x n`` with every outcome and size, ``n``."""
        y, size = torch.tensor([self.outcomes, self.sizes], dtype=torch.float64)
        g = torch.tensor(self.latent, dtype=torch.float64)[:, None].expand(-1, len(y))
        return g.clone(), y, size

    def test_the_density_is_that_of_the_distribution(
        self, points: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        g, y, size = points
        frozen = self.likelihood.distribution(g, size)
        expected = (frozen.logpmf if self.likelihood.whole else frozen.logpdf)(y.numpy())
        found = self.likelihood.log_density(g, y, size)
        torch.testing.assert_close(found, torch.as_tensor(expected), rtol=1e-9, atol=1e-9)

    def test_slope_and_curvature_are_derivatives(
        self, points: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        g, y, size = points
        g.requires_grad_()
        (slope,) = torch.autograd.grad(
            self.likelihood.log_density(g, y, size).sum(), g, create_graph=True
        )
        (second,) = torch.autograd.grad(slope.sum(), g)
        torch.testing.assert_close(self.likelihood.slope(g, y, size), slope, rtol=1e-7, atol=1e-9)
        curvature = self.likelihood.curvature(g, y, size)
        assert bool((curvature >= 0.0).all())
        if bool((second <= 0.0).all()):  # otherwise an expected curvature takes its place
            torch.testing.assert_close(curvature, -second, rtol=1e-7, atol=1e-9)

    def test_the_response_rises_with_its_slope(self, points: tuple[Tensor, Tensor, Tensor]) -> None:
        g = points[0][:, 0].requires_grad_()
        response = self.likelihood.response(g)
        assert bool((response.diff() > 0.0).all())
        (slope,) = torch.autograd.grad(response.sum(), g)
        torch.testing.assert_close(self.likelihood.response_slope(g), slope)

    def test_information_is_the_expected_curvature(
        self, points: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        if not self.likelihood.whole:
            pytest.skip("summed over whole outcomes")
        g, _, size = points
        frozen = self.likelihood.distribution(g, size)
        y = torch.arange(float(np.max(frozen.ppf(1.0 - 1e-12))) + 1.0).to(g)[:, None, None]
        chance = torch.as_tensor(frozen.pmf(y.numpy()))
        terms = chance * self.likelihood.curvature(g, y, size)
        expected = terms.where(chance > 0.0, 0.0).sum(0)
        found = self.likelihood.information(g, size)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)

    def test_a_first_site_is_near_the_likelihood(
        self, points: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        _, y, size = points
        mean, variance = self.likelihood.start(y, size)
        assert bool(mean.isfinite().all()) and bool((variance > 0.0).all())
        assert math.isfinite(float(self.likelihood.pooled(y, size)))

    def test_a_surrogate_learns_from_draws(self) -> None:
        X = torch.rand(300, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        low, high = self.latent[1], self.latent[3]
        g = low + (high - low) * (3.0 * X[:, 0]).sin()
        size = torch.full_like(g, max(self.sizes))
        y = self.likelihood.sample(g, size, np.random.default_rng(0))
        bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        options: dict[str, Any] = {"likelihood": self.likelihood, "surrogate": "hsgp"}
        model = CountGP(X, y, size, bounds=bounds, **options)
        assert math.isfinite(model.fit(20).value)
        expected = self.likelihood.response(g)
        error = (model.response(X, nugget=False).mean - expected).abs().mean()
        assert float(error) < 0.8 * float((expected - expected.mean()).abs().mean())
