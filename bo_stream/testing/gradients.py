"""Contract: gradients against central differences, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.acquisition import logei, monte_carlo
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.active_learning import qNegIntegratedPosteriorVariance
from botorch.acquisition.knowledge_gradient import qKnowledgeGradient
from botorch.acquisition.multi_step_lookahead import qMultiStepLookahead
from botorch.acquisition.objective import GenericMCObjective
from botorch.sampling.normal import SobolQMCNormalSampler
from torch import Size, Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import UnsupportedError
from bo_stream.testing import oracles
from bo_stream.testing.base import Contract, close

__all__ = ["GradientContract"]

EXACT = 1e-5
"""Central differences with h = 1e-5 of a function that is smooth but for the grid's kinks in the
third derivative: truncation and rounding are both far below this."""


def sampler(count: int = 8, seed: int = 11) -> SobolQMCNormalSampler:
    """Fixed base samples: the acquisition is a deterministic function."""
    return SobolQMCNormalSampler(Size([count]), seed=seed)


def _ucb(model: StreamingGP, points: Tensor) -> AcquisitionFunction:
    return monte_carlo.qUpperConfidenceBound(model, beta=0.8, sampler=sampler())


def _log_ei(model: StreamingGP, points: Tensor) -> AcquisitionFunction:
    return logei.qLogExpectedImprovement(model, best_f=0.2, sampler=sampler())


def _ucb_pending(model: StreamingGP, points: Tensor) -> AcquisitionFunction:
    return monte_carlo.qUpperConfidenceBound(
        model, beta=0.8, sampler=sampler(), X_pending=points[:1]
    )


def _log_nei(model: StreamingGP, points: Tensor) -> AcquisitionFunction:
    return logei.qLogNoisyExpectedImprovement(
        model, X_baseline=points[:4], sampler=sampler(), prune_baseline=False, cache_root=True
    )


def _nipv(model: StreamingGP, points: Tensor) -> AcquisitionFunction:
    return qNegIntegratedPosteriorVariance(model, mc_points=points, sampler=sampler(1))


def _kg(model: StreamingGP, points: Tensor) -> AcquisitionFunction:
    return qKnowledgeGradient(model, num_fantasies=3, sampler=sampler(3))


def _kg_objective(model: StreamingGP, points: Tensor) -> AcquisitionFunction:
    """With an MC objective stock BoTorch's gradient loses what the fantasies' covariance does."""
    return qKnowledgeGradient(
        model,
        num_fantasies=3,
        sampler=sampler(3),
        objective=GenericMCObjective(lambda Y, X: Y[..., 0].square()),
        inner_sampler=sampler(4),
    )


def _multi_step(model: StreamingGP, points: Tensor) -> AcquisitionFunction:
    return qMultiStepLookahead(model, batch_sizes=[1, 1], samplers=[sampler(2), sampler(2, 12)])


# name: (builder, q at the outside given q = 2 candidates)
SMOOTH: dict[str, tuple[Callable[[Any, Tensor], AcquisitionFunction], int]] = {
    "qUCB": (_ucb, 2),
    "qUCB with pending points": (_ucb_pending, 2),
    "qLogEI": (_log_ei, 2),
    "qLogNEI, cached root": (_log_nei, 2),
    "qNIPV": (_nipv, 2),
    "qKG": (_kg, 5),
    "qKG with an MC objective": (_kg_objective, 5),
    "qMultiStepLookahead": (_multi_step, 7),
}


def _gradient_of(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The gradient of a scalar function."""

    def gradient(X: Tensor) -> Tensor:
        points = X.detach().clone().requires_grad_()
        return torch.autograd.grad(f(points), points)[0]

    return gradient


class GradientContract(Contract):
    """Of acquisitions and posteriors in the points, of the objective in the hyperparameters."""

    @pytest.mark.parametrize("name", SMOOTH)
    def test_acquisition_gradients(self, name: str) -> None:
        builder, q = SMOOTH[name]
        model = self.build()
        acqf = builder(model, self.points(12, seed=21))
        X = self.points(2, q, seed=22).requires_grad_()
        (gradient,) = torch.autograd.grad(acqf(X).sum(), X)
        generator = torch.Generator().manual_seed(25)
        direction = torch.randn(X.shape, generator=generator, dtype=X.dtype)
        with torch.no_grad():
            slope = oracles.directional_quotient(lambda Z: acqf(Z).sum(), X, direction)
        close((gradient * direction).sum(), slope, EXACT)
        assert gradient.abs().max() > 1e-4, "a vanishing gradient shows nothing"

    def test_posterior_gradients(self) -> None:
        model = self.build(outputs=2 if self.declared(self.build(4)).multi_output else 1)
        X = self.points(2, 3, seed=22).requires_grad_()

        def posterior_of(Z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            posterior = model.posterior(Z, observation_noise=True)
            return posterior.mean, posterior.variance, posterior.distribution.covariance_matrix

        assert torch.autograd.gradcheck(
            posterior_of, (X,), eps=1e-6, atol=1e-6, rtol=1e-5, fast_mode=True
        )

    def test_second_derivatives_of_posteriors(self) -> None:
        """In the points, against differences of gradients; a missing graph would give zero."""
        model = self.build()
        X, direction = self.points(2, 3, seed=22), self.points(2, 3, seed=26)

        def value(Z: Tensor) -> Tensor:
            posterior = model.posterior(Z)
            covariance = posterior.distribution.covariance_matrix
            return posterior.mean.square().sum() + (covariance @ X).sin().sum()

        product = torch.autograd.functional.hvp(value, X, direction)[1]
        close(product, oracles.directional_quotient(_gradient_of(value), X, direction), EXACT)
        assert product.abs().max() > 1e-4, "vanishing derivatives show nothing"

    def test_lazy_covariance_gradients(self) -> None:
        """Over many points the covariance is an operator; its diagonal has gradients too."""
        model = self.build()
        X = self.points(300, seed=22).requires_grad_()
        weights = torch.linspace(-1.0, 1.0, 300, dtype=self.dtype)
        value = weights @ model.posterior(X).variance[:, 0]
        (gradient,) = torch.autograd.grad(value, X)
        few = X.detach()[:5].clone().requires_grad_()
        value = weights[:5] @ model.posterior(few).variance[:, 0]
        close(gradient[:5], torch.autograd.grad(value, few)[0])

    def test_conditioned_posterior_gradients(self) -> None:
        """In the points conditioned on, the outcomes and the test points together."""
        model = self.build()
        X, Y = self.points(2, 2, seed=22), self.points(3, 2, 2, seed=23)[..., :1].clone()

        def posterior_of(X: Tensor, Y: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
            posterior = model.condition_on_observations(X, Y).posterior(Z)
            return posterior.mean, posterior.variance

        inputs = tuple(t.requires_grad_() for t in (X, Y, self.points(2, 3, seed=24)))
        assert torch.autograd.gradcheck(
            posterior_of, inputs, eps=1e-6, atol=1e-6, rtol=1e-5, fast_mode=True
        )

    def test_unbatched_conditioning_keeps_gradients(self) -> None:
        """Data that need gradients get a conditioned posterior, not a new surrogate."""
        model = self.build()
        X, Y = self.points(2, seed=22), self.points(2, seed=23)[:, :1].clone()

        def mean(X: Tensor, Y: Tensor) -> Tensor:
            return model.condition_on_observations(X, Y).posterior(self.points(3)).mean

        inputs = (X.requires_grad_(), Y.requires_grad_())
        assert torch.autograd.gradcheck(mean, inputs, eps=1e-6, atol=1e-6, rtol=1e-5)

    @pytest.mark.parametrize("outputs", [1, 2])
    def test_objective_gradients(self, outputs: int) -> None:
        """`make_mll` in every raw hyperparameter."""
        model = self.build(outputs=self.outputs_of(outputs))
        mll = model.make_mll()
        parameters = [p for p in mll.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(mll(), parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):

            def value(p: Tensor, parameter: Tensor = parameter) -> Tensor:
                kept = parameter.data.clone()
                parameter.data.copy_(p)
                result: Tensor = mll().detach()
                parameter.data.copy_(kept)
                return result

            close(gradient, oracles.difference_quotient(value, parameter), EXACT)

    def test_second_derivatives_of_the_objective(self) -> None:
        """In the raw hyperparameters: right or refused, never silently zero."""
        mll = self.build().make_mll()
        parameters = [p for p in mll.parameters() if p.requires_grad]

        def gradient(*, graph: bool = False) -> Tensor:
            slopes = torch.autograd.grad(mll(), parameters, create_graph=graph)
            return torch.cat([slope.flatten() for slope in slopes])

        slopes = gradient(graph=True)
        try:
            rows = torch.autograd.grad(slopes.sum(), parameters)
        except UnsupportedError:
            return
        h, start = 1e-5, [p.detach().clone() for p in parameters]
        ends = []
        for step in (h, -h):
            for parameter, value in zip(parameters, start, strict=True):
                parameter.data.copy_(value + step)
            ends.append(gradient())
        for parameter, value in zip(parameters, start, strict=True):
            parameter.data.copy_(value)
        close(torch.cat([row.flatten() for row in rows]), (ends[0] - ends[1]) / (2.0 * h), 1e-4)

    def test_gradients_do_not_reach_the_state(self) -> None:
        """Optimising an acquisition leaves neither graphs nor gradients on the surrogate."""
        model = self.build()
        X = self.points(2, 2, seed=22).requires_grad_()
        for _ in range(2):  # a graph shared between calls would fail the second time
            _log_ei(model, X)(X).sum().backward()
            _kg(model, X)(torch.cat([X, X, X], -2)[:, :5]).sum().backward()
        assert all(p.grad is None for p in model.parameters())
        assert not any(b.requires_grad for b in model.buffers())
