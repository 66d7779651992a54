"""Contract: conditioning and fantasies are Gaussian conditioning of the own posterior."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
import torch
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.normal import SobolQMCNormalSampler
from torch import Size, Tensor

from bo_stream.base.gaussian_model import ConditionedPosterior, GaussianModel
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import UnsupportedError
from bo_stream.testing import oracles
from bo_stream.testing.base import (
    Contract,
    assert_same_posterior,
    assert_same_state,
    close,
    snapshot,
)

__all__ = ["ConditioningContract"]

# Batches of X, of Y and of the test points
BATCHES: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ((3,), (3,), (3,)),
    ((3,), (3,), ()),
    ((), (4,), ()),
    ((), (4,), (4,)),
    ((3,), (4, 3), (3,)),
    ((3,), (4, 3), (4, 3)),
    ((2,), (2, 3, 2), (2,)),
    ((1, 3), (4, 3), (3,)),
]


class ConditioningContract(Contract):
    """`condition_on_observations`, `fantasize` and the conditioned posterior they return."""

    def values(self, *shape: int, seed: int = 5) -> Tensor:
        """Outcomes to condition on, ``shape``."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(self.dtype)

    def test_what_was_conditioned_is_a_snapshot(self) -> None:
        """Neither the caller's tensors nor a later fit of the parent reach it."""
        model, points = self.build(), self.points(4)
        X, Y, noise = self.points(2, 3), self.values(2, 3, 1), torch.full((2, 3, 1), 0.2)
        noise = noise.to(self.dtype)
        sampler = SobolQMCNormalSampler(Size([2]), seed=3)
        made = [
            model.condition_on_observations(X, Y),
            model.condition_on_observations(X, Y, noise=noise),
            model.fantasize(X, sampler),
        ]
        before = [m.posterior(points).mean for m in made]
        for t in (X, Y, noise):
            t.fill_(0.7)
        if self.noise == "known":
            model.observe(*self.data(5, seed=9))
        else:
            model.likelihood.noise = 0.9
        for m, mean in zip(made, before, strict=True):
            assert torch.equal(m.posterior(points).mean, mean)

    def posterior_given(
        self, model: StreamingGP, X: Tensor, Y: Tensor, noise: Tensor, points: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The oracle, one at a time: mean ``batch x p x m``, covariance ``batch x m x p x p``."""
        batch = torch.broadcast_shapes(X.shape[:-2], Y.shape[:-2], points.shape[:-2])
        X, Y, noise, points = (
            t.expand(*batch, *t.shape[-2:]).reshape(-1, *t.shape[-2:])
            for t in (X, Y, noise.expand(*noise.shape[:-2], *Y.shape[-2:]), points)
        )
        means, covs = [], []
        for x, y, d, p in zip(X, Y, noise, points, strict=True):
            for o in range(Y.shape[-1]):
                both = model.posterior(torch.cat([x, p]), output_indices=[o])
                joint = cast(GPyTorchPosterior, both).distribution
                posterior = oracles.condition(joint.mean, joint.covariance_matrix, y[:, o], d[:, o])
                means.append(posterior[0])
                covs.append(posterior[1])
        m, p = Y.shape[-1], points.shape[-2]
        mean = torch.stack(means).reshape(*batch, m, p)
        return mean.mT, torch.stack(covs).reshape(*batch, m, p, p)

    def assert_conditioned(
        self, given: Any, model: StreamingGP, X: Tensor, Y: Tensor, noise: Tensor, points: Tensor
    ) -> None:
        """`given` is `model` conditioned on the data, by the oracle, at `points`."""
        mean, cov = self.posterior_given(model, X, Y, noise, points)
        posterior = given.posterior(points)
        close(posterior.mean, mean)
        close(posterior.variance, cov.diagonal(dim1=-2, dim2=-1).mT)
        for o in range(Y.shape[-1]):
            part = given.posterior(points, output_indices=[o])
            close(part.distribution.covariance_matrix, cov[..., o, :, :])

    def default_noise(self, model: StreamingGP) -> Tensor:
        """The noise of a typical observation, as a posterior shows it, ``m``."""
        x = self.points(1)
        noisy, clean = model.posterior(x, observation_noise=True), model.posterior(x)
        return (noisy.variance - clean.variance).reshape(-1).detach()

    # -- conditioning ----------------------------------------------------------------------------

    def test_unbatched_conditioning(self) -> None:
        model = self.build()
        before = snapshot(model)
        X, Y = self.points(3, seed=7), self.values(3, 1)
        given = model.condition_on_observations(X, Y)
        assert isinstance(given, ConditionedPosterior) and given.batch_shape == Size()
        assert_same_state(before, snapshot(model))
        self.assert_conditioned(given, model, X, Y, self.default_noise(model), self.points(5))

    def test_unbatched_conditioning_with_noise(self) -> None:
        model = self.build()
        X, Y, noise = self.points(3, seed=7), self.values(3, 1), self.values(3, 1).square() + 0.01
        given = model.condition_on_observations(X, Y, noise=noise)
        self.assert_conditioned(given, model, X, Y, noise, self.points(5))

    def test_a_copy_learns_on(self) -> None:
        model = self.build()
        before, (X, Y, Yvar) = snapshot(model), self.data(3, seed=9)
        other = copy.deepcopy(model).observe(X, Y, Yvar)
        assert other.num_observed == model.num_observed + 3
        assert_same_state(before, snapshot(model))

    def test_batches(self) -> None:
        model = self.build()
        for x, y, p in BATCHES:
            X, Y, points = self.points(*x, 2, seed=7), self.values(*y, 2, 1), self.points(*p, 4)
            given = model.condition_on_observations(X, Y)
            assert isinstance(given, ConditionedPosterior)
            assert given.batch_shape == torch.broadcast_shapes(x, y)
            assert given.num_outputs == 1
            self.assert_conditioned(given, model, X, Y, self.default_noise(model), points)

    def test_noise_per_observation(self) -> None:
        model = self.build()
        X, Y, points = self.points(3, 2, seed=7), self.values(4, 3, 2, 1), self.points(4)
        for shape in ((2, 1), (1, 1), (3, 2, 1), (4, 3, 2, 1)):
            noise = 0.01 + self.values(*shape, seed=3).square()
            given = model.condition_on_observations(X, Y, noise=noise)
            self.assert_conditioned(given, model, X, Y, noise, points)

    def test_noise_adds_batch_dimensions(self) -> None:
        """One conditioned posterior for each of several noise levels."""
        model = self.build()
        X, Y, points = self.points(3, 2, seed=7), self.values(3, 2, 1), self.points(3, 4)
        noise = 0.01 + self.values(4, 1, 1, 1, seed=3).square()
        given = model.condition_on_observations(X, Y, noise=noise)
        assert given.batch_shape == Size([4, 3])
        every = Y.expand(4, 3, 2, 1)
        self.assert_conditioned(given, model, X, every, noise.expand_as(every), points)

    def test_conditioning_several_outputs(self) -> None:
        model = self.build(outputs=self.outputs_of(2))
        before = snapshot(model)
        X, Y, points = self.points(3, 2, seed=7), self.values(4, 3, 2, 2), self.points(3, 4)
        given = model.condition_on_observations(X, Y)
        assert given.num_outputs == 2
        self.assert_conditioned(given, model, X, Y, self.default_noise(model), points)
        unbatched = model.condition_on_observations(X[0], Y[0, 0])
        noise = self.default_noise(model)
        self.assert_conditioned(unbatched, model, X[0], Y[0, 0], noise, points[0])
        assert_same_state(before, snapshot(model))

    def test_parent_is_a_snapshot(self) -> None:
        """A conditioned posterior keeps its meaning when its parent observes or changes."""
        model = self.build()
        given = model.condition_on_observations(self.points(3, 2, seed=7), self.values(3, 2, 1))
        X = self.points(3, 4)
        before = given.posterior(X)
        mean, variance = before.mean.clone(), before.variance.clone()
        model.observe(*self.data(5, seed=9))
        model.covar_module.outputscale = 3.0
        after = given.posterior(X)
        assert torch.equal(after.mean, mean) and torch.equal(after.variance, variance)

    def test_unbatched_data_may_come_in_parts(self) -> None:
        """Points that were seen already may be among them, and batches may follow."""
        model = self.build()
        X, Y, points = self.points(6, seed=7), self.values(6, 1), self.points(4)
        X[4], more = X[0], self.points(3, 2, seed=8)
        parts = model
        for some in torch.arange(6).split(2):
            parts = parts.condition_on_observations(X[some], Y[some])
        whole = model.condition_on_observations(X, Y)
        assert_same_posterior(parts, whole, points)
        batched = parts.condition_on_observations(more, more[..., :1])
        X, Y = (
            torch.cat([t.expand(3, -1, -1), later], -2)
            for t, later in ((X, more), (Y, more[..., :1]))
        )
        assert_same_posterior(batched, model.condition_on_observations(X, Y), self.points(3, 4))

    def test_conditioning_twice_is_conditioning_once(self) -> None:
        model = self.build()
        X, Y, points = self.points(3, 4, seed=7), self.values(2, 3, 4, 1), self.points(3, 4)
        first = model.condition_on_observations(X[:, :1], Y[..., :1, :])
        twice = first.condition_on_observations(X[:, 1:], Y[..., 1:, :])
        assert isinstance(twice, ConditionedPosterior) and twice.batch_shape == Size([2, 3])
        assert_same_posterior(twice, model.condition_on_observations(X, Y), points)

    def test_nested_batches(self) -> None:
        """Fantasies of fantasies: leading dimensions pile up; one conditioning on all is equal."""
        model = self.build()
        X1, X2 = self.points(3, 2, seed=7), self.points(3, 2, seed=8)
        Y1, Y2 = self.values(2, 3, 2, 1), self.values(4, 2, 3, 2, 1, seed=6)
        nested = model.condition_on_observations(X1, Y1).condition_on_observations(X2, Y2)
        assert nested.batch_shape == Size([4, 2, 3])
        X, Y = torch.cat([X1, X2], -2), torch.cat([Y1.expand(4, -1, -1, -1, -1), Y2], -2)
        assert_same_posterior(nested, model.condition_on_observations(X, Y), self.points(3, 4))

    def test_variance_is_shared_by_fantasies(self) -> None:
        """What autograd keeps grows with the fantasies' means only, not with their covariance."""
        model = self.build()
        X, points = self.points(3, 2, seed=7).requires_grad_(), self.points(3, 20)

        def kept(f: int) -> int:
            given = model.condition_on_observations(X, self.values(f, 3, 2, 1))
            sizes: dict[int, int] = {}

            def pack(t: Tensor) -> Tensor:
                sizes[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
                return t

            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                held = given.posterior(points).variance
            assert held.shape == (f, 3, 20, 1)
            assert torch.equal(held[0], held[-1])
            return sum(sizes.values())

        model.posterior(points)
        few, many = kept(1), kept(101)
        means = 100 * 3 * 20 * 8  # one f x b x p tensor of float64
        assert many - few < 8 * means, "the covariance is expanded over fantasies"

    def test_no_observations(self) -> None:
        model = self.build()
        points = self.points(4)
        same = model.condition_on_observations(self.points(0), self.values(0, 1))
        assert_same_posterior(same, model, points)
        batched = model.condition_on_observations(self.points(3, 0), self.values(3, 0, 1))
        assert_same_posterior(batched, model, points.expand(3, -1, -1), tolerance=1e-10)

    def test_coinciding_points(self) -> None:
        """Two equal candidates, with and without noise: finite, and no variance below zero."""
        model = self.build()
        X = self.points(3, 1, seed=7).expand(3, 2, self.dim)
        for noise in (None, torch.zeros(2, 1, dtype=self.dtype)):
            given = model.condition_on_observations(X, self.values(3, 2, 1), noise=noise)
            posterior = given.posterior(torch.cat([X, self.points(3, 2)], -2))
            assert posterior.mean.isfinite().all() and posterior.variance.isfinite().all()
            assert (posterior.variance > -1e-8).all()

    # -- the conditioned posterior as a model ----------------------------------------------------

    @pytest.mark.parametrize("method", ["observe", "fit", "log_evidence"])
    def test_a_conditioned_posterior_does_not_learn(self, method: str) -> None:
        given = self.build().condition_on_observations(self.points(3, 2), self.values(3, 2, 1))
        assert not hasattr(given, method)
        with pytest.raises(UnsupportedError, match="Use the surrogate"):
            getattr(given, method)

    def test_a_conditioned_posterior_is_a_model(self) -> None:
        model = self.build()
        given = model.condition_on_observations(self.points(3, 2), self.values(3, 2, 1))
        assert isinstance(given, GaussianModel)
        assert given.likelihood is model.likelihood
        assert given.eval() is given and not given.training
        noisy = given.posterior(self.points(3, 4), observation_noise=True).variance
        clean = given.posterior(self.points(3, 4)).variance
        close(noisy - clean, self.default_noise(model).expand(3, 4, 1), 1e-10)
        noise = torch.full((3, 4, 1), 0.3, dtype=self.dtype)
        noisy = given.posterior(self.points(3, 4), observation_noise=noise).variance
        close(noisy - clean, noise, 1e-10)

    def test_outputs_of_a_conditioned_posterior(self) -> None:
        model = self.build(outputs=self.outputs_of(2))
        X, points = self.points(3, 2, seed=7), self.points(3, 4)
        given = model.condition_on_observations(X, self.values(4, 3, 2, 2))
        whole = given.posterior(points)
        for o in (0, 1):
            part = given.subset_output([o]).posterior(points)
            close(part.mean, whole.mean[..., [o]], 1e-12)
            close(part.variance, whole.variance[..., [o]], 1e-12)
            again = given.subset_output([o]).fantasize(X, SobolQMCNormalSampler(Size([2]), seed=1))
            assert again.batch_shape == Size([2, 4, 3]) and again.num_outputs == 1
