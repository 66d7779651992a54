"""Spectral densities of stationary kernels: the prior variances of the sine features."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from bo_stream.errors import InputError, UnsupportedError

__all__ = ["checked_lengthscales", "lengthscales_of", "log_density"]


def lengthscales_of(kernel: Kernel, dim: int, outputs: int) -> Tensor:
    """Lengthscales of a kernel, ``o x d``, float64, differentiable.

    Raises:
        UnsupportedError: on a kernel whose spectral density is not implemented.
    """
    base = _base(kernel)
    value = base.lengthscale.double()
    return value.reshape(-1, value.shape[-1]).expand(outputs, dim)


def checked_lengthscales(values: Sequence[float] | None, dim: int) -> list[float] | None:
    """The option ``lengthscales``, one number for each input, or None.

    Raises:
        InputError: unless there are ``dim`` positive numbers.
    """
    if values is None:
        return None
    checked = [float(value) for value in values]
    if len(checked) != dim or not all(0.0 < value < math.inf for value in checked):
        raise InputError(
            f"{dim} positive lengthscales", f"{checked}", "Give one for each transformed input."
        )
    return checked


def log_density(kernel: Kernel, frequencies: Tensor, outputs: int) -> Tensor:
    """Logarithm of the kernel's spectral density, ``o x f``, differentiable (MATHS 2.9).

    Args:
        kernel: An RBF or Matern kernel, scaled or not, with or without one batch dimension of the
            outputs.
        frequencies: ``f x d``, radians per unit of the inputs.
        outputs: Number of outputs.
    """
    d, base = frequencies.shape[-1], _base(kernel)
    lengthscales = lengthscales_of(kernel, d, outputs)
    squares = (frequencies * lengthscales.unsqueeze(-2)).square().sum(-1)
    volume = lengthscales.log().sum(-1, keepdim=True)
    if isinstance(base, RBFKernel):
        logs = volume + (0.5 * d * math.log(2.0 * math.pi) - 0.5 * squares)
    else:
        nu = float(base.nu)
        constant = d * math.log(2.0) + 0.5 * d * math.log(math.pi) + nu * math.log(2.0 * nu)
        constant += math.lgamma(nu + 0.5 * d) - math.lgamma(nu)
        logs = volume + constant - (nu + 0.5 * d) * (2.0 * nu + squares).log()
    while isinstance(kernel, ScaleKernel):
        logs = logs + kernel.outputscale.double().reshape(-1, 1).log()
        kernel = kernel.base_kernel
    return logs


def _base(kernel: Kernel) -> RBFKernel | MaternKernel:
    """The kernel inside its scales."""
    while type(kernel) is ScaleKernel and kernel.active_dims is None:
        kernel = kernel.base_kernel
    if type(kernel) not in (RBFKernel, MaternKernel) or kernel.active_dims is not None:
        raise UnsupportedError(
            "an RBF or Matern kernel over all inputs, in a ScaleKernel or not",
            type(kernel).__name__
            + ("" if kernel.active_dims is None else " over some of the inputs"),
            "Use one of these, or a family that takes any kernel (ExactGP, OnlineSGPR, CaGP).",
        )
    return kernel
