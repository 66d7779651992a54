"""The noise model: learned, known, or known up to a learned scale.

A state holds noise variances before any learned scale (``R``). They are multiplied by the scale:
the learned noise or factor, or one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from botorch.models.utils.gpytorch_modules import get_gaussian_likelihood_with_lognormal_prior
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, Likelihood
from torch import Size, Tensor

from bo_stream.base.checks import check_noise, check_tensors
from bo_stream.errors import ShapeError, UnsupportedError

__all__ = [
    "likelihood_for",
    "noise_mode_of",
    "noise_to_add",
]


def noise_mode_of(Yvar: Tensor | None, likelihood: Likelihood | None) -> str:
    """The noise mode: ``learned``, ``known``, or ``scaled`` (known up to a learned scale).

    Raises:
        UnsupportedError: for a likelihood that no surrogate supports.
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
    """The likelihood of a surrogate: the given one, BoTorch's default, or one of known noise."""
    if mode == "known":
        return FixedNoiseGaussianLikelihood(noise=torch.ones(*batch_shape, 1))
    return likelihood or get_gaussian_likelihood_with_lognormal_prior(batch_shape=batch_shape)


def noise_to_add(
    wanted: bool | Tensor, X: Tensor, outputs: int, typical: Callable[[], Tensor]
) -> Tensor | None:
    """The noise to add to a posterior at X, ``... x o x (q | 1)``, or None.

    Args:
        wanted: BoTorch's ``observation_noise``.
        X: ``... x q x d``.
        outputs: ``o``.
        typical: Returns the typical noise, ``o``.
    """
    if isinstance(wanted, Tensor):
        shape, q = wanted.shape, X.shape[-2]
        if len(shape) < 2 or shape[-1] != outputs or shape[-2] not in (1, q):
            raise ShapeError(
                f"observation_noise `... x {q} x {outputs}`, or one row",
                f"{tuple(shape)}",
                "Give one variance per point and output, outcome-transformed.",
            )
        check_noise(wanted, zero_allowed=True)
        return wanted.double().mT
    if not isinstance(wanted, bool):
        check_tensors({"observation_noise": wanted})
    return typical().unsqueeze(-1) if wanted else None
