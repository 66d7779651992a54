"""Kernels with main effects, and the default hyperparameters on few inputs (MATHS 12.1)."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Size, Tensor

from bo_stream.errors import InputError

__all__ = ["MainEffects", "default_kernel", "default_likelihood", "main_effects"]

LENGTHSCALE, MAIN_LENGTHSCALE, LENGTHSCALE_SD = 0.3, 0.1, 0.8
VARIANCE, MAIN_VARIANCE, VARIANCE_SD = 0.5, 0.1, 1.5
NOISE, NOISE_SD, LEAST_NOISE = 0.5, 2.0, 1e-6
"""Modes and standard deviations of the logarithms, in widths of the bounds and variances of
standardised outcomes."""


class MainEffects(Kernel):
    """Sum over the inputs of one Matern kernel of each, with a common lengthscale.

    Args:
        nu: Smoothness, a whole number and a half: 0.5, 1.5 and so on. Under a small one the many
            sines of main effects follow noise.
        kwargs: Arguments of gpytorch's `Kernel`.

    Raises:
        InputError: for another smoothness.
    """

    has_lengthscale = True

    def __init__(self, nu: float = 4.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not (nu > 0.0 and nu % 1.0 == 0.5):
            raise InputError("nu = 0.5, 1.5, 2.5 or so on", f"{nu}", "Choose one of these.")
        self.nu = nu

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The kernel between two sets of points."""
        apart = x1 - x2 if diag else x1.unsqueeze(-2) - x2.unsqueeze(-3)
        scale = self.lengthscale if diag else self.lengthscale.unsqueeze(-1)
        r = math.sqrt(2.0 * self.nu) * (apart / scale).abs()
        value: Tensor = (-r).exp() * _polynomial(round(self.nu - 0.5), r)
        return value.sum(-1)


def _polynomial(p: int, r: Tensor) -> Tensor:
    """The factor beside ``exp(-r)`` in a Matern kernel of smoothness ``p + 1/2``."""
    term = total = torch.ones_like(r)
    for i in range(p):
        term = term * r * (2.0 * (p - i) / ((2 * p - i) * (i + 1)))
        total = total + term
    return total


def main_effects(batch_shape: Size) -> ScaleKernel:
    """Main effects of a variance of their own, with the default priors."""
    base = MainEffects(
        batch_shape=batch_shape, lengthscale_prior=_about(MAIN_LENGTHSCALE, LENGTHSCALE_SD)
    )
    return _started(base, MAIN_LENGTHSCALE, MAIN_VARIANCE)


def default_kernel(dim: int, batch_shape: Size) -> ScaleKernel:
    """A scaled Matern-5/2 kernel with the default priors."""
    length = LENGTHSCALE * math.sqrt(dim / 3.0)
    base = MaternKernel(
        nu=2.5,
        ard_num_dims=dim,
        batch_shape=batch_shape,
        lengthscale_prior=_about(length, LENGTHSCALE_SD),
    )
    return _started(base, length, VARIANCE)


def default_likelihood(batch_shape: Size) -> GaussianLikelihood:
    """Learned noise from almost none on."""
    return GaussianLikelihood(
        noise_prior=_about(NOISE, NOISE_SD),
        noise_constraint=GreaterThan(LEAST_NOISE, transform=None, initial_value=NOISE),
        batch_shape=batch_shape,
    )


def _started(base: Kernel, lengthscale: float, variance: float) -> ScaleKernel:
    """The kernel in a `ScaleKernel`, with hyperparameters set."""
    prior = _about(variance, VARIANCE_SD)
    made = ScaleKernel(base, batch_shape=base.batch_shape, outputscale_prior=prior)
    with torch.no_grad():
        base.lengthscale, made.outputscale = lengthscale, variance
    return made


def _about(mode: float, sd: float) -> LogNormalPrior:
    """The prior under which the logarithm's posterior mode is that of ``N(log mode, sd^2)``.

    The density is one of the value; a fit climbs in the logarithm.
    """
    return LogNormalPrior(math.log(mode) + sd**2, sd)
