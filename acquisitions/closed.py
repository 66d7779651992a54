"""qUCB, qLogEI and EI with values and gradients in closed form.

Values and gradients equal BoTorch's at a fraction of the cost. A process that provides `Moments`
gives the joint mean and covariance at points, and propagates gradients in these to the points. The
steps from there (a Cholesky factor, samples, their maximum) have short derivatives [MATHS 2.10].
The classes derive from BoTorch's, and call these if a process provides no moments.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from botorch.acquisition.analytic import ExpectedImprovement
from botorch.acquisition.logei import TAU_MAX, TAU_RELU, qLogExpectedImprovement
from botorch.acquisition.monte_carlo import qUpperConfidenceBound
from botorch.exceptions.warnings import legacy_ei_numerics_warning
from botorch.models.model import Model
from botorch.models.transforms.outcome import Standardize
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.base import MCSampler
from botorch.sampling.normal import IIDNormalSampler, SobolQMCNormalSampler
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
"""Largest number of points in closed form; BoTorch's classes handle more."""
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
    return _process_of(model) is not None


def scales(model: Model) -> bool:
    """Whether this is a surrogate of one outcome, which is its process, shifted and scaled."""
    if not isinstance(model, GaussianModel) or model.num_outputs != 1:
        return False
    transform = model.outcome_map()
    return transform is None or type(transform) is Standardize


class _FromSamples(ABC):
    """Mixin that evaluates a sample-based BoTorch class in closed form."""

    model: Model
    sampler: MCSampler | None
    X_pending: Any

    @abstractmethod
    def _of_samples(self) -> OfSamples | None:
        """The function of the samples, or None to use BoTorch's class."""

    def forward(self, X: Tensor) -> Tensor:
        """Values at ``batch x q x d`` raw points, ``batch``."""
        reduce = self._of_samples() if _drawable(self.sampler) else None
        process = None if reduce is None else _process_of(self.model)
        if process is None or not _few(X, self.X_pending):
            return cast(Tensor, super().forward(X))  # type: ignore[misc]
        value = self._closed(X, process=process, reduce=reduce)  # type: ignore[call-arg]
        return self._raw(cast(Tensor, value), *shift_and_scale(self.model))

    @abstractmethod
    def _raw(self, value: Tensor, shift: float, scale: float) -> Tensor:
        """The value in raw units."""

    @concatenate_pending_points
    @t_batch_mode_transform()  # type: ignore[arg-type]
    def _closed(self: Any, X: Tensor, process: PosteriorProcess, reduce: OfSamples) -> Tensor:
        sampled = partial(_sampled, base=_drawn(self.sampler, X), reduce=reduce)
        return _value(self.model, process, X, sampled)


class ClosedUpperConfidenceBound(_FromSamples, qUpperConfidenceBound):
    """`qUpperConfidenceBound` with value and gradient in closed form.

    Args:
        model: A surrogate of one output.
        beta: Trade-off between mean and standard deviation, as in BoTorch.
        sampler: Sampler of the base samples.
        X_pending: ``n' x d`` raw points under evaluation.
    """

    def __init__(
        self,
        model: GaussianModel,
        beta: float,
        sampler: MCSampler | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        super().__init__(model, beta, sampler=sampler, X_pending=X_pending)

    def _of_samples(self) -> OfSamples:
        return partial(_bound, width=self.beta_prime)

    def _raw(self, value: Tensor, shift: float, scale: float) -> Tensor:
        return shift + scale * value


class ClosedLogExpectedImprovement(_FromSamples, qLogExpectedImprovement):
    """`qLogExpectedImprovement` with value and gradient in closed form.

    Improvements are smoothed over a width of `TAU_RELU` in the units that the model has now.

    Args:
        model: A surrogate of one output.
        best_f: Best value so far, raw.
        sampler: Sampler of the base samples.
        X_pending: ``n' x d`` raw points under evaluation.
    """

    best_f: Tensor

    def __init__(
        self,
        model: GaussianModel,
        best_f: float | Tensor,
        sampler: MCSampler | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        self.width = TAU_RELU * shift_and_scale(model)[1]
        about: dict[str, Any] = {"sampler": sampler, "X_pending": X_pending}
        super().__init__(model, best_f, tau_relu=self.width, **about)

    def _of_samples(self) -> OfSamples | None:
        if self.best_f.numel() > 1:
            return None
        width = self.width / shift_and_scale(self.model)[1]
        return partial(_log_improvement, best=_in_units(self.best_f, self.model), width=width)

    def _raw(self, value: Tensor, shift: float, scale: float) -> Tensor:
        return value + math.log(scale)


class ClosedExpectedImprovement(ExpectedImprovement):
    """`ExpectedImprovement` with value and gradient in closed form, or else by autograd.

    The smallest variance is 1e-12 in the units of the model, where BoTorch's is in raw units.

    Args:
        model: A surrogate of one output.
        best_f: Best value so far, raw.
    """

    best_f: Tensor

    def __init__(self, model: GaussianModel, best_f: float | Tensor) -> None:
        super().__init__(model, best_f)
        legacy_ei_numerics_warning(ExpectedImprovement.__name__)

    def forward(self, X: Tensor) -> Tensor:
        """Values at ``batch x 1 x d`` raw points, ``batch``."""
        if self.best_f.numel() > 1 or not scales(self.model):
            return cast(Tensor, super().forward(X))
        process = cast(GaussianModel, self.model).process()
        value = cast(Tensor, self._closed(X, process=process))  # type: ignore[call-arg]
        return value * shift_and_scale(self.model)[1]

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def _closed(self: Any, X: Tensor, process: PosteriorProcess) -> Tensor:
        improvement = partial(_improvement, best=_in_units(self.best_f, self.model))
        if _few(X) and process.has_moments:
            return _value(self.model, process, X, improvement)
        f = process.at(self.model.transformed(X))
        value = improvement(f.mean[..., 0, :], f.variance()[..., 0, :, None], False)[0]
        return value.to(X)


# -- a surrogate's posterior ------------------------------------------------------------------


def _process_of(model: Model) -> PosteriorProcess | None:
    """The model's process if it provides moments and raw outcomes are its, shifted and scaled."""
    if not scales(model):
        return None
    process = cast(GaussianModel, model).process()
    return process if process.has_moments else None


def _few(X: Tensor, pending: Tensor | None = None) -> bool:
    """Whether X is a tensor of few enough points."""
    if not (X.ndim >= 2 and X.is_floating_point() and X.numel()):
        return False
    return X.shape[-2] + (0 if pending is None else pending.shape[-2]) <= MOST


def _value(model: Model, process: PosteriorProcess, X: Tensor, reduce: OfMoments) -> Tensor:
    """Values at raw points, in the dtype of X."""
    value: Tensor = _Value.apply(cast(GaussianModel, model).transformed(X), process, reduce)
    return value.to(X)


def _in_units(best: Tensor, model: Model) -> Tensor:
    """A raw value in the model's units, 0-dim, float64."""
    shift, scale = shift_and_scale(model)
    return (best.double().reshape(()) - shift) / scale


class _Value(torch.autograd.Function):
    """A function of the moments at points ``batch x q x d``, as a single autograd node."""

    @staticmethod
    def forward(
        ctx: Any,
        X: Tensor,
        process: PosteriorProcess,
        reduce: OfMoments,
    ) -> Tensor:
        slopes = ctx.needs_input_grad[0]
        moments = process.moments(X, slopes=slopes)
        value, gradients = reduce(moments.mean, moments.covariance, slopes)
        ctx.moments, ctx.gradients = moments, gradients
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


def _drawable(sampler: MCSampler | None) -> bool:
    """Whether the sampler's base samples are one set for all batches."""
    if not isinstance(sampler, SobolQMCNormalSampler | IIDNormalSampler):
        return False
    return len(sampler.sample_shape) == 1 and not hasattr(sampler, "batch_range_override")


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
