"""Integrated posterior variance in closed form [MATHS 10].

A drop-in for BoTorch's `qNegIntegratedPosteriorVariance` with the same sign, scale and pending
points, whose gradient is exact and whose cost does not contain the square of the number of test
points. The idea of measuring where the integrated variance falls most is Seo et al.'s [Seo2000].

References:
    [Seo2000] S. Seo, M. Wallat, T. Graepel, K. Obermayer. Gaussian process regression: active data
        selection and test point rejection. IJCNN 2000.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.acquisition.objective import PosteriorTransform
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.base import MCSampler
from botorch.utils.sampling import draw_sobol_samples
from botorch.utils.transforms import (
    average_over_ensemble_models,
    concatenate_pending_points,
    t_batch_mode_transform,
)
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from bo_stream.base.botorch_model import BoTorchModel
from bo_stream.errors import InputError, ShapeError, UnsupportedError
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.posterior.integral import Integral
from bo_stream.mathematics.posterior.process import PosteriorProcess

__all__ = ["NIPV", "output_scales"]


class NIPV(AcquisitionFunction):
    """Negative posterior variance, averaged over test points, after observing the candidates.

    The value is ``-sum_t w_t var(f(t) | y at X and X_pending)`` in raw units squared, with
    candidates measured with the noise of a typical observation; weights sum to one. It depends on
    no outcome, so there are no fantasies. What concerns the test points alone is kept until the
    surrogate's data or hyperparameters change.

    Cost per evaluation of q points: for WISKI O(16^d q^2), independent of the number of
    observations and of test points P; for other families O(P q (d + r)) with r the rank of their
    factors. Preparing WISKI costs O(P 16^d + m^3) once and O(q m^2) after an `observe` of q points.
    Over a pool, `select_from_pool` keeps more.

    Args:
        model: A surrogate of `bo_stream`, or what conditioning one gives.
        mc_points: ``P x d`` raw test points (leading dimensions are flattened).
        sampler: Accepted as BoTorch's has it, and not needed.
        posterior_transform: Needed for several outputs, linear: which variance is meant.
        X_pending: ``n' x d`` points under evaluation.
        weights: ``P`` non-negative weights of the test points; normalised to sum 1. Equal by
            default.

    Raises:
        UnsupportedError: for other models, several outputs without a transform, or transforms that
            are not linear.
        ShapeError, InputError: on weights that do not fit.

    Example:
        >>> import torch
        >>> from bo_stream import WISKI
        >>> X = torch.rand(20, 2, dtype=torch.double)
        >>> model = WISKI(X, X.sum(-1, keepdim=True), bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        >>> NIPV(model, torch.rand(1000, 2, dtype=torch.double))(X[:3].unsqueeze(-2)).shape
        torch.Size([3])
    """

    mc_points: Tensor
    weights: Tensor
    scales: Tensor

    def __init__(
        self,
        model: BoTorchModel,
        mc_points: Tensor,
        sampler: MCSampler | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> None:
        if not isinstance(model, BoTorchModel):
            raise UnsupportedError(
                "a surrogate of bo_stream",
                type(model).__name__,
                "Use botorch's qNegIntegratedPosteriorVariance for other models.",
            )
        super().__init__(model=model)
        self.sampler = sampler
        self.posterior_transform = posterior_transform
        self.set_X_pending(X_pending)
        self.register_buffer("mc_points", mc_points.reshape(-1, mc_points.shape[-1]))
        self.register_buffer("weights", _normalised(weights, self.mc_points))
        self.register_buffer("scales", output_scales(model, posterior_transform, self.mc_points))
        self._transform = getattr(model, "outcome_transform", None)
        self._law: PosteriorProcess | None = None
        self._sums: Integral | None = None

    def sums(self) -> Integral:
        """The sums over the test points under the model as it is now."""
        model = cast(BoTorchModel, self.model)
        law = model.process()
        if self._sums is None or law is not self._law:
            points = model.transformed(self.mc_points.detach())
            self._sums = law.integral(points, self.weights, previous=self._sums)
            self._law = law
        return self._sums

    def raw_scales(self) -> Tensor:
        """What each output's variance is multiplied by, as the model is now: ``m``."""
        transform = getattr(self.model, "outcome_transform", None)
        if transform is not self._transform:  # the surrogate was restandardised
            model = cast(BoTorchModel, self.model)
            self.scales = output_scales(model, self.posterior_transform, self.mc_points)
            self._transform = transform
        return self.scales

    @concatenate_pending_points
    @t_batch_mode_transform()
    @average_over_ensemble_models  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The value at ``batch_shape x q x d`` raw points: ``batch_shape``."""
        model = cast(BoTorchModel, self.model)
        sums = self.sums()
        f = model.process().at(model.transformed(X))
        noise = model.typical_noise().unsqueeze(-1).expand(f.mean.shape[-2:])
        L = chol_psd(f.covariance(f) + torch.diag_embed(noise))
        gain = (torch.cholesky_inverse(L) * sums.gram(f, f)).sum((-1, -2))
        return -((sums.total - gain) * self.raw_scales()).sum(-1).to(X)


def output_scales(
    model: BoTorchModel, posterior_transform: PosteriorTransform | None, points: Tensor
) -> Tensor:
    """What each output's variance is multiplied by on the way from transformed to raw: ``m``.

    Found by sending unit variances through the outcome transform and the posterior transform.

    Raises:
        UnsupportedError: for several outputs without a posterior transform, and for transforms
            under which the variance is not one number per output times the variance.
    """
    m = model.num_outputs
    if m > 1 and posterior_transform is None:
        raise UnsupportedError(
            "a posterior_transform that makes one output of several",
            f"none for {m} outputs",
            "Give for example a ScalarizedPosteriorTransform.",
        )
    X = points.detach().unsqueeze(-2)
    scales = []
    for output in range(m):
        variance = torch.zeros(*X.shape[:-2], m, dtype=torch.float64, device=X.device)
        variance[..., output] = 1.0
        mean, cov = torch.zeros_like(variance), DiagLinearOperator(variance)
        law = (
            MultitaskMultivariateNormal(mean.unsqueeze(-2), cov)
            if m > 1
            else MultivariateNormal(mean, cov)
        )
        posterior: Any = GPyTorchPosterior(law)
        if hasattr(model, "outcome_transform"):
            transform = model.outcome_transform
            posterior = transform.untransform_posterior(posterior, X=X)
        if posterior_transform is not None and isinstance(posterior, GPyTorchPosterior):
            posterior = posterior_transform(posterior=posterior, X=X)
        scale = posterior.variance
        linear = isinstance(posterior, GPyTorchPosterior) and scale.numel() == len(points)
        if not linear or not torch.allclose(scale, scale.flatten()[0]):
            raise UnsupportedError(
                "linear outcome and posterior transforms, the same at every point, to one output",
                f"variance {tuple(scale.shape)} out of {tuple(variance.shape)}",
                "Use a Standardize, or botorch's qNegIntegratedPosteriorVariance.",
            )
        scales.append(scale.flatten()[0])
    return torch.stack(scales).double()


def _normalised(weights: Tensor | None, points: Tensor) -> Tensor:
    """Weights that sum to one, float64."""
    count = len(points)
    if count == 0:
        raise ShapeError("at least one test point", "none", "Give mc_points `P x d`.")
    if weights is None:
        return torch.full((count,), 1.0 / count, dtype=torch.float64, device=points.device)
    value = weights.detach().double().to(points.device)
    if value.shape != (count,):
        raise ShapeError(
            f"weights of shape ({count},), one per test point",
            f"{tuple(weights.shape)}",
            "Flatten them in the order of mc_points.",
        )
    if not bool(value.isfinite().all()) or bool((value < 0).any()) or not bool(value.sum() > 0):
        raise InputError(
            "finite, non-negative weights, not all zero",
            f"between {float(value.min())} and {float(value.max())}",
            "Leave test points out instead of weighting them down.",
        )
    return value / value.sum()


@acqf_input_constructor(NIPV)
def _construct_inputs(
    model: BoTorchModel,
    bounds: Sequence[tuple[float, float]],
    num_mc_points: int = 128,
    mc_points: Tensor | None = None,
    weights: Tensor | None = None,
    X_pending: Tensor | None = None,
    posterior_transform: PosteriorTransform | None = None,
) -> dict[str, Any]:
    """Arguments of `NIPV` as Ax and BoTorch collect them; test points are Sobol unless given."""
    if mc_points is None:
        box = torch.as_tensor(bounds, dtype=model.dtype).mT
        mc_points = draw_sobol_samples(bounds=box, n=num_mc_points, q=1).squeeze(-2)
    return {
        "model": model,
        "mc_points": mc_points,
        "weights": weights,
        "X_pending": X_pending,
        "posterior_transform": posterior_transform,
    }
