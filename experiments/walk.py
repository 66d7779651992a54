"""A walk through a magnetic field, and the kernel of its strength."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from botorch.models.transforms import Standardize
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from problems.errors import DataNotFound
from problems.tables import load_table

__all__ = ["path_kernel", "walked"]


def walked(name: str, every: int) -> tuple[Tensor, Tensor, Tensor, Tensor, str]:
    """Positions (metres) and field strength in order, those held out, and the attribution.

    Args:
        name: Of a table with the three components of a field; ``synthetic`` for a walk made up,
            which also stands in where the table is absent.
        every: One row in so many is held out.
    """
    try:
        X, Y, attribution = _synthetic() if name == "synthetic" else _measured(name)
    except DataNotFound as error:
        print(f"{error}\nRunning on a SYNTHETIC walk instead.")
        X, Y, attribution = _synthetic()
    held = torch.arange(len(X)) % every == every - 1
    return X[~held], Y[~held], X[held], Y[held], attribution


def path_kernel(Y: Tensor, c: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """Kernel, likelihood and outcome transform, new at each call."""

    def parts() -> dict[str, Any]:
        base = RBFKernel(ard_num_dims=2, lengthscale_prior=LogNormalPrior(*c["lengthscale"]))
        kernel = ScaleKernel(base, outputscale_prior=LogNormalPrior(0.0, 1.0)).double()
        base.lengthscale = math.exp(c["lengthscale"][0])
        likelihood = GaussianLikelihood(
            noise_prior=LogNormalPrior(*c["noise"]), noise_constraint=GreaterThan(1e-4)
        ).double()
        likelihood.noise = math.exp(c["noise"][0])
        outcomes = Standardize(1)
        outcomes(Y)
        return {
            "covar_module": kernel,
            "likelihood": likelihood,
            "outcome_transform": outcomes.eval(),
        }

    return parts


def _measured(name: str) -> tuple[Tensor, Tensor, str]:
    table = load_table(name)
    return table.X, table.Y.norm(dim=-1, keepdim=True), table.attribution


def _synthetic() -> tuple[Tensor, Tensor, str]:
    time = torch.linspace(0.0, 30.0, 400, dtype=torch.float64)
    X = torch.stack([(0.9 * time).sin() + 0.05 * time, (0.7 * time).cos()], -1)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(len(X), 1, generator=generator, dtype=torch.float64)
    return X, 50.0 + 5.0 * (2.0 * X).sin().sum(-1, keepdim=True) + 0.5 * noise, "synthetic walk"
