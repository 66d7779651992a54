"""Contract: fantasies are conditioned on samples, share their covariance, and nest."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from botorch.exceptions.errors import DeprecationError
from botorch.sampling.normal import IIDNormalSampler, SobolQMCNormalSampler
from torch import Size, Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import BoStreamError
from bo_stream.testing.base import assert_same_state, close, snapshot
from bo_stream.testing.conditioning import ConditioningContract

__all__ = ["FantasyContract"]


class FantasyContract(ConditioningContract):
    """`fantasize`: BoTorch's samplers, observation noise, batches and nesting."""

    def fantasies(self, model: StreamingGP, X: Tensor, f: int = 3) -> tuple[Any, Tensor]:
        """Fantasies at X, and the outcomes they were conditioned on."""
        sampler = SobolQMCNormalSampler(Size([f]), seed=3)
        given = model.fantasize(X, sampler)
        Y = sampler(model.posterior(X, observation_noise=True))  # base samples are kept
        return given, Y

    def test_fantasies_are_conditioned_on_samples(self) -> None:
        model = self.build()
        X, points = self.points(2, 2, seed=7), self.points(2, 4)
        given, Y = self.fantasies(model, X)
        assert given.batch_shape == Size([3, 2])
        self.assert_conditioned(given, model, X, Y, self.default_noise(model), points)

    def test_fantasy_is_a_real_update(self) -> None:
        model = self.build()
        self.require(model, "order_invariant")
        before = snapshot(model)
        X, points = self.points(2, seed=7), self.points(4)
        given, Y = self.fantasies(model, X)
        noise = self.default_noise(model).expand(2, 1)
        scale = model.likelihood.noise.detach() if self.noise == "scaled" else 1.0
        Yvar = None if self.noise == "learned" else noise / scale
        posterior = given.posterior(points)
        for i in range(3):
            real = copy.deepcopy(model).observe(X, Y[i], Yvar)
            close(posterior.mean[i], real.posterior(points).mean)
            close(posterior.variance[i], real.posterior(points).variance)
        assert_same_state(before, snapshot(model))

    def test_nested_fantasies(self) -> None:
        model = self.build()
        X1, X2, points = self.points(2, 1, seed=7), self.points(2, 2, seed=8), self.points(2, 3)
        first, Y1 = self.fantasies(model, X1)
        sampler = SobolQMCNormalSampler(Size([4]), seed=4)
        second = first.fantasize(X2, sampler, propagate_grads=True)
        assert second.batch_shape == Size([4, 3, 2])
        Y2 = sampler(first.posterior(X2, observation_noise=True))
        X = torch.cat([X1, X2], -2)
        Y = torch.cat([Y1.expand(4, -1, -1, -1, -1), Y2], -2)
        noise = self.default_noise(model)
        self.assert_conditioned(second, model, X, Y, noise, points)

    def test_fantasies_of_several_outputs(self) -> None:
        model = self.build(outputs=self.outputs_of(2))
        X, points = self.points(2, 2, seed=7), self.points(2, 4)
        given, Y = self.fantasies(model, X)
        assert given.num_outputs == 2 and Y.shape == (3, 2, 2, 2)
        self.assert_conditioned(given, model, X, Y, self.default_noise(model), points)

    def test_fantasies_with_given_noise(self) -> None:
        model = self.build()
        X, points = self.points(3, 2, seed=7), self.points(3, 4)
        for shape in ((1, 1), (3, 2, 1)):
            noise = 0.01 + self.values(*shape, seed=3).square()
            sampler = IIDNormalSampler(Size([3]), seed=3)
            given = model.fantasize(X, sampler, observation_noise=noise)
            Y = sampler(model.posterior(X, observation_noise=noise))
            self.assert_conditioned(given, model, X, Y, noise, points)

    def test_fantasies_at_no_points(self) -> None:
        model = self.build()
        given = model.fantasize(self.points(3, 0), SobolQMCNormalSampler(Size([2]), seed=1))
        points = self.points(3, 4)
        close(given.posterior(points).variance[0], model.posterior(points).variance)

    def test_boolean_noise_is_refused(self) -> None:
        model = self.build()
        with pytest.raises((BoStreamError, DeprecationError)):
            model.fantasize(
                self.points(2),
                SobolQMCNormalSampler(Size([2])),
                observation_noise=True,
            )
