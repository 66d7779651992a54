"""qUCB, qLogEI and EI with values and gradients in closed form.

Values and gradients equal BoTorch's at a fraction of the cost. A process that provides `Moments`
gives the joint mean and covariance at points, and propagates gradients in these to the points. The
steps from there (a Cholesky factor, samples, their maximum) have short derivatives [MATHS 2.10].
The classes derive from BoTorch's; `acquisitions.build` chooses them where they serve.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from botorch.acquisition.analytic import ExpectedImprovement
from botorch.acquisition.logei import TAU_MAX, qLogExpectedImprovement
from botorch.acquisition.monte_carlo import qUpperConfidenceBound
from botorch.models.model import Model
from botorch.models.transforms.outcome import Standardize
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.utils.probability.utils import ndtr, phi
from botorch.utils.transforms import concatenate_pending_points, t_batch_mode_transform
from gpytorch.distributions import MultivariateNormal
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from torch.nn.functional import softplus

from bo_stream.base.gaussian_model import GaussianModel, shift_and_scale
from bo_stream.mathematics.autograd import traced
from bo_stream.mathematics.process import PosteriorProcess

__all__ = [
    "ClosedExpectedImprovement",
    "ClosedLogExpectedImprovement",
    "ClosedUpperConfidenceBound",
    "offered",
    "scales",
]

MOST = 64
"""Largest number of points whose moments are faster than autograd."""
SMALLEST = 1e-12
"""Smallest variance in expected improvement, in the units of the model."""
FAT = 0.1
"""Weight of the Cauchy density in BoTorch's smoothed improvements."""

Gradients = tuple[Tensor, Tensor] | None
OfMoments = Callable[[Tensor, Tensor, bool], tuple[Tensor, Gradients]]
"""Maps mean and covariance to values ``batch`` and, on request, the gradients of their sum in both;
all in the units of the model."""
OfSamples = Callable[[Tensor, Tensor, Tensor, bool], tuple[Tensor, Gradients]]
"""The same from the mean, the covariance's factor L and base samples ``s x q``, gradient in L."""


def offered(model: Model) -> bool:
    """Whether the classes of this module are faster than BoTorch's for this model."""
    return scales(model) and cast(GaussianModel, model).process().has_moments


def scales(model: Model) -> bool:
    """Whether this is a surrogate of one outcome, which is its process, shifted and scaled."""
    if not isinstance(model, GaussianModel) or model.num_outputs != 1:
        return False
    transform = model.outcome_map()
    return transform is None or type(transform) is Standardize


class ClosedUpperConfidenceBound(qUpperConfidenceBound):
    """`qUpperConfidenceBound` of a surrogate's outcome, with value and gradient in closed form.

    Its sampler draws one set of base samples for all batches; objectives have no effect.
    """

    @concatenate_pending_points
    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Values at ``batch x q x d`` raw points, ``batch``."""
        shift, scale = shift_and_scale(self.model)
        reduce = partial(_bound, width=self.beta_prime)
        return shift + scale * _value_of_samples(self, X, reduce)


class ClosedLogExpectedImprovement(qLogExpectedImprovement):
    """`qLogExpectedImprovement` of a surrogate's outcome, with value and gradient in closed form.

    Its sampler draws one set of base samples for all batches; objectives have no effect.
    """

    @concatenate_pending_points
    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Values at ``batch x q x d`` raw points, ``batch``."""
        scale = shift_and_scale(self.model)[1]
        best, width = _in_units(cast(Tensor, self.best_f), self.model), self.tau_relu / scale
        reduce = partial(_log_improvement, best=best, width=width)
        return _value_of_samples(self, X, reduce) + math.log(scale)


class ClosedExpectedImprovement(ExpectedImprovement):
    """`ExpectedImprovement` of a surrogate's outcome, with value and gradient in closed form.

    The smallest variance is 1e-12 in the units of the model, where BoTorch's is in raw units.
    """

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Values at ``batch x 1 x d`` raw points, ``batch``."""
        improvement = partial(_improvement, best=_in_units(cast(Tensor, self.best_f), self.model))
        return _value(self.model, X, improvement) * shift_and_scale(self.model)[1]


# -- a surrogate's posterior ------------------------------------------------------------------


def _value_of_samples(acqf: Any, X: Tensor, reduce: OfSamples) -> Tensor:
    """Values of a function of samples at raw points, in the units of the model."""
    return _value(acqf.model, X, partial(_sampled, base=_drawn(acqf.sampler, X), reduce=reduce))


def _value(model: Model, X: Tensor, reduce: OfMoments) -> Tensor:
    """Values at raw points, in the dtype of X; by autograd of many, or without moments."""
    surrogate = cast(GaussianModel, model)
    process, Z = surrogate.process(), surrogate.transformed(X)
    evaluated = _Value.apply if process.has_moments and X.shape[-2] <= MOST else _traced
    value: Tensor = evaluated(Z, process, reduce)
    return value.to(X)


def _in_units(best: Tensor, model: Model) -> Tensor:
    """A raw value in the model's units, 0-dim, float64."""
    shift, scale = shift_and_scale(model)
    return (best.double().reshape(()) - shift) / scale


class _Value(torch.autograd.Function):
    """A function of the moments at points ``batch x q x d``, as a single autograd node."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, process: PosteriorProcess, reduce: OfMoments) -> Tensor:
        slopes = ctx.needs_input_grad[0]
        ctx.moments = process.moments(X, slopes=slopes)
        value, ctx.gradients = reduce(ctx.moments.mean, ctx.moments.covariance, slopes)
        ctx.save_for_backward(X)
        ctx.traced = partial(_traced, process=process, reduce=reduce)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            return *traced(ctx.traced, ctx.saved_tensors, grad), None, None
        bar_mean, bar_cov = ctx.gradients
        bar_mean = bar_mean * grad.unsqueeze(-1)
        bar_cov = bar_cov * grad[..., None, None]
        return ctx.moments.pull(bar_mean, bar_cov), None, None


def _traced(X: Tensor, process: PosteriorProcess, reduce: OfMoments) -> Tensor:
    """The same function in operations that autograd differentiates."""
    joint = process.at(X)
    mean, cov = joint.mean.squeeze(-2), joint.covariance(joint).squeeze(-3)
    return reduce(mean, cov, False)[0]


# -- values of moments -------------------------------------------------------------------------


def _improvement(
    mean: Tensor, cov: Tensor, slopes: bool, *, best: Tensor
) -> tuple[Tensor, Gradients]:
    """Expected improvement over ``best`` at single points."""
    sigma = cov.squeeze(-1).clamp_min(SMALLEST).sqrt()
    u = (mean - best) / sigma
    density, below = phi(u), ndtr(u)
    value = (sigma * (density + u * below)).squeeze(-1)
    if not slopes:
        return value, None
    rising = (cov.squeeze(-1) >= SMALLEST) * density / (2.0 * sigma)
    return value, (below, rising.unsqueeze(-1))


def _sampled(
    mean: Tensor, cov: Tensor, slopes: bool, *, base: Tensor, reduce: OfSamples
) -> tuple[Tensor, Gradients]:
    """A function of samples ``mean + L z`` of base samples z, ``s x q``, differentiated through the
    factor L.
    """
    L = psd_safe_cholesky(cov)
    value, gradients = reduce(mean, L, base, slopes)
    if gradients is None:
        return value, None
    bar_mean, bar_L = gradients
    P = (L.mT @ bar_L).tril_()
    P.diagonal(dim1=-2, dim2=-1).mul_(0.5)
    half = torch.linalg.solve_triangular(L.mT, P, upper=True)
    return value, (bar_mean, torch.linalg.solve_triangular(L, half, upper=False, left=False))


def _bound(
    mean: Tensor, L: Tensor, base: Tensor, slopes: bool, *, width: float
) -> tuple[Tensor, Gradients]:
    """The upper confidence bound; ``width`` times the samples' distances from their mean."""
    middle = base.mean(0)
    base = base - middle
    away = L @ base.mT
    level = (mean + L @ middle).unsqueeze(-1)
    best, which = torch.add(level, away.abs(), alpha=width).max(-2, keepdim=True)
    value = best.mean((-2, -1))
    if not slopes:
        return value, None
    hot = torch.zeros_like(away).scatter_(-2, which, 1.0 / len(base))
    bar_mean = hot.sum(-1)
    bar_L = width * (hot.mul_(away.sign_()) @ base)
    bar_L.addcmul_(bar_mean.unsqueeze(-1), middle)
    return value, (bar_mean, bar_L)


def _log_improvement(
    mean: Tensor, L: Tensor, base: Tensor, slopes: bool, *, best: Tensor, width: float
) -> tuple[Tensor, Gradients]:
    """The logarithm of the expected improvement of the best of several points, as BoTorch's.

    Improvements are smoothed at the scale ``width``, by a softplus with the tail of a Cauchy
    density; the maximum of their logarithms at `TAU_MAX`, with a quadratic tail.
    """
    scaled = ((mean - best) / width).unsqueeze(-1)
    x = torch.add(scaled, L @ base.mT, alpha=1.0 / width)
    hill = (x * x).add_(1.0).reciprocal_()
    plus = softplus(x).add_(hill, alpha=FAT)
    each = plus.log()
    top, which = each.max(-2, keepdim=True)
    beyond = (top - each).mul_(1.0 / TAU_MAX).add_(1.0)
    share = (beyond * beyond).add_(1.0).reciprocal_()  # half of what is summed
    total = share.sum(-2, keepdim=True)
    most = torch.add(top, (2.0 * total).log_(), alpha=TAU_MAX).squeeze(-2)
    value = most.logsumexp(-1) + math.log(width / len(base))
    if not slopes:
        return value, None
    part = beyond.mul_(share).mul_(share).mul_(2.0 / total)
    part.scatter_add_(-2, which, 1.0 - part.sum(-2, keepdim=True))
    rise = x.sigmoid().addcmul_(x, hill.square_(), value=-2.0 * FAT).div_(plus)
    weight = (most.softmax(-1) / width).unsqueeze(-2)
    bar = part.mul_(rise).mul_(weight)
    return value, (bar.sum(-1), bar @ base)


# -- base samples ------------------------------------------------------------------------------


def _drawn(sampler: Any, X: Tensor) -> Tensor:
    """The base samples that BoTorch would use at ``batch x q x d`` points, ``s x q``, float64."""
    ones, q = (1,) * (X.ndim - 2), X.shape[-2]
    base = sampler.base_samples
    if base is None or base.shape != (*sampler.sample_shape, *ones, q) or base.dtype != X.dtype:
        mean = X.new_zeros(*ones, q)
        identity = torch.eye(q, dtype=X.dtype, device=X.device).expand(*ones, q, q)
        sampler(GPyTorchPosterior(MultivariateNormal(mean, identity)))
        base = sampler.base_samples
    return cast(Tensor, base.reshape(-1, q).to(X.device, torch.float64))
