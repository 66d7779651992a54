"""A walk through a magnetic field, and the kernel of its strength."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from experiments.common.kernels import RAW, gaussian, scaled, standardised
from experiments.common.progress import say
from problems.errors import DataNotFound
from problems.tables import load_table

__all__ = ["Walk", "path_kernel", "walked"]


@dataclass(frozen=True, eq=False)
class Walk:
    """A field's strength along a path.

    Attributes:
        X, Y: Positions (metres), ``n x 2``, and strength (microtesla), ``n x 1``, in order.
        X_test, Y_test: Those held out.
        attribution: Where they come from.
    """

    X: Tensor
    Y: Tensor
    X_test: Tensor
    Y_test: Tensor
    attribution: str


def walked(name: str, every: int) -> Walk:
    """A walk, measured or made up.

    Args:
        name: Of a table with the three components of a field; ``synthetic`` for a walk made up,
            which also stands in where the table is absent.
        every: One row in so many is held out.
    """
    try:
        X, Y, attribution = _synthetic() if name == "synthetic" else _measured(name)
    except DataNotFound as error:
        say(f"{error}\nRunning on a SYNTHETIC walk instead.")
        X, Y, attribution = _synthetic()
    held = torch.arange(len(X)) % every == every - 1
    return Walk(X[~held], Y[~held], X[held], Y[held], attribution)


def path_kernel(Y: Tensor, c: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """Kernel, likelihood and outcome transform, new at each call."""

    def parts() -> dict[str, Any]:
        base = RBFKernel(ard_num_dims=2, lengthscale_prior=LogNormalPrior(*c["lengthscale"]))
        start, prior = math.exp(c["lengthscale"][0]), LogNormalPrior(0.0, 1.0)
        noise, noise_prior = math.exp(c["noise"][0]), LogNormalPrior(*c["noise"])
        return RAW | {
            "covar_module": scaled(base, lengthscale=start, outputscale_prior=prior),
            "likelihood": gaussian(noise=noise, prior=noise_prior, floor=1e-4),
            "outcome_transform": standardised(Y),
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
