"""Contract: BoTorch's acquisition functions, built and optimised by its own optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from botorch.acquisition import analytic, logei, monte_carlo
from botorch.acquisition.active_learning import qNegIntegratedPosteriorVariance
from botorch.acquisition.cached_cholesky import supports_cache_root
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.joint_entropy_search import qJointEntropySearch
from botorch.acquisition.knowledge_gradient import qKnowledgeGradient
from botorch.acquisition.max_value_entropy_search import (
    qLowerBoundMaxValueEntropy,
    qMaxValueEntropy,
)
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.multi_step_lookahead import make_best_f, qMultiStepLookahead
from botorch.acquisition.objective import GenericMCObjective, ScalarizedPosteriorTransform
from botorch.acquisition.predictive_entropy_search import qPredictiveEntropySearch
from botorch.acquisition.proximal import ProximalAcquisitionFunction
from botorch.cross_validation import efficient_loo_cv
from botorch.exceptions.errors import UnsupportedError as BotorchUnsupportedError
from botorch.exceptions.warnings import BotorchWarning, InputDataWarning
from botorch.generation.sampling import MaxPosteriorSampling
from botorch.models.model import Model, ModelList
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.models.transforms import Standardize
from botorch.optim.optimize import optimize_acqf
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.torch import TorchPosterior
from botorch.sampling.get_sampler import get_sampler
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.sampling.pathwise import get_matheron_path_model
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.sampling import optimize_posterior_samples
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Size, Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import BoStreamError, BoundsError, check_not_shadowed
from bo_stream.testing.base import (
    Contract,
    assert_same_posterior,
    assert_same_state,
    close,
    snapshot,
)

__all__ = ["AcquisitionContract"]

Build = Callable[[Any, Tensor, Tensor], Any]
"""An acquisition function from a model, ``n x d`` points seen, and bounds."""


def _sampler(count: int) -> SobolQMCNormalSampler:
    return SobolQMCNormalSampler(Size([count]), seed=1)


def _jes(model: StreamingGP, X: Tensor, bounds: Tensor) -> Any:
    optima = optimize_posterior_samples(
        get_matheron_path_model(model, Size([4])), bounds, raw_samples=32, num_restarts=2
    )
    return qJointEntropySearch(model, *optima, estimation_type="LB")


# name: (builder, q)
ACQUISITIONS: dict[str, tuple[Build, int]] = {
    "EI": (lambda m, X, b: analytic.ExpectedImprovement(m, best_f=0.1), 1),
    "LogEI": (lambda m, X, b: analytic.LogExpectedImprovement(m, best_f=0.1), 1),
    "UCB": (lambda m, X, b: analytic.UpperConfidenceBound(m, beta=0.5), 1),
    "PSTD": (lambda m, X, b: analytic.PosteriorStandardDeviation(m), 1),
    "qEI": (
        lambda m, X, b: monte_carlo.qExpectedImprovement(m, best_f=0.1, sampler=_sampler(16)),
        2,
    ),
    "qLogEI": (
        lambda m, X, b: logei.qLogExpectedImprovement(m, best_f=0.1, sampler=_sampler(16)),
        2,
    ),
    "qPI": (
        lambda m, X, b: monte_carlo.qProbabilityOfImprovement(m, best_f=0.1, sampler=_sampler(16)),
        2,
    ),
    "qSR": (lambda m, X, b: monte_carlo.qSimpleRegret(m, sampler=_sampler(16)), 2),
    "qUCB": (
        lambda m, X, b: monte_carlo.qUpperConfidenceBound(m, beta=0.5, sampler=_sampler(16)),
        3,
    ),
    "qPSTD": (lambda m, X, b: monte_carlo.qPosteriorStandardDeviation(m, sampler=_sampler(16)), 2),
    "qNEI": (
        lambda m, X, b: monte_carlo.qNoisyExpectedImprovement(m, X, sampler=_sampler(16)),
        2,
    ),
    "qLogNEI": (
        lambda m, X, b: logei.qLogNoisyExpectedImprovement(m, X, sampler=_sampler(16)),
        2,
    ),
    "qKG": (lambda m, X, b: qKnowledgeGradient(m, num_fantasies=4), 2),
    "qNIPV": (
        lambda m, X, b: qNegIntegratedPosteriorVariance(m, mc_points=X, sampler=_sampler(1)),
        2,
    ),
    "qMES": (lambda m, X, b: qMaxValueEntropy(m, candidate_set=X, num_mv_samples=4), 1),
    "qMES with pending points": (
        lambda m, X, b: qMaxValueEntropy(m, candidate_set=X, num_mv_samples=4, X_pending=X[:2]),
        1,
    ),
    "GIBBON": (
        lambda m, X, b: qLowerBoundMaxValueEntropy(m, candidate_set=X, num_mv_samples=4),
        1,
    ),
    "qJES": (_jes, 2),
}


OPTIMISED = ("LogEI", "qKG", "qMES with pending points")
"""One of each kind; the optimiser asks all others for no more than values and gradients."""


def first_outcome(Y: Tensor, X: Tensor | None = None) -> Tensor:
    """An objective."""
    return Y[..., 0]


# What BoTorch's input constructors, which Ax goes through, are asked for.
CONSTRUCTED: dict[type, tuple[str, ...]] = {
    qNegIntegratedPosteriorVariance: ("bounds", "num_mc_points"),
    qJointEntropySearch: ("bounds", "num_optima"),
    logei.qLogNoisyExpectedImprovement: ("training_data",),
    logei.qLogExpectedImprovement: ("training_data",),
    monte_carlo.qUpperConfidenceBound: (),
}


@pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.NumericsWarning")
class AcquisitionContract(Contract):
    """Every acquisition function a model without stored training data can serve."""

    def optimum(self, acqf: Any, q: int, **kw: Any) -> tuple[Tensor, Tensor]:
        """What `optimize_acqf` finds, briefly."""
        torch.manual_seed(0)
        options: Any = {"maxiter": 2, "batch_limit": 2}
        result: Any = optimize_acqf(
            acqf, self.bounds, q=q, num_restarts=2, raw_samples=4, options=options, **kw
        )
        return result

    def assert_optimises(self, acqf: Any, q: int, **kw: Any) -> None:
        """Candidates inside the bounds with a finite value, found without a failure."""
        X, value = self.optimum(acqf, q, **kw)
        assert X.shape == (q, self.dim)
        assert X.isfinite().all() and value.isfinite().all()
        assert (self.bounds[0] <= X).all() and (self.bounds[1] >= X).all()

    @pytest.mark.parametrize("name", ACQUISITIONS)
    def test_acquisition(self, name: str) -> None:
        """Values and gradients are finite, and the surrogate stays as it was."""
        build, q = ACQUISITIONS[name]
        model = self.build()
        before = snapshot(model)
        acqf = build(model, self.points(8, seed=31), self.bounds)
        X = self.points(3, acqf.get_augmented_q_batch_size(q) if "KG" in name else q, seed=32)
        value = acqf(X.requires_grad_())
        assert value.shape == (3,) and value.isfinite().all()
        (gradient,) = torch.autograd.grad(value.sum(), X)
        assert gradient.isfinite().all()
        assert_same_state(before, snapshot(model))

    @pytest.mark.filterwarnings("error:Optimization failed")
    @pytest.mark.parametrize("name", OPTIMISED)
    def test_optimised(self, name: str) -> None:
        build, q = ACQUISITIONS[name]
        self.assert_optimises(build(self.build(), self.points(8, seed=31), self.bounds), q)

    @pytest.mark.parametrize("acqf", CONSTRUCTED)
    def test_input_constructors(self, acqf: type) -> None:
        """Built the way Ax does, with the transforms that are left out."""
        X, Y, Yvar = self.data(14)
        model = self.left_out(X, Y, Yvar)
        before = snapshot(model)
        given: Any = {"bounds": self.bounds.mT.tolist(), "num_mc_points": 16, "num_optima": 4}
        names = [f"x{i}" for i in range(self.dim)]
        given["training_data"] = SupervisedDataset(
            X, Y, Yvar=Yvar, feature_names=names, outcome_names=["y"]
        )
        torch.manual_seed(0)
        wanted = {name: given[name] for name in CONSTRUCTED[acqf]}
        inputs = get_acqf_input_constructor(acqf)(model=model, **wanted)
        assert all(v.dtype == self.dtype for v in inputs.values() if isinstance(v, Tensor))
        X = self.points(3, 2, seed=32).requires_grad_()
        (gradient,) = torch.autograd.grad(acqf(**inputs)(X).sum(), X)
        assert gradient.isfinite().all()
        assert_same_state(before, snapshot(model))

    def test_entropy_search_conditions_on_raw_optima(self) -> None:
        """BoTorch sends them through the model's `transform_inputs` before it conditions."""
        model, X = self.left_out(*self.data(14)), self.points(4, seed=31)
        Y = 2.0 + torch.arange(4, dtype=self.dtype).unsqueeze(-1)
        given = qJointEntropySearch(model, X, Y, condition_noiseless=False).conditional_model
        expected = model.condition_on_observations(X.unsqueeze(-2), Y.unsqueeze(-2))
        assert_same_posterior(given, expected, self.points(4, 3))

    def test_integrated_variance_in_closed_form(self) -> None:
        """`acquisitions.NIPV` is BoTorch's qNIPV, without fantasies."""
        check_not_shadowed("acquisitions")
        ours = pytest.importorskip("acquisitions").NIPV
        model, points, X = self.build(), self.points(20, seed=36), self.points(3, 2, seed=37)
        for pending in (None, self.points(2, seed=38)):
            stock = qNegIntegratedPosteriorVariance(
                model, mc_points=points, sampler=_sampler(1), X_pending=pending
            )
            acqf = ours(model, mc_points=points, X_pending=pending)
            close(acqf(X), stock(X))
        self.assert_optimises(acqf, 2)

    def test_sequential_batches(self) -> None:
        """Greedy batches set pending points between candidates."""
        model = self.build()
        for acqf in (
            logei.qLogNoisyExpectedImprovement(model, self.points(8), sampler=_sampler(16)),
            qMaxValueEntropy(model, candidate_set=self.points(8), num_mv_samples=4),
        ):
            self.assert_optimises(acqf, 2, sequential=True)

    def test_multi_step_lookahead(self) -> None:
        """Nested fantasies; users pass their own argfac, the default reads stored targets."""

        def argfac(model: Model, X: Tensor) -> dict[str, Any]:
            posterior = cast(GPyTorchPosterior, model.posterior(self.points(5)))
            return {"best_f": posterior.mean.amax(-2)}

        model = self.build()
        acqf = qMultiStepLookahead(
            model,
            batch_sizes=[1, 1],
            num_fantasies=[2, 2],
            valfunc_cls=[analytic.ExpectedImprovement] * 3,
            valfunc_argfacs=[argfac] * 3,
        )
        q = acqf.get_augmented_q_batch_size(1)
        X = self.points(2, q, seed=32)
        value = acqf(X.requires_grad_())
        assert value.shape == (2,) and value.isfinite().all()
        assert torch.autograd.grad(value.sum(), X)[0].isfinite().all()

    def test_the_root_is_cached(self) -> None:
        """Noisy expected improvement reuses the factor of the baseline, to the same value."""
        model = self.build()
        assert supports_cache_root(model)
        baseline, X = self.points(6, seed=33), self.points(3, 2, seed=34)
        kinds: Any = (logei.qLogNoisyExpectedImprovement, monte_carlo.qNoisyExpectedImprovement)
        for kind in kinds:
            cached, plain = (
                kind(model, baseline, sampler=_sampler(32), prune_baseline=False, cache_root=cache)
                for cache in (True, False)
            )
            value = cached(X)
            plain.sampler.base_samples = cached.sampler.base_samples
            close(value, plain(X), 1e-6)

    def test_nothing_feasible(self) -> None:
        """BoTorch then draws points around the baseline, also outside the bounds."""
        model = ModelListGP(self.build(), self.build(seed=3))
        with pytest.warns(BotorchWarning, match="infeasible"):
            acqf = logei.qLogNoisyExpectedImprovement(
                model,
                torch.cat([self.points(4), self.bounds]),
                objective=GenericMCObjective(first_outcome),
                constraints=[lambda Y: Y[..., 1] + 100.0],
            )
            assert acqf(self.points(3, 2)).isfinite().all()
        if model.models[0].bounds is not None:
            width, one = self.bounds[1:] - self.bounds[:1], self.build()
            pair = torch.cat([self.bounds[1:], self.bounds[1:] + 0.09 * width]).requires_grad_()
            with pytest.warns(InputDataWarning, match="at the bounds"):
                near = one.posterior(pair)
            corner = self.bounds[1:].clone().requires_grad_()
            there = one.posterior(corner).mean
            close(near.mean.detach(), there.detach().expand(2, -1), 1e-12)
            (slopes,) = torch.autograd.grad(near.mean.sum(), pair)
            (slope,) = torch.autograd.grad(there.sum(), corner)
            close(slopes, torch.cat([slope, torch.zeros_like(slope)]))
            with pytest.raises(BoundsError):
                model.posterior(self.bounds[1:] + 0.11 * width)

    def test_pruned_baseline(self) -> None:
        model = self.build()
        acqf = logei.qLogNoisyExpectedImprovement(
            model, self.points(20), sampler=_sampler(16), prune_baseline=True
        )
        assert 0 < len(acqf.X_baseline) <= 20

    def test_thompson_sampling_over_candidates(self) -> None:
        model = self.build()
        X = self.points(40)
        chosen = MaxPosteriorSampling(model, replacement=False)(X, num_samples=3)
        assert chosen.shape == (3, self.dim)
        assert all((x == X).all(-1).any() for x in chosen)

    # -- several outputs -------------------------------------------------------------------------

    def hypervolume(self, model: Model) -> Any:
        """Noisy expected hypervolume improvement over two outputs."""
        X = self.points(6, seed=33)
        return qLogNoisyExpectedHypervolumeImprovement(
            model,
            ref_point=[-1.0, -1.0],
            X_baseline=X,
            sampler=get_sampler(cast(TorchPosterior, model.posterior(X)), Size([8]), seed=1),
            prune_baseline=False,
        )

    def test_hypervolume_improvement(self) -> None:
        outputs = self.outputs_of(2)
        model = self.build(outputs=outputs, outcome_transform=Standardize(outputs))
        assert supports_cache_root(model)
        self.assert_optimises(self.hypervolume(model), 2)

    def test_hypervolume_improvement_of_lists(self) -> None:
        self.assert_optimises(self.hypervolume(ModelListGP(self.build(), self.build(seed=3))), 2)
        acqf = self.hypervolume(ModelList(self.build(), self.build(seed=3)))
        assert acqf(self.points(3, 2)).isfinite().all()

    def test_scalarised_outputs(self) -> None:
        outputs = self.outputs_of(2)
        model = self.build(outputs=outputs)
        transform = ScalarizedPosteriorTransform(
            torch.tensor([0.3, 0.7], dtype=self.dtype), offset=1.0
        )
        acqf = analytic.LogExpectedImprovement(model, best_f=1.0, posterior_transform=transform)
        self.assert_optimises(acqf, 1)
        kg = qKnowledgeGradient(model, num_fantasies=3, posterior_transform=transform)
        self.assert_optimises(kg, 1)

    # -- what needs stored training data ---------------------------------------------------------

    def test_what_needs_training_data_says_so(self) -> None:
        """No wrong numbers: an error that names what to use instead, or BoTorch's own."""
        model, X = self.build(), self.points(4)
        with pytest.raises(BotorchUnsupportedError, match="SingleTaskGP"):
            analytic.NoisyExpectedImprovement(model, X_observed=X)
        with pytest.raises(AttributeError, match="make_mll.*qLogNoisyExpectedImprovement"):
            _ = model.train_inputs
        assert not hasattr(model, "train_inputs")
        assert not model.train_targets.numel() and model.train_targets.dtype == self.dtype
        with pytest.raises(AttributeError, match="make_mll.*best_f"):
            make_best_f(model, X)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        with pytest.raises(AttributeError, match="make_mll"):
            mll(model.eval()(X), model.train_targets)
        with pytest.raises(BoStreamError, match="fit_gpytorch_mll"):
            model.train()(X)
        with pytest.raises(BotorchUnsupportedError, match="train_inputs"):
            efficient_loo_cv(model)
        with pytest.raises((BoStreamError, BotorchUnsupportedError)):
            ProximalAcquisitionFunction(
                monte_carlo.qSimpleRegret(model), proximal_weights=torch.ones(self.dim)
            )
        with pytest.raises(BoStreamError, match="qLogNoisyExpectedImprovement"):
            qPredictiveEntropySearch(model, optimal_inputs=X[:2])(self.points(2, 1))
