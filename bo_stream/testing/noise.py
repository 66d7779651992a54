"""Contract: learned noise, known noise, known noise of learned scale."""

from __future__ import annotations

import pytest
import torch
from botorch.sampling.normal import SobolQMCNormalSampler
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from torch import Size

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import NoiseError, UnsupportedError
from bo_stream.testing.base import Contract, assert_same_posterior, close

__all__ = ["NoiseContract"]


class NoiseContract(Contract):
    """The three noise models agree where they mean the same; whatever `noise` says."""

    def test_equal_known_noise_is_learned_noise(self) -> None:
        """Numbers that float32 holds: gpytorch's setters round a Python float to it."""
        self.require(self.build(4), "takes_modules")
        X, Y, _ = self.data(14)
        none, points = (X[:0], Y[:0]), self.points(3, 4)
        learned = self.plain(*none, bounds=self.bounds, likelihood=GaussianLikelihood())
        learned.likelihood.noise = 0.0625
        known = self.plain(*none, Y[:0], bounds=self.bounds)
        scaled = self.plain(*none, Y[:0], bounds=self.bounds, likelihood=GaussianLikelihood())
        scaled.likelihood.noise = 0.25
        learned.observe(X, Y)
        for model, value in ((known, 0.0625), (scaled, 0.25)):
            Yvar = torch.full_like(Y, value)
            model.observe(X, Y, Yvar)
            assert_same_posterior(model, learned, points)
            noisy = model.posterior(points, observation_noise=True)
            close(noisy.variance, learned.posterior(points, observation_noise=True).variance)
            close(model.log_predictive(X, Y, Yvar), learned.log_predictive(X, Y))

    def test_noise_matters_point_by_point(self) -> None:
        """A point of small noise is fitted, one of large noise is not."""
        X, Y = self.points(2, seed=3), torch.tensor([[1.0], [-1.0]], dtype=self.dtype)
        Yvar = torch.tensor([[1e-3], [1e3]], dtype=self.dtype)
        model = self.plain(X, Y, Yvar, bounds=self.bounds)
        error = (model.posterior(X).mean - Y).abs()
        assert error[0] < 0.05 and error[1] > 0.5

    def test_running_mean_of_known_noise(self) -> None:
        """What `fantasize` and `observation_noise=True` use where noise is known."""
        X, Y, _ = self.data(6)
        Yvar = torch.linspace(0.1, 0.6, 6, dtype=self.dtype).unsqueeze(-1)
        model: StreamingGP = self.plain(X[:2], Y[:2], Yvar[:2], bounds=self.bounds)
        model.observe(X[2:], Y[2:], Yvar[2:])
        Z = self.points(3, 2)
        added = model.posterior(Z, observation_noise=True).variance - model.posterior(Z).variance
        close(added, torch.full_like(added, float(Yvar.mean())), 1e-10)
        close(model.likelihood.noise.mean(), Yvar.mean(), 1e-10)
        sampler = SobolQMCNormalSampler(Size([3]), seed=3)
        given = model.fantasize(Z, sampler)
        noise = Yvar.mean().expand(2, 1)
        expected = model.fantasize(Z, sampler, observation_noise=noise)
        assert_same_posterior(given, expected, self.points(3, 4))

    @pytest.mark.parametrize("scaled", [False, True])
    def test_conditioning_on_known_noise(self, scaled: bool) -> None:
        """The noise of the points given, by default the mean of what was seen."""
        X, Y, _ = self.data(8)
        Yvar = torch.linspace(0.1, 0.8, 8, dtype=self.dtype).unsqueeze(-1)
        likelihood = GaussianLikelihood() if scaled else None
        model: StreamingGP = self.plain(X, Y, Yvar, bounds=self.bounds, likelihood=likelihood)
        Z, targets, points = self.points(3, seed=7), self.points(3, seed=8)[:, :1], self.points(4)
        for noise in (None, 0.05 + targets.square()):
            given = model.condition_on_observations(Z, targets, noise=noise)
            batched = model.condition_on_observations(Z[None], targets[None], noise=noise)
            close(given.posterior(points).mean, batched.posterior(points).mean[0])
            close(given.posterior(points).variance, batched.posterior(points).variance[0])

    def test_known_noise_with_nothing_seen(self) -> None:
        X, Y, _ = self.data(0)
        model: StreamingGP = self.plain(X, Y, Y, bounds=self.bounds)
        Z, sampler = self.points(2), SobolQMCNormalSampler(Size([3]), seed=3)
        with pytest.raises(NoiseError, match="Tensor"):
            model.fantasize(Z, sampler)
        with pytest.raises(NoiseError, match="Tensor"):
            model.posterior(Z, observation_noise=True)
        noise = torch.full((2, 1), 0.1, dtype=self.dtype)
        assert model.fantasize(Z, sampler, observation_noise=noise).batch_shape == Size([3])
        model.condition_on_observations(Z, Z[:, :1], noise=noise)

    def test_additional_noise_is_refused(self) -> None:
        X, Y, _ = self.data(6)
        Yvar = torch.full_like(Y, 0.1)
        likelihood = FixedNoiseGaussianLikelihood(Yvar[:, 0], learn_additional_noise=True)
        with pytest.raises(UnsupportedError, match="GaussianLikelihood"):
            self.plain(X, Y, Yvar, bounds=self.bounds, likelihood=likelihood)
        with pytest.raises(UnsupportedError):
            self.plain(
                X, Y, bounds=self.bounds, likelihood=FixedNoiseGaussianLikelihood(Yvar[:, 0])
            )

    def test_noise_per_output(self) -> None:
        outputs = self.outputs_of(2)
        X, Y, _ = self.data(6, outputs=outputs)
        Yvar = torch.tensor([0.1, 0.5], dtype=self.dtype).expand(6, 2)
        model = self.plain(X, Y, Yvar, bounds=self.bounds)
        added = model.posterior(X, observation_noise=True).variance - model.posterior(X).variance
        close(added, Yvar, 1e-10)
