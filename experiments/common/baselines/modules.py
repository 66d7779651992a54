"""The kernel, mean and likelihood that all methods of a comparison start with."""

import math
from typing import Any

import torch
from botorch.models.utils.gpytorch_modules import (
    get_covar_module_with_dim_scaled_prior,
    get_gaussian_likelihood_with_lognormal_prior,
)
from gpytorch.kernels import RBFKernel
from gpytorch.means import ConstantMean
from torch import Tensor

from bo_stream import ExactGP
from experiments.common.kernels import RAW, gaussian, scaled

ROWS = 600
"""Rows that hyperparameters are learned from where a method does not learn them by itself."""


def modules(dim: int) -> dict[str, Any]:
    """The defaults of every family, in float64, for inputs and outcomes that are taken as they are.

    A scaled ARD squared-exponential kernel, a constant mean and Gaussian noise, with BoTorch's
    priors. They start at values that suit standardised data: lengthscales of ``sqrt(d)``, noise of
    0.1. Constraints are softplus ones: BoTorch's own are for optimisers with bounds, and Adam would
    step across them.
    """
    prior = get_covar_module_with_dim_scaled_prior(dim).lengthscale_prior
    base = RBFKernel(ard_num_dims=dim, lengthscale_prior=prior)
    noise_prior = get_gaussian_likelihood_with_lognormal_prior().noise_covar.noise_prior
    return RAW | {
        "covar_module": scaled(base, lengthscale=math.sqrt(dim)),
        "mean_module": ConstantMean().double(),
        "likelihood": gaussian(noise=0.1, prior=noise_prior, floor=1e-4),
    }


def learned(X: Tensor, Y: Tensor, seed: int = 0, rows: int = ROWS) -> dict[str, Any]:
    """Modules whose hyperparameters have the greatest exact evidence of at most so many rows.

    The rows, of ``n x d`` and ``n x 1``, are chosen by the seed.
    """
    some = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))[:rows]
    own = modules(X.shape[1])
    ExactGP(X[some], Y[some], **own).fit()
    return frozen(own)


def frozen(own: dict[str, Any]) -> dict[str, Any]:
    """The modules, no longer to be learned."""
    for name in ("covar_module", "mean_module", "likelihood"):
        own[name].requires_grad_(False)
    return own
