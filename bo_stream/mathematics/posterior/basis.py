"""Functions of a point that a posterior is expanded in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.mathematics.posterior.factor import cross_kernel
from bo_stream.mathematics.posterior.moments import Pullback
from bo_stream.mathematics.posterior.paths import Path, prior_path

__all__ = ["PriorBasis", "FeatureBasis", "FeatureMap", "KernelBasis", "noisy"]


class PriorBasis(Protocol):
    """Functions ``b`` of a point: prior covariances of ``f(x)`` with r functionals of ``f``."""

    def __call__(self, X: Tensor) -> Tensor:
        """Values at points ``batch x q x d``: ``batch x o x q x r``, differentiable."""
        ...

    def prior(self, outputs: int, sample_shape: Size) -> Path:
        """Sample functions of the prior, less its mean."""
        ...

    def functionals(self, f: Path) -> Tensor:
        """The functionals of sample functions of the prior, with their noise: ``batch x o x r``."""
        ...


@dataclass(frozen=True)
class KernelBasis:
    """``k(Z, x)``: the functionals are values at points, with independent noise or without.

    Attributes:
        kernel: The kernel, frozen.
        Z: ``r x d``.
        noise: Noise variances ``o x r``, or None.
    """

    kernel: Kernel
    Z: Tensor
    noise: Tensor | None = None

    def __call__(self, X: Tensor) -> Tensor:
        """O(r) kernel values per point."""
        return cross_kernel(self.kernel, X, self.Z)

    def prior(self, outputs: int, sample_shape: Size) -> Path:
        """From random features of the kernel."""
        return prior_path(self.kernel, outputs, sample_shape, self.Z)

    def functionals(self, f: Path) -> Tensor:
        """Values of the sample functions at Z, plus noise."""
        values = f(self.Z)
        return values if self.noise is None else noisy(values, self.noise)


def noisy(values: Tensor, noise: Tensor) -> Tensor:
    """The values with independent Gaussian noise of these variances."""
    return values + noise.sqrt() * torch.randn_like(values)


class FeatureMap(Protocol):
    """Finitely many functions of the inputs."""

    def features(self, X: Tensor) -> Tensor:
        """Features at points ``batch x q x d``: ``batch x q x f``, differentiable."""
        ...

    def sloped(self, X: Tensor) -> tuple[Tensor, Pullback]:
        """Features and their derivatives in k coordinates, without an autograd graph.

        Args:
            X: Points, ``batch x q x d``.

        Returns:
            ``batch x q x (1 + k) x f``, the values first; and a function from gradients in the
            coordinates to gradients in X.
        """
        ...


@dataclass(frozen=True)
class FeatureBasis:
    """Features times the standard deviations of their coefficients under the prior.

    The functionals are the coefficients in units of these deviations.

    Attributes:
        features: The features.
        scale: The standard deviations, ``o x f``.
    """

    features: FeatureMap
    scale: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        """As `PriorBasis`."""
        return self.features.features(X).unsqueeze(-3) * self.scale.unsqueeze(-2)
