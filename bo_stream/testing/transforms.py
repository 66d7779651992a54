"""Contract: transforms are frozen. A stream must not relearn its scales from each batch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms.input import (
    AppendFeatures,
    ChainedInputTransform,
    FilterFeatures,
    Round,
    Warp,
)
from botorch.models.transforms.outcome import ChainedOutcomeTransform, Log
from botorch.optim.optimize import optimize_acqf
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.transformed import TransformedPosterior
from botorch.sampling.normal import SobolQMCNormalSampler
from gpytorch.kernels import ScaleKernel
from gpytorch.priors import LogNormalPrior
from torch import Size, Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import InputError, UnsupportedError
from bo_stream.scores import marginals, quantiles
from bo_stream.testing.base import (
    Contract,
    assert_same_posterior,
    assert_same_state,
    close,
    snapshot,
)

__all__ = ["TransformContract"]


class TransformContract(Contract):
    """Learned once, used as they are, copied; refused where a stream cannot have them."""

    def test_data_outside_the_domain_are_refused(self) -> None:
        """What a transform makes NaN or infinite is refused before anything changes."""
        if self.noise != "learned":
            pytest.skip("a logarithm takes no variances")
        X, Y, _ = self.data(8)
        model = self.over(X, Y.exp(), outcome_transform=Log())
        before = snapshot(model)
        for call in (model.observe, model.log_predictive, model.condition_on_observations):
            with pytest.raises(InputError, match="outcome transform"):
                call(X, -Y.exp())
        assert_same_state(before, snapshot(model))

    def test_learned_once(self) -> None:
        """In training mode: from the constructor's data, never again."""
        X, Y, Yvar = self.data(14)
        outcomes = Standardize(1)
        model = self.over(X, Y, Yvar, outcome_transform=outcomes)
        close(model.outcome_transform.means, Y.mean(0, keepdim=True), 1e-12)
        close(model.outcome_transform.stdvs, Y.std(0, keepdim=True), 1e-12)
        means = model.outcome_transform.means.clone()
        more = self.data(10, seed=9)
        model.observe(more[0], 5.0 + 3.0 * more[1], more[2])
        model.fit(2)
        model.train()
        model.observe(more[0], 5.0 + 3.0 * more[1], more[2])
        model.posterior(X)
        assert torch.equal(model.state_dict()["outcome_transform.means"], means)
        assert not bool(outcomes.means.any()), "the user's object was not copied"

    def test_input_transform_learned_once(self) -> None:
        X, Y, Yvar = self.data(14)
        corners = torch.stack([self.bounds[0], self.bounds[1]])
        X = torch.cat([X, corners])  # so that the learned bounds are the bounds
        Y = torch.cat([Y, torch.zeros(2, 1, dtype=Y.dtype)])
        Yvar = None if Yvar is None else torch.cat([Yvar, Yvar[:2]])
        learner = Normalize(self.dim)
        model = self.over(X, Y, Yvar, input_transform=learner)
        fixed = self.over(X, Y, Yvar, input_transform=Normalize(self.dim, bounds=self.bounds))
        for m in (model, fixed):
            m.observe(*self.data(5, seed=9))
            m.train()
            m.posterior(X)
        assert_same_posterior(model, fixed, self.points(5))
        close(model.input_transform.bounds, self.bounds, 1e-12)
        assert not torch.equal(learner.bounds, model.input_transform.bounds)

    def test_eval_mode_is_used_as_it_is(self) -> None:
        X, Y, Yvar = self.data(14)
        given = Standardize(1)
        given(3.0 + 7.0 * Y)
        given.eval()
        means = given.means.clone()
        model = self.over(X, Y, Yvar, outcome_transform=given)
        assert torch.equal(model.outcome_transform.means, means)
        empty = self.over(*self.data(0), outcome_transform=given)
        if self.declared(model).order_invariant:
            assert_same_posterior(empty.observe(X, Y, Yvar), model, self.points(5))

    def test_nothing_to_learn_from(self) -> None:
        empty = self.data(0)
        with pytest.raises(InputError, match=r"eval"):
            self.over(*empty, outcome_transform=Standardize(1))
        with pytest.raises(InputError, match=r"eval|bounds"):
            self.over(*empty, input_transform=Normalize(self.dim))
        model = self.over(*empty, input_transform=Normalize(self.dim, bounds=self.bounds))
        assert model.posterior(self.points(3)).mean.isfinite().all()

    def test_learnable_transforms_are_refused(self) -> None:
        indices = list(range(self.dim))
        warp = Warp(
            d=self.dim,
            indices=indices,
            concentration0_prior=LogNormalPrior(0.0, 0.5),
            bounds=self.bounds,
        )
        with pytest.raises(UnsupportedError):
            self.build(input_transform=warp)

    def test_one_to_many_transforms_are_refused(self) -> None:
        features = torch.zeros(2, 1, dtype=self.dtype)
        with pytest.raises(UnsupportedError):
            self.build(
                input_transform=AppendFeatures(feature_set=features, transform_on_train=True)
            )

    @pytest.mark.parametrize("rows", [0, 14])
    @pytest.mark.parametrize("bounded", [True, False])
    def test_transforms_that_drop_inputs_are_refused(self, rows: int, bounded: bool) -> None:
        """Before anything is built, whether or not there are points or bounds to see it by."""
        model = self.build(4)
        if not bounded and type(model).needs_bounds:
            pytest.skip("needs bounds")
        data, bounds = self.data(rows), self.bounds if bounded else None
        none = FilterFeatures(torch.arange(self.dim - 1))
        chain = ChainedInputTransform(
            scale=Normalize(self.dim, bounds=self.bounds),
            some=FilterFeatures(torch.arange(max(1, self.dim - 1))),
            more=FilterFeatures(torch.arange(self.dim - 1)),
        )
        for transform in (none, chain):
            with pytest.raises(UnsupportedError, match="keeps the number of inputs"):
                self.plain(*data, bounds=bounds, input_transform=transform)

    def test_rounding(self) -> None:
        """`Round` takes part in everything; only what needs it undone is refused, by name."""
        last = [self.dim - 1]
        rounding = Round(integer_indices=last, approximate=False)
        model = self.build(input_transform=rounding)
        X = self.points(3, 2, seed=7)
        same = X.clone()
        same[..., last] = same[..., last].round()
        assert_same_posterior(model, Moved(model, same - X), X)
        model.observe(*self.data(5, seed=9))
        Y = torch.zeros(3, 2, 1, dtype=self.dtype)
        for given in (
            model.condition_on_observations(X[0], Y[0]),
            model.condition_on_observations(X, Y),
            model.fantasize(X, SobolQMCNormalSampler(Size([2]), seed=1)),
        ):
            assert_same_posterior(given, Moved(given, same - X), X)
        assert model.fit(3).evaluations <= 3
        assert model.log_predictive(*self.data(2, seed=8)).isfinite()
        sampler = SobolQMCNormalSampler(Size([8]), seed=1)
        acqf = qLogExpectedImprovement(model, best_f=0.1, sampler=sampler)
        found, _ = optimize_acqf(
            acqf, self.bounds, q=2, num_restarts=2, raw_samples=4, options={"maxiter": 3}
        )
        assert found.shape == (2, self.dim) and found.isfinite().all()
        if hasattr(type(model), "inducing_points"):
            with pytest.raises(UnsupportedError, match="invertible"):
                _ = model.inducing_points

    def test_standardized_is_rescaled(self) -> None:
        """With `Standardize`, the raw model under hyperparameters in raw units."""
        if self.kernel() is not None:
            pytest.skip("rescales the default kernel")
        X, Y, Yvar = self.data(14)
        Y = 40.0 + 9.0 * Y
        Yvar = None if Yvar is None else 81.0 * Yvar
        nothing = X[:0], Y[:0], None if Yvar is None else Yvar[:0]
        scale = self.over(X, Y, Yvar, outcome_transform=Standardize(1)).outcome_transform
        model, raw = self.over(*nothing, outcome_transform=scale), self.over(*nothing)
        mu, sd = scale.means[0, 0], scale.stdvs[0, 0]
        # numbers that float32 holds: gpytorch's setters round a Python float to it
        for m, unit in ((model, 1.0), (raw, sd**2)):
            for part in m.covar_module.modules():
                if isinstance(part, ScaleKernel):
                    part.outputscale = 1.75 * unit
        model.mean_module.constant = 0.5
        raw.mean_module.constant = mu + 0.5 * sd
        if self.noise == "learned":
            raw.likelihood.noise = model.likelihood.noise.detach() * sd**2
        for m in (model, raw):
            m.observe(X, Y, Yvar)
        assert_same_posterior(model, raw, self.points(3, 4))
        close(
            model.posterior(X, observation_noise=True).variance,
            raw.posterior(X, observation_noise=True).variance,
        )
        new = self.data(3, seed=9)
        close(model.log_predictive(*new), raw.log_predictive(*new))
        given = model.condition_on_observations(
            self.points(3, 2), 40.0 + self.points(3, 2)[..., :1]
        )
        other = raw.condition_on_observations(self.points(3, 2), 40.0 + self.points(3, 2)[..., :1])
        assert_same_posterior(given, other, self.points(3, 4))

    def test_outcomes_in_any_unit(self) -> None:
        """Predictions, samples and scores are the same in every unit, to the last digits."""
        from acquisitions import NIPV  # not at the top: it imports bo_stream

        new, points = self.data(3, seed=9), self.points(4)
        found = []
        for unit in (1.0, 2.0**-40, 2.0**40):
            (X, Y, Yvar), later = (
                (x, unit * y, None if v is None else unit**2 * v)
                for x, y, v in (self.data(14), new)
            )
            model = self.over(X, Y, Yvar, outcome_transform=Standardize(1))
            model.fit(2)
            given = model.condition_on_observations(self.points(2, 2), Y[:2].expand(2, 2, 1))
            each = [m.posterior(points) for m in (model, given)]
            each.append(model.posterior(points, observation_noise=True))
            parts = [value / unit for p in each for value in (p.mean, p.variance.sqrt())]
            sampler = SobolQMCNormalSampler(Size([2]), seed=1)
            parts += [sampler(model.posterior(X[:6])) / unit]
            parts += [quantiles(model, points, [0.1]) / unit]
            mean, variance = marginals(model, points)
            parts += [mean / unit, variance.sqrt() / unit]
            if isinstance(each[0], GPyTorchPosterior):
                parts.append(NIPV(model, points)(X[:1]) / unit**2)
            parts.append(model.log_predictive(*later) + 3.0 * math.log(unit))
            found.append(parts)
        rtol = 1e-9 if self.dtype == torch.float64 else 1e-4
        for other in found[1:]:
            torch.testing.assert_close(other, found[0], rtol=rtol, atol=1e-12)

    def test_normalized_is_rescaled(self) -> None:
        """With `Normalize`, the raw model under lengthscales in raw units."""
        if self.kernel() is not None:
            pytest.skip("rescales the default kernel")
        batch = self.data(14)
        empty = self.data(0)
        model = self.over(*empty, input_transform=Normalize(self.dim, bounds=self.bounds))
        raw = self.over(*empty)
        width = self.bounds[1] - self.bounds[0]
        for m, unit in ((model, torch.ones_like(width)), (raw, width)):
            for part in m.covar_module.modules():
                if getattr(part, "has_lengthscale", False):
                    inputs = slice(None) if part.active_dims is None else part.active_dims
                    part.lengthscale = 0.6 * unit[inputs]
        model.observe(*batch)
        raw.observe(*batch)
        assert_same_posterior(model, raw, self.points(3, 4))

    def test_fantasies_in_raw_units(self) -> None:
        """Fantasies of a standardized model are conditioned on in raw units, noise transformed."""
        X, Y, Yvar = self.data(14)
        Yvar = None if Yvar is None else 81.0 * Yvar
        model = self.over(X, 40.0 + 9.0 * Y, Yvar, outcome_transform=Standardize(1))
        Z, points = self.points(2, 2, seed=7), self.points(2, 4)
        sampler = SobolQMCNormalSampler(Size([3]), seed=3)
        given = model.fantasize(Z, sampler)
        samples = sampler(model.posterior(Z, observation_noise=True))
        assert abs(float(samples.mean()) - 40.0) < 30.0
        assert_same_posterior(given, model.condition_on_observations(Z, samples), points)
        noise = torch.full((2, 1), 0.2, dtype=self.dtype)
        given = model.fantasize(Z, sampler, observation_noise=noise)
        samples = sampler(model.posterior(Z, observation_noise=noise))
        expected = model.condition_on_observations(Z, samples, noise=noise)
        assert_same_posterior(given, expected, points)

    def test_chained_transforms(self) -> None:
        """Learned in order; a logarithm gives a transformed posterior."""
        X, Y, Yvar = self.data(14)
        positive = Y.exp()
        Yvar = None if Yvar is None else Yvar * positive.square()
        model = self.over(
            X,
            positive,
            Yvar,
            input_transform=ChainedInputTransform(
                first=Normalize(self.dim, bounds=self.bounds), second=Normalize(self.dim)
            ),
            outcome_transform=ChainedOutcomeTransform(log=Log(), scale=Standardize(1)),
        )
        posterior = model.posterior(self.points(3, 4))
        assert isinstance(posterior, TransformedPosterior)
        samples = posterior.rsample(Size([5]))
        assert samples.shape == (5, 3, 4, 1) and (samples > 0).all()
        few = X[:2], positive[:2], None if Yvar is None else Yvar[:2]
        # change of variables by hand: t = (log y - mean) / std, dt/dy = 1 / (y std)
        transform = model.outcome_transform
        plain = self.over(X, *transform(positive, Yvar), input_transform=model.input_transform)
        slope = 1.0 / (positive[:2] * transform["scale"].stdvs)
        density = plain.log_predictive(X[:2], *transform(*few[1:])) + slope.log().sum()
        close(model.log_predictive(*few), density)
        assert (model.condition_on_observations(*few[:2]).posterior(X).rsample() > 0).all()
        assert model.observe(*few).num_observed == 16


class Moved:
    """A model asked at other points than it is told."""

    def __init__(self, model: StreamingGP, shift: Tensor) -> None:
        self._model, self._shift = model, shift

    def posterior(self, X: Tensor) -> Any:
        return self._model.posterior(X + self._shift)
