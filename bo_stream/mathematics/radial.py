"""RBF and Matern kernels in numpy, with slopes in closed form.

Arrays are float64; gradients are returned by closures, ``pull``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["FARTHEST", "Array", "Functions", "Pull", "RadialCovariance", "radial"]

Array = NDArray[np.float64]

Pull = Callable[[Array], Array]
"""From gradients in values to gradients in the points."""

FARTHEST = 4096.0
"""Larger values of 5 r^2 count as this one: exp(-64) = 1e-28, and no product is subnormal, which is
a hundred times slower. So it is for other kernels."""
NEAREST = 1e-7
"""Distances below this one have no direction."""


def radial(r2: Array, nu: float) -> tuple[Array, Array]:
    """The correlation at squared distances in lengthscales, and minus its slope in these.

    Args:
        r2: Of any shape; overwritten.
        nu: Smoothness: 0.5, 1.5, 2.5; infinite for RBF.
    """
    r2 *= 32.0 if math.isinf(nu) else 2.0 * nu
    t2: Array = np.minimum(np.maximum(r2, 0.0, out=r2), FARTHEST, out=r2)
    if math.isinf(nu):
        t2 *= -1.0 / 64.0
        K = np.exp(t2, out=t2)
        return K, 0.5 * K
    K = t2 * (1.0 / 3.0)
    t = np.sqrt(t2, out=t2)
    if nu == 0.5:
        return np.exp(-t), np.exp(-t) * (t > NEAREST) / np.maximum(2.0 * t, NEAREST)
    falling = t + 1.0
    e = np.exp(np.negative(t, out=t), out=t)
    falling *= e
    if nu == 1.5:
        return falling, 1.5 * e
    K *= e
    K += falling
    falling *= 5.0 / 6.0
    return K, falling


class Functions(Protocol):
    """Finitely many functions ``b`` of points."""

    def __call__(self, X: Array) -> tuple[Array, Pull]:
        """At points ``p x d``: values ``p x s``; from gradients in these, that in the points."""

    def lengths(self, lengthscales: Array) -> Array:
        """The lengths along the inputs that are lengthscales of what the functions are made of."""
        return lengthscales


@dataclass(frozen=True)
class RadialCovariance:
    """An RBF or Matern kernel with a lengthscale for each input.

    Categories are one lengthscale apart where they differ, and have no slopes.

    Attributes:
        inverse: One over the lengthscales, ``d``.
        variance: Prior variance.
        nu: Smoothness: 0.5, 1.5, 2.5; infinite for RBF.
        categories: Indices of inputs that are categories.
    """

    inverse: Array
    variance: float = 1.0
    nu: float = 2.5
    categories: tuple[int, ...] = ()

    @cached_property
    def ordered(self) -> Array:
        """One over the lengthscales, 0 for categories."""
        inverse = self.inverse.copy()
        inverse[list(self.categories)] = 0.0
        return inverse

    def functions(self, Z: Array) -> Functions:
        """The covariances with points ``s x d``."""
        return RadialFunctions(self, Z)

    def matrix(self, X: Array) -> Array:
        """Those of points ``n x d`` with each other, ``n x n``."""
        K, _ = self.functions(X)(X)
        K.ravel()[:: len(K) + 1] = self.variance
        return K

    def between(self, X: Array) -> tuple[Array, Pull]:
        """Those of the points of each batch, ``R x q x d``, with each other: ``R x q x q``; and the
        gradient in the points from a symmetric M: ``sum_j M_ij dk(x_i, x_j)/dx_i``.
        """
        if X.shape[1] == 1:
            return np.full((len(X), 1, 1), self.variance), lambda M: np.zeros_like(X)
        gaps = X[:, :, None] - X[:, None]
        for j in self.categories:
            gaps[..., j] = gaps[..., j] != 0.0
        gaps *= self.inverse
        K, falling = self.of_squares((gaps * gaps).sum(-1))

        def pull(M: Array) -> Array:
            return -2.0 * self.ordered * ((M * falling)[..., None] * gaps).sum(2)

        return K, pull

    def of_squares(self, r2: Array) -> tuple[Array, Array]:
        """As `radial`, times the variance."""
        both = radial(r2, self.nu)
        return both if self.variance == 1.0 else (self.variance * both[0], self.variance * both[1])


@dataclass(frozen=True)
class RadialFunctions(Functions):
    """Covariances with points.

    Squared distances come from one matrix product, accurate to rounding times the squared lengths
    of scaled points about their mean.

    Attributes:
        kernel: The covariance.
        Z: The points, ``s x d``.
    """

    kernel: RadialCovariance
    Z: Array

    @cached_property
    def _about(self) -> tuple[Array, Array, Array, Array]:
        """The points' mean; the points from there in lengthscales, this times -2, and squares."""
        centre = self.Z.mean(0) if len(self.Z) else np.zeros(self.Z.shape[1])
        Z = (self.Z - centre) * self.kernel.ordered
        return centre, Z, -2.0 * Z.T, np.einsum("sd,sd->s", Z, Z)

    def __call__(self, X: Array) -> tuple[Array, Pull]:
        """As `Functions`: O(s d) a point."""
        kernel, (centre, Z, columns, squares) = self.kernel, self._about
        U = (X - centre) * kernel.ordered
        r2: Array = U @ columns
        r2 += np.einsum("pd,pd->p", U, U)[:, None]
        r2 += squares
        for j in kernel.categories:
            r2 += (X[:, j, None] != self.Z[:, j]) * kernel.inverse[j] ** 2
        K, falling = kernel.of_squares(r2)

        def pull(bar: Array) -> Array:
            each = bar * falling
            return (2.0 * kernel.ordered) * (each @ Z - each.sum(1)[:, None] * U)

        return K, pull
