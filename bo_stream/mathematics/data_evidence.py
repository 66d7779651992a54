"""The evidence of a few hundred observations, in numpy and closed form [MATHS 0].

For few observations the bookkeeping of autograd and modules costs several times the algebra.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrs

from bo_stream.mathematics.exact import factored, less_outer
from bo_stream.mathematics.expanded import Slopes, mapped, multiplied
from bo_stream.mathematics.grid import Grid
from bo_stream.mathematics.linalg import REPAIR
from bo_stream.mathematics.radial import Array, RadialCovariance, radial
from bo_stream.mathematics.shapes import Rows

__all__ = ["Correlations", "DataEvidence", "correlations_at", "correlations_on"]

Correlations = Callable[[Array], tuple[Array, Callable[[Array], Array]]]
"""From ``d`` lengthscales to the matrix of a kernel of unit variance at some points, ``n x n``, and
a function from M to the sums of ``M dK`` for every log lengthscale, ``d``."""


def correlations_at(rows: Rows, nu: float) -> Correlations:
    """Those of a stationary kernel: O(d n^2) each time.

    Args:
        rows: The points.
        nu: Smoothness, 1/2, 3/2 or 5/2; infinite for RBF.
    """
    X = rows.X.numpy() - rows.X.numpy().mean(0)

    def at(lengths: Array) -> tuple[Array, Callable[[Array], Array]]:
        K, pull = RadialCovariance(1.0 / lengths, nu=nu).functions(X)(X)
        K.ravel()[:: len(K) + 1] = 1.0
        return K, lambda M: -2.0 * np.einsum("nd,nd->d", X, pull(M))

    return at


def correlations_on(grid: Grid, rows: Rows, nu: float) -> Correlations:
    """Those of a product on the nodes of a grid, interpolated: O(d^2 n^2 + d g n^2) each time.

    Args:
        grid: The nodes.
        rows: As for `correlations_at`.
        nu: As for `correlations_at`.
    """
    weights = [W.numpy() for W in grid.axes_at(rows.X).split(grid.sizes, -1)]
    nodes = [h * np.arange(size) for h, size in zip(grid.step, grid.sizes, strict=True)]
    squares = [np.subtract.outer(z, z) ** 2 for z in nodes]

    def factor(W: Array, squares: Array, length: float) -> tuple[Array, Slopes]:
        r2 = squares * length**-2
        T, falling = radial(r2.copy(), nu)
        return mapped((T, lambda: 2.0 * falling * r2), lambda K: W @ K @ W.T)

    def at(lengths: Array) -> tuple[Array, Callable[[Array], Array]]:
        K, pull = multiplied([*map(factor, weights, squares, lengths)])
        return K, lambda M: pull(M).sum(0)

    return at


@dataclass(frozen=True)
class DataEvidence:
    """The log evidence of targets of one output, with its gradient.

    Attributes:
        correlations: The kernel but for its variance.
        y: Targets, ``n``.
        r: Noise variances before the scale, ``n``.
    """

    correlations: Correlations
    y: Array
    r: Array

    def __call__(self, logs: Array, mean: float | None) -> tuple[float, Array, float]:
        """The value, its gradient in ``logs``, and the mean: O(n^3 + d n^2).

        Args:
            logs: Logarithms of the ``d`` lengthscales, the variance and the noise scale.
            mean: Constant mean; None for the optimal one.

        Raises:
            torch.linalg.LinAlgError: if the covariance is not positive definite.
        """
        variance, scale = np.exp(logs[-2:])
        K, slopes = self.correlations(np.exp(logs[:-2]))
        L = factored(variance * K, scale * self.r, REPAIR, REPAIR)
        ones, each = dpotrs(L, np.stack([np.ones_like(self.y), self.y]).T, lower=1)[0].T
        best = float(ones @ self.y) / float(ones.sum()) if mean is None else mean
        a, n = each - best * ones, len(self.y)
        value = -0.5 * float((self.y - best) @ a) - float(np.log(L.diagonal()).sum())
        half = less_outer(L, a, 1.0)
        M = half + half.T
        M.ravel()[:: n + 1] *= 0.5  # now minus twice the gradient in C
        gradient = np.empty_like(logs)
        gradient[-2] = variance * np.vdot(M, K)
        gradient[-1] = scale * float(M.diagonal() @ self.r)
        gradient[:-2] = variance * slopes(M)
        return value - 0.5 * n * math.log(2.0 * math.pi), -0.5 * gradient, best
