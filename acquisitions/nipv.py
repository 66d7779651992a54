"""Integrated posterior variance in closed form [MATHS 10].

A drop-in for BoTorch's `qNegIntegratedPosteriorVariance` with the same sign, scale and pending
points. Its gradient is exact, and its cost is not quadratic in the number of test points. The idea
of measuring where the integrated variance decreases most is from Seo et al. [Seo2000].

References:
    [Seo2000] S. Seo, M. Wallat, T. Graepel, K. Obermayer. Gaussian process regression: active data
        selection and test point rejection. IJCNN 2000.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.models.transforms.outcome import Standardize
from botorch.sampling.base import MCSampler
from botorch.utils.sampling import draw_sobol_samples
from botorch.utils.transforms import (
    average_over_ensemble_models,
    concatenate_pending_points,
    t_batch_mode_transform,
)
from torch import Tensor

from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.errors import InputError, ShapeError, UnsupportedError
from bo_stream.mathematics.autograd import lasting
from bo_stream.mathematics.joint import Integral
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.process import PosteriorProcess
from bo_stream.surrogates.counts import CountGP

__all__ = ["NIPV", "response_nipv"]


class NIPV(AcquisitionFunction):
    """Negative posterior variance, averaged over test points, after observing the candidates.

    The value is ``-sum_t w_t var(f(t) | y at X and X_pending)`` in raw units squared, where
    candidates are measured with the typical noise and the weights sum to one. It depends on no
    outcome, so no fantasies are needed. Sums over the test points are kept until the surrogate's
    hyperparameters change.

    An evaluation of q points costs O(16^d q^2) for WISKI, independent of the number of observations
    and of test points P; O(P q (d + r)) for other families, with r the rank of their factors. WISKI
    needs O(P 16^d + m^3) once, and O(q m^2) after an `observe` of q points. `select_from_pool`
    keeps more for a pool.

    Args:
        model: A surrogate of `bo_stream`, or a model conditioned from one.
        mc_points: ``P x d`` raw test points (leading dimensions are flattened).
        sampler: Not used; accepted for compatibility with BoTorch.
        posterior_transform: A `ScalarizedPosteriorTransform`, required for several outputs.
        X_pending: ``n' x d`` points under evaluation.
        weights: ``P`` non-negative weights of the test points, normalised to sum 1; equal by
            default.
        noise: Raw noise variances of future outcomes at raw points, ``... x q x d`` to ``... x q x
            1``, differentiable; for one output. By default the typical noise.

    Raises:
        UnsupportedError: for other models, several outputs without a transform or with ``noise``,
            other posterior transforms, and outcome transforms other than `Standardize`.
        ShapeError, InputError: for invalid weights.

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

    @lasting
    def __init__(
        self,
        model: GaussianModel,
        mc_points: Tensor,
        sampler: MCSampler | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        weights: Tensor | None = None,
        noise: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        if not isinstance(model, GaussianModel):
            raise UnsupportedError(
                "a surrogate of bo_stream",
                type(model).__name__,
                "Use botorch's qNegIntegratedPosteriorVariance for other models.",
            )
        if noise is not None and model.num_outputs > 1:
            raise UnsupportedError("one output with `noise`", "several", "Leave `noise` out.")
        super().__init__(model=model)
        self._noise = noise
        self.sampler = sampler
        self.posterior_transform = posterior_transform
        self.set_X_pending(X_pending)
        self.register_buffer("mc_points", mc_points.reshape(-1, mc_points.shape[-1]))
        self.register_buffer("weights", _normalised(weights, self.mc_points))
        scales = _output_scales(model, posterior_transform, mc_points.device)
        self.register_buffer("scales", scales)
        self._transform = model.outcome_map()
        self._process: PosteriorProcess | None = None
        self._sums: Integral | None = None

    def sums(self) -> Integral:
        """The sums over the test points under the current model."""
        model = cast(GaussianModel, self.model)
        process = model.process()
        if self._sums is None or process is not self._process:
            points = model.transformed(self.mc_points.detach())
            self._sums = process.integral(points, self.weights)
            self._process = process
        return self._sums

    @lasting
    def raw_scales(self) -> Tensor:
        """Factors from transformed to raw variances for each output: ``m``."""
        model = cast(GaussianModel, self.model)
        transform = model.outcome_map()
        if transform is not self._transform:  # the surrogate was restandardised
            device = self.mc_points.device
            self.scales = _output_scales(model, self.posterior_transform, device)
            self._transform = transform
        return self.scales

    def noise(self, X: Tensor) -> Tensor:
        """Transformed noise variances of future outcomes at ``... x q x d`` raw points, ``... x m x
        q``.
        """
        model = cast(GaussianModel, self.model)
        if self._noise is None:
            return model.typical_noise().unsqueeze(-1).expand(model.num_outputs, X.shape[-2])
        return self._noise(X).mT / self.raw_scales().unsqueeze(-1)

    @concatenate_pending_points
    @t_batch_mode_transform()
    @average_over_ensemble_models  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The value at ``batch_shape x q x d`` raw points: ``batch_shape``."""
        model = cast(GaussianModel, self.model)
        sums = self.sums()
        f = model.process().at(model.transformed(X))
        noise = self.noise(X)
        L = chol_psd(f.covariance(f) + torch.diag_embed(noise))
        gain = (torch.cholesky_inverse(L) * sums.gram(f, f)).sum((-1, -2))
        return -((sums.total - gain) * self.raw_scales()).sum(-1).to(X)


def response_nipv(
    model: CountGP, mc_points: Tensor, trials: Any = None, X_pending: Tensor | None = None
) -> NIPV:
    """Negative integrated variance of the response, to first order, after future counts.

    Test points are weighted by the squared mean slope of the response, and a future count is as
    noisy as its expected information says.

    Args:
        model: A surrogate of counts.
        mc_points: ``P x d`` raw test points.
        trials: Trials or exposure of a future count; by default the mean of those seen.
        X_pending: ``n' x d`` raw points under evaluation.

    Returns:
        An acquisition function on the latent surface, for a box or for `select_from_pool`.
    """
    noise, weights = partial(model.future_noise, trials=trials), model.response_weights(mc_points)
    return NIPV(model.model, mc_points, X_pending=X_pending, weights=weights, noise=noise)


def _output_scales(
    model: GaussianModel, posterior_transform: PosteriorTransform | None, device: torch.device
) -> Tensor:
    """Factors from transformed to raw variances for each output: ``m``.

    Raises:
        UnsupportedError: for several outputs without a posterior transform, and for transforms
            that do more than shift, scale and add outputs.
    """
    m, outcomes = model.num_outputs, model.outcome_map()
    if m > 1 and posterior_transform is None:
        raise UnsupportedError(
            "a posterior_transform from several outputs to one",
            f"none for {m} outputs",
            "Give for example a ScalarizedPosteriorTransform.",
        )
    scales = torch.ones(m, dtype=torch.float64, device=device)
    for transform in (outcomes, posterior_transform):
        if isinstance(transform, Standardize):
            scales = scales * transform.stdvs.reshape(-1, m)[0].square().to(scales)
        elif isinstance(transform, ScalarizedPosteriorTransform):
            scales = scales * cast(Tensor, transform.weights).square().to(scales)
        elif transform is not None:
            raise UnsupportedError(
                "linear outcome and posterior transforms, the same at every point, to one output",
                type(transform).__name__,
                "Use Standardize and ScalarizedPosteriorTransform, or botorch's "
                "qNegIntegratedPosteriorVariance.",
            )
    return scales


def _normalised(weights: Tensor | None, points: Tensor) -> Tensor:
    """The weights normalised to sum one, float64."""
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
            "Leave out unimportant test points instead.",
        )
    return value / value.sum()


@acqf_input_constructor(NIPV)
def _construct_inputs(
    model: GaussianModel,
    bounds: Sequence[tuple[float, float]],
    num_mc_points: int = 128,
    mc_points: Tensor | None = None,
    weights: Tensor | None = None,
    X_pending: Tensor | None = None,
    posterior_transform: PosteriorTransform | None = None,
) -> dict[str, Any]:
    """Arguments of `NIPV` for BoTorch and Ax; the default test points are Sobol points."""
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
