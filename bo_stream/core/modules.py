"""Default kernel and likelihood, the same for every family, and transforms made fit for a
stream.
"""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils.gpytorch_modules import (
    get_covar_module_with_dim_scaled_prior,
    get_gaussian_likelihood_with_lognormal_prior,
)
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Size, Tensor

from bo_stream.errors import InputError, UnsupportedError

__all__ = ["default_kernel", "default_likelihood", "frozen_transform"]

T = TypeVar("T", InputTransform, OutcomeTransform)


def default_kernel(dim: int, num_outputs: int) -> Kernel:
    """`ScaleKernel` over an ARD RBF with BoTorch's dimension-scaled priors, per output."""
    batch = Size([num_outputs] if num_outputs > 1 else [])
    base = get_covar_module_with_dim_scaled_prior(ard_num_dims=dim, batch_shape=batch)
    return ScaleKernel(base, batch_shape=batch)


def default_likelihood(batch_shape: Size) -> GaussianLikelihood:
    """BoTorch's Gaussian likelihood with a LogNormal prior on the noise variance."""
    return get_gaussian_likelihood_with_lognormal_prior(batch_shape=batch_shape)


def frozen_transform(transform: T, data: Tensor, variance: Tensor | None = None) -> T:
    """A copy of the transform in evaluation mode, learned once from `data` if it came in training
    mode.

    Args:
        transform: BoTorch's input or outcome transform.
        data: The constructor's ``n x d`` inputs or ``n x m`` outcomes.
        variance: ``n x m`` noise variances, for an outcome transform.

    Raises:
        UnsupportedError: for learnable or one-to-many transforms.
        InputError: if it has something to learn and there are no data.
    """
    frozen = copy.deepcopy(transform)
    if any(p.requires_grad for p in frozen.parameters()):
        raise UnsupportedError(
            "a transform without learnable parameters",
            type(frozen).__name__,
            "Fit it beforehand, freeze its parameters and hand it over in eval mode.",
        )
    if getattr(frozen, "is_one_to_many", False):
        raise UnsupportedError(
            "a one-to-one input transform", type(frozen).__name__, "Expand the points beforehand."
        )
    frozen = frozen.to(device=data.device, dtype=torch.float64)
    if frozen.training:
        if data.shape[0]:
            with torch.no_grad():
                if isinstance(frozen, OutcomeTransform):
                    frozen(data.double(), None if variance is None else variance.double())
                else:
                    frozen(data.double())
        elif _has_to_learn(frozen):
            raise InputError(
                "data to learn the transform from, or a transform in eval mode",
                f"{type(frozen).__name__} in train mode and no training data",
                "Learn it on data of the problem's scale and call .eval(), or give it fixed "
                "coefficients (Normalize(d, bounds=bounds)).",
            )
    return frozen.eval()


def _has_to_learn(transform: InputTransform | OutcomeTransform) -> bool:
    if isinstance(transform, OutcomeTransform):
        return any(True for _ in transform.buffers())
    return any(getattr(module, "learn_coefficients", False) for module in transform.modules())
