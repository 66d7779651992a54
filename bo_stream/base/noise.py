"""The one noise model: learned, known, or known up to a learned scale.

A state holds noise variances before any learned scale (``R``); what multiplies them is the scale:
the learned noise or factor, or one.
"""

from __future__ import annotations

from typing import cast

import torch
from botorch.models.utils.gpytorch_modules import get_gaussian_likelihood_with_lognormal_prior
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, Likelihood
from torch import Size, Tensor

from bo_stream.errors import UnsupportedError

__all__ = ["likelihood_for", "noise_mode_of", "noise_scale"]


def noise_mode_of(Yvar: Tensor | None, likelihood: Likelihood | None) -> str:
    """``learned``, ``known``, or ``scaled``: known up to a learned scale.

    Raises:
        UnsupportedError: on a likelihood that no surrogate can have.
    """
    if getattr(likelihood, "second_noise_covar", None) is not None:
        raise UnsupportedError(
            "known or learned noise",
            "learn_additional_noise=True",
            "Give train_Yvar and likelihood=GaussianLikelihood() for noise of learned scale.",
        )
    if likelihood is not None and not isinstance(likelihood, GaussianLikelihood):
        raise UnsupportedError(
            "a GaussianLikelihood", type(likelihood).__name__, "Give known noise as train_Yvar."
        )
    if Yvar is None:
        return "learned"
    return "known" if likelihood is None else "scaled"


def likelihood_for(mode: str, likelihood: Likelihood | None, batch_shape: Size) -> Likelihood:
    """The likelihood of a surrogate: the one given, BoTorch's default, or one of known noise."""
    if mode == "known":
        return FixedNoiseGaussianLikelihood(noise=torch.ones(*batch_shape, 1))
    return likelihood or get_gaussian_likelihood_with_lognormal_prior(batch_shape=batch_shape)


def noise_scale(mode: str, likelihood: Likelihood, like: Tensor) -> Tensor:
    """What multiplies the noise held in a state, like ``like`` (``o``), differentiable."""
    if mode == "known":
        return torch.ones_like(like)
    noise = cast(Tensor, likelihood.noise).double()
    return noise.reshape(-1).expand(like.shape)
