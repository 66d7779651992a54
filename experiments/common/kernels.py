"""Kernels, likelihoods and outcome transforms as the studies start them, in float64."""

from typing import Any

from botorch.models.transforms import Standardize
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import Prior
from torch import Tensor

RAW: dict[str, Any] = {"input_transform": None, "outcome_transform": None}
"""No transforms: for data whose units are right as they are."""


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


def gaussian(
    *, noise: float | None = None, prior: Prior | None = None, floor: float | None = None
) -> GaussianLikelihood:
    """A Gaussian likelihood whose variance starts at ``noise`` and stays above ``floor``."""
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
