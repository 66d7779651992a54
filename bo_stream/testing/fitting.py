"""Contract: fitting hyperparameters, by `fit` and through BoTorch's `fit_gpytorch_mll`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.constraints import Interval
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from gpytorch.priors import LogNormalPrior, NormalPrior

from bo_stream.base.fitting import FitReport
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import InputError, UnsupportedError
from bo_stream.testing.base import Contract, close

__all__ = ["FittingContract"]

SLACK = 0.1
"""Nats that a fit, which stops at gains below 0.01, may leave."""


class FittingContract(Contract):
    """The objective, its optimum, and what users may ask of the search."""

    def objective(self, model: StreamingGP) -> float:
        """Evidence (or bound) plus log priors."""
        return float(model.make_mll()().detach())

    def test_the_mll(self) -> None:
        model = self.build()
        mll = model.make_mll()
        assert isinstance(mll, MarginalLogLikelihood)
        assert mll.model is model and mll.likelihood is model.likelihood
        assert mll().shape == ()

    def test_fit_climbs_near_an_optimum(self) -> None:
        """A long run of L-BFGS-B from there finds next to nothing."""
        model = self.build(20)
        before = self.objective(model)
        report = model.fit()
        assert isinstance(report, FitReport)
        assert report.converged and report.evaluations < 100
        assert report.value > before
        assert abs(report.value - self.objective(model)) < 1e-6 * (1 + abs(report.value))
        assert not model.training
        assert model.num_observed == 20
        assert model.posterior(self.points(3)).mean.isfinite().all()
        fit_gpytorch_mll(model.make_mll(), optimizer=fit_gpytorch_mll_scipy)
        assert self.objective(model) < report.value + SLACK

    def test_warm_fits_take_few_evaluations(self) -> None:
        """Curvature is kept between fits."""
        model = self.build(20)
        model.fit()
        counts = []
        for seed in range(30, 33):
            model.observe(*self.data(1, seed=seed))
            counts.append(model.fit().evaluations)
        assert sorted(counts)[len(counts) // 2] <= self.warm_evaluations, counts

    def test_max_evals(self) -> None:
        model = self.build()
        with pytest.raises(InputError, match="max_evals"):
            model.fit(0)
        for limit in (1, 2, 5):
            assert model.fit(limit).evaluations <= limit

    def test_fit_gpytorch_mll(self) -> None:
        model = self.build()
        before, mll = self.objective(model), model.make_mll()
        assert fit_gpytorch_mll(mll) is mll
        assert not mll.training and not model.training
        assert self.objective(model) > before

    def test_options_of_the_default_optimizer(self) -> None:
        """Those BoTorch's has: the limit is kept, what means nothing here is ignored."""
        model = self.build()
        kwargs = {"options": {"maxiter": 3}, "timeout_sec": 60.0}
        before = self.objective(model)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        assert fit_gpytorch_mll(mll, optimizer_kwargs=kwargs) is mll
        assert self.objective(model) > before

    def test_the_optimizer_is_honoured(self) -> None:
        model = self.build(20)
        before, calls = self.objective(model), []

        def optimizer(mll: Any, closure: Any = None, **kw: Any) -> None:
            calls.append(kw)
            fit_gpytorch_mll_scipy(mll, closure=closure, **kw)

        options = {"options": {"maxiter": 4}}
        mll = fit_gpytorch_mll(model.make_mll(), optimizer=optimizer, optimizer_kwargs=options)
        assert calls == [options] and not mll.training
        assert self.objective(model) > before

    def test_a_closure_is_refused(self) -> None:
        model = self.build()
        with pytest.raises(UnsupportedError, match="closure"):
            fit_gpytorch_mll(model.make_mll(), closure=lambda: (torch.zeros(()), []))

    def test_a_fit_without_data(self) -> None:
        """The priors alone: finite, and no error."""
        model = self.build(0)
        report = model.fit()
        assert report.evaluations >= 1
        assert all(p.isfinite().all() for p in model.parameters())

    def scaled_kernel(self, **kw: Any) -> ScaleKernel:
        """An RBF under test."""
        return ScaleKernel(RBFKernel(ard_num_dims=self.dim, **kw))

    def test_constraints(self) -> None:
        self.require(self.build(4), "takes_modules")
        kernel = self.scaled_kernel(lengthscale_constraint=Interval(0.9, 1.1))
        model = self.build(20, covar_module=kernel)
        kernel = model.covar_module
        kernel.base_kernel.lengthscale = 1.0
        model.fit(15)
        assert (kernel.base_kernel.lengthscale > 0.9).all()
        assert (kernel.base_kernel.lengthscale < 1.1).all()

    def test_priors(self) -> None:
        """A sharp prior holds its parameter, a missing one does not."""
        self.require(self.build(4), "takes_modules")
        sharp = self.scaled_kernel(lengthscale_prior=LogNormalPrior(-0.5, 0.01))
        model = self.build(covar_module=sharp)
        model.fit()
        lengthscale = model.covar_module.base_kernel.lengthscale
        assert ((lengthscale.log() + 0.5).abs() < 0.1).all()
        free = self.build(covar_module=self.scaled_kernel())
        close(free.make_mll()() - free._objective(False)[0], self.noise_prior(free), 1e-10)

    def noise_prior(self, model: StreamingGP) -> torch.Tensor:
        """The log prior of the noise, if it has one."""
        total = torch.zeros((), dtype=torch.float64)
        for _, module, prior, value, _ in model.likelihood.named_priors():
            total = total + prior.log_prob(value(module)).sum()
        return total

    def test_a_prior_on_the_mean(self) -> None:
        self.require(self.build(4), "takes_modules")
        mean = ConstantMean(constant_prior=NormalPrior(-7.0, 0.01))
        model = self.build(mean_module=mean)
        model.fit()
        assert abs(model.mean_module.constant.item() + 7.0) < 0.5

    def test_a_free_mean_is_learned(self) -> None:
        X, Y, Yvar = self.data(14)
        model = self.over(X, Y + 5.0, Yvar)
        model.fit()
        assert 4.0 < model.mean_module.constant.item() < 7.0  # outcomes are between 3 and 7

    def test_a_zero_mean(self) -> None:
        self.require(self.build(4), "takes_modules")
        model = self.build(mean_module=ZeroMean())
        assert model.fit(3).evaluations <= 3
        assert model.posterior(self.points(3)).mean.isfinite().all()

    def test_frozen_parameters_stay(self) -> None:
        model = self.build()
        model.mean_module.raw_constant.requires_grad_(False)
        next(model.covar_module.parameters()).requires_grad_(False)
        kept = model.mean_module.raw_constant.clone(), next(model.covar_module.parameters()).clone()
        model.fit()
        assert torch.equal(model.mean_module.raw_constant, kept[0])
        assert torch.equal(next(model.covar_module.parameters()), kept[1])
        for p in model.parameters():
            p.requires_grad_(False)
        assert model.fit().evaluations <= 1

    def test_several_outputs(self) -> None:
        """Hyperparameters per output: each as good as a surrogate of its own."""
        outputs = self.outputs_of(2)
        X, Y, Yvar = self.data(14, outputs=outputs)
        both = self.over(X, Y, Yvar)
        together = both.fit().value
        alone = 0.0
        for o in range(outputs):
            alone += self.over(X, Y[:, [o]], None if Yvar is None else Yvar[:, [o]]).fit().value
        assert abs(together - alone) < 3 * SLACK

    def test_known_noise_has_nothing_to_learn(self) -> None:
        X, Y, _ = self.data(14)
        Yvar = torch.full_like(Y, 0.05)
        known: Any = self.plain(X, Y, Yvar, bounds=self.bounds)
        known.fit(5)
        close(known.likelihood.noise.reshape(-1)[:1], torch.tensor([0.05]).to(Y))
        scaled: Any = self.plain(X, Y, Yvar, bounds=self.bounds, likelihood=GaussianLikelihood())
        before = scaled.likelihood.noise.item()
        scaled.fit(8)
        assert scaled.likelihood.noise.item() != before
