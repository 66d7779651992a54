"""Spectral densities of stationary kernels: the prior variances of the sine features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor, nn

from bo_stream.errors import InputError, UnsupportedError
from bo_stream.mathematics.hilbert_features.basis import Basis
from bo_stream.mathematics.hilbert_features.kernel import MainEffects

__all__ = ["Component", "Components", "Spectrum", "checked_lengthscales", "components_of"]


@dataclass(frozen=True)
class Component:
    """A kernel and the scales that it is in.

    Attributes:
        base: An RBF or Matern kernel of all inputs, or main effects.
        scales: The `ScaleKernel`s around it.
    """

    base: Kernel
    scales: tuple[ScaleKernel, ...]

    @property
    def nu(self) -> float:
        """Smoothness; infinite for RBF."""
        return math.inf if isinstance(self.base, RBFKernel) else float(self.base.nu)

    def lengthscales(self, dim: int, outputs: int) -> Tensor:
        """``o x dim``, float64, differentiable."""
        value = self.base.lengthscale.double()
        return value.reshape(-1, value.shape[-1]).expand(outputs, dim)

    def variances(self, outputs: int) -> Tensor:
        """The product of the scales, ``o``, float64, differentiable."""
        total = self.base.lengthscale.new_ones(outputs).double()
        for scale in self.scales:
            total = total * scale.outputscale.double().reshape(-1)
        return total

    @property
    def scale_parameters(self) -> list[nn.Parameter]:
        """The raw parameters of the scales."""
        return [scale.raw_outputscale for scale in self.scales]


@dataclass(frozen=True)
class Components:
    """The parts of a kernel: functions of all inputs, and perhaps main effects."""

    joint: Component
    main: Component | None

    def log_variances(self, basis: Basis, outputs: int) -> Tensor:
        """Logarithms of the features' prior variances, ``o x f``, differentiable (MATHS 2.9)."""
        parts = []
        if self.main is not None:
            spectrum = Spectrum.of_main(self.main, basis)
            parts.append(_logs(spectrum, self.main, 1, outputs))
        spectrum = Spectrum.of_joint(self.joint, basis)
        parts.append(_logs(spectrum, self.joint, basis.alpha.shape[-1], outputs))
        return torch.cat(parts, -1)


def _logs(spectrum: Spectrum, part: Component, dim: int, outputs: int) -> Tensor:
    lengths, variances = part.lengthscales(dim, outputs).log(), part.variances(outputs).log()
    return torch.stack([spectrum.logs(*own) for own in zip(lengths, variances, strict=True)])


@dataclass(frozen=True)
class Spectrum:
    """Logarithms of prior variances as a function of those of the hyperparameters.

    Attributes:
        nu: Smoothness; infinite for RBF.
        squares: Squared frequencies, ``f x d``.
        volume: Logarithm of the volume of the bounds, or width for functions of one input: ``f``
            or 0-dim.
    """

    nu: float
    squares: Tensor
    volume: Tensor | float = 0.0

    @classmethod
    def of_joint(cls, part: Component, basis: Basis) -> Spectrum:
        """For the functions of all inputs."""
        squares = (basis.joint * basis.rate).square()
        return cls(part.nu, squares, basis.width.log().sum())

    @classmethod
    def of_main(cls, part: Component, basis: Basis) -> Spectrum:
        """For the main effects."""
        alone = basis.alpha[: basis.main * basis.alpha.shape[-1]] * basis.rate
        widths = basis.width.log().repeat_interleave(basis.main)
        squares = alone.square().sum(-1, keepdim=True)
        return cls(part.nu, squares, widths)

    def logs(self, lengths: Tensor, variance: Tensor) -> Tensor:
        """Logarithms of the prior variances, ``f``.

        Args:
            lengths: Logarithms of the lengthscales, ``d``.
            variance: Logarithm of the kernel's variance, 0-dim.
        """
        squares = self.squares @ (2.0 * lengths).exp()
        constant = _constant(self.nu, self.squares.shape[-1])
        total = lengths.sum() + variance + constant - self.volume
        if math.isinf(self.nu):
            return total - 0.5 * squares
        power = self.nu + 0.5 * len(lengths)
        return total - power * (2.0 * self.nu + squares).log()

    def pull(self, lengths: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients in the arguments of `logs` from one in its value, ``f``."""
        scales, total = (2.0 * lengths).exp(), gradient.sum()
        if math.isinf(self.nu):
            return total - (gradient @ self.squares) * scales, total
        power = 2.0 * self.nu + len(lengths)
        inner = gradient / (2.0 * self.nu + self.squares @ scales)
        return total - power * (inner @ self.squares) * scales, total


def _constant(nu: float, d: int) -> float:
    if math.isinf(nu):
        return 0.5 * d * math.log(2.0 * math.pi)
    constant = d * math.log(2.0) + 0.5 * d * math.log(math.pi) + nu * math.log(2.0 * nu)
    return constant + math.lgamma(nu + 0.5 * d) - math.lgamma(nu)


def components_of(kernel: Kernel) -> Components:
    """The parts of a kernel.

    Raises:
        UnsupportedError: on a kernel whose spectral density is not implemented.
    """
    kernels = list(kernel.kernels) if type(kernel) is AdditiveKernel else [kernel]
    parts = [_component(part) for part in kernels]
    main = [part for part in parts if type(part.base) is MainEffects]
    joint = [part for part in parts if type(part.base) in (RBFKernel, MaternKernel)]
    plain = all(part.base.active_dims is None for part in parts)
    if not plain or len(joint) != 1 or len(main) != len(parts) - 1 or len(main) > 1:
        raise UnsupportedError(
            "an RBF or Matern kernel over all inputs, in a ScaleKernel or not, with main effects "
            "or without",
            " + ".join(type(part.base).__name__ for part in parts)
            + ("" if plain else " over some of the inputs"),
            "Use one of these, or a family that takes any kernel (ExactGP, OnlineSGPR, CaGP).",
        )
    return Components(joint[0], main[0] if main else None)


def _component(kernel: Kernel) -> Component:
    """A kernel inside its scales."""
    scales: list[ScaleKernel] = []
    while type(kernel) is ScaleKernel and kernel.active_dims is None:
        scales.append(kernel)
        kernel = kernel.base_kernel
    return Component(kernel, tuple(scales))


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
