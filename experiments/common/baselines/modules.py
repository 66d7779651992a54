"""The kernel, mean and likelihood that all methods of a comparison start with."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from gpytorch.kernels import RBFKernel
from gpytorch.means import ConstantMean
from torch import Tensor

from bo_stream import ExactGP
from experiments.common.kernels import RAW, gaussian, scaled

__all__ = ["copied", "learned", "modules"]

NOISE, FLOOR = 0.1, 1e-5
"""Noise variance started at, and its least, for standardised outcomes."""
ROWS = 600
"""Rows that hyperparameters are learned from where a method does not learn them by itself."""


def modules(dim: int) -> dict[str, Any]:
    """A scaled ARD squared-exponential kernel, a constant mean and Gaussian noise, without priors.

    For standardised inputs and outcomes, which are taken as they are.
    """
    base = RBFKernel(ard_num_dims=dim)
    return RAW | {
        "covar_module": scaled(base, lengthscale=math.sqrt(dim), outputscale=1.0),
        "mean_module": ConstantMean().double(),
        "likelihood": gaussian(noise=NOISE, floor=FLOOR),
    }


def copied(given: dict[str, Any]) -> dict[str, Any]:
    """Modules of one's own with the same values."""
    return {name: copy.deepcopy(module) for name, module in given.items()}


def learned(X: Tensor, Y: Tensor, seed: int = 0, rows: int = ROWS) -> dict[str, Any]:
    """Modules whose hyperparameters have the greatest exact evidence of at most so many rows.

    Args:
        X: ``n x d``.
        Y: ``n x 1``.
        seed: Of the choice of rows.
        rows: How many.
    """
    some = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))[:rows]
    given = modules(X.shape[1])
    ExactGP(X[some], Y[some], **given).fit()
    for module in ("covar_module", "mean_module", "likelihood"):
        given[module].requires_grad_(False)
    return given
