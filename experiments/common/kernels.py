"""Kernels, likelihoods and outcome transforms as the studies start them, in float64."""

from __future__ import annotations

from typing import Any

from botorch.models.transforms import Standardize
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import AdditiveKernel, Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import Prior
from torch import Tensor

__all__ = ["RAW", "additive", "gaussian", "scaled", "standardised"]

RAW: dict[str, Any] = {"input_transform": None, "outcome_transform": None}
"""No transforms, said explicitly: for data whose units are right as they are."""


def scaled(
    base: Kernel,
    *,
    lengthscale: float | None = None,
    outputscale: float | None = None,
    outputscale_prior: Prior | None = None,
) -> ScaleKernel:
    """A kernel under an outputscale, started at these values where they are given."""
    kernel = ScaleKernel(base, outputscale_prior=outputscale_prior).double()
    if lengthscale is not None:
        base.lengthscale = lengthscale
    if outputscale is not None:
        kernel.outputscale = outputscale
    return kernel


def additive(dim: int, *, lengthscale: float, outputscale: float) -> AdditiveKernel:
    """A squared-exponential kernel for every axis, summed; ``outputscale`` is that of the sum."""
    parts = (RBFKernel(active_dims=(i,)) for i in range(dim))
    settings = {"lengthscale": lengthscale, "outputscale": outputscale / dim}
    return AdditiveKernel(*(scaled(part, **settings) for part in parts))


def gaussian(
    *, noise: float | None = None, prior: Prior | None = None, floor: float | None = None
) -> GaussianLikelihood:
    """A Gaussian likelihood.

    Args:
        noise: The variance it starts at.
        prior: Of the variance.
        floor: Which the variance stays above; gpytorch's own if None.
    """
    constraint = None if floor is None else GreaterThan(floor)
    likelihood = GaussianLikelihood(noise_prior=prior, noise_constraint=constraint).double()
    if noise is not None:
        likelihood.noise = noise
    return likelihood


def standardised(Y: Tensor) -> Standardize:
    """An outcome transform learned from ``n x 1`` outcomes, and frozen."""
    outcomes = Standardize(1)
    outcomes(Y)
    return outcomes.eval()
