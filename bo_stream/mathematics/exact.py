"""Exact Matern-5/2 processes of a few hundred points, in numpy and closed form [MATHS 13.1, 14.2].

With correlations R, noise s and variance v, ``C = R + s I``, and a constant mean m, the evidence of
n targets w is highest over m and v in closed form. They have the priors ``m ~ N(0, v)`` and
``p(v) ~ exp(-1/v) / v`` (k = 1), or none (k = 0)::

    m = 1'C^-1 w / (1'C^-1 1 + k),   S = (w - m)'C^-1 (w - m) + k m^2,   v = (k + S/2) / (n/2 + k)
    -log p = (n/2 + k) log v + 1/2 log |C| - log |dw/dy| + constant

For a few dozen points the bookkeeping of autograd and modules costs several times the algebra.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.blas import dsyr
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from scipy.optimize import fmin_l_bfgs_b
from torch import Tensor

from bo_stream.mathematics.linalg import LEAST, chol_psd
from bo_stream.mathematics.radial import Array, RadialCovariance, radial

__all__ = [
    "Array",
    "Evidence",
    "Maximum",
    "Priors",
    "Solved",
    "Targets",
    "factored",
    "less_outer",
    "maximised",
    "solved",
]

Places = NDArray[np.intp]

MOST = 1e-4
"""Largest jitter of correlations."""
TINY = 1e-300
"""Smallest S: targets may all be equal."""


def factored(R: Array, noise: Array | float, most: float = MOST, least: float = LEAST) -> Array:
    """The lower Cholesky factor of ``R + s I``, with as little added as it takes, as in `chol_psd`.

    Raises:
        torch.linalg.LinAlgError: if it is not positive definite with any jitter.
    """
    C = R.copy()
    C.ravel()[:: len(C) + 1] += noise
    L, failed = dpotrf(C.T, lower=1, clean=1)
    return chol_psd(torch.from_numpy(C.T), most, least=least).numpy() if failed else np.asarray(L)


def less_outer(L: Array, a: Array, share: float) -> Array:
    """``C^-1 - share a a'``, in the lower triangle, from the factor of C, which is overwritten."""
    inverse = dpotri(L, lower=1, overwrite_c=1)[0]
    return np.asarray(dsyr(-share, a, lower=1, a=inverse, overwrite_a=1))


# -- evidence ------------------------------------------------------------------------------------


class Solved(NamedTuple):
    """The factor of C, and what follows from it for targets w.

    Attributes:
        L: ``n x n``.
        noise: s, ``n`` or one for all.
        mean: m.
        variance: v.
        weights: ``C^-1 (w - m)``, ``n``.
        value: The log evidence at m and v, with their priors if k = 1, without log slopes.
    """

    L: Array
    noise: Array | float
    mean: float
    variance: float
    weights: Array
    value: float


def solved(R: Array, noise: Array | float, w: Array, k: float) -> Solved:
    """Factor ``R + s I`` and find the optimal mean and variance of targets ``n``: O(n^3).

    Args:
        R: Correlations, ``n x n``.
        noise: s, ``n`` or one for all.
        w: Targets.
        k: Whether mean and variance have priors, 1 or 0.
    """
    L = factored(R, noise)
    one = np.ones_like(w)
    ones, each = dpotrs(L, np.array([one, w]).T, lower=1, overwrite_b=1)[0].T
    mean = float(ones @ w) / (float(ones @ one) + k)
    weights = each - mean * ones
    S = max(float((w - mean) @ weights) + k * mean * mean, TINY)
    power = 0.5 * len(w) + k
    variance = (k + 0.5 * S) / power
    value = -power * (math.log(variance) + 1.0) - float(one @ np.log(L.diagonal()))
    return Solved(L, noise, mean, variance, weights, value - 0.5 * len(w) * math.log(2.0 * math.pi))


class Targets(NamedTuple):
    """What an evidence is of.

    Attributes:
        w: ``n``.
        units: The warp's scale, zero for none, and the shift and size of the outcomes, in which
            mean and variance have their priors: 0 and 1 under a warp.
        log_slope: ``log |dw/dy|`` of the outcomes y.
        by_scale: Derivative of w in the logarithm of the warp's scale, if there is a warp.
        log_slope_by_scale: That of ``log_slope``.
    """

    w: Array
    units: tuple[float, float, float] = (0.0, 0.0, 1.0)
    log_slope: float = 0.0
    by_scale: Array | None = None
    log_slope_by_scale: float = 0.0


@dataclass(frozen=True)
class Priors:
    """Independent normal priors of an evidence's parameters, and their bounds.

    Attributes:
        table: Centre, standard deviation, lower and upper bound of every parameter, ``4 x p``.
        k: Whether mean and variance have priors, 1 or 0.
        floor: Smallest noise.
    """

    table: Array
    k: float
    floor: float = 0.0

    @property
    def centre(self) -> Array:
        """Centres of the normal densities, ``p``."""
        return self.table[0]

    @property
    def bounds(self) -> Array:
        """Lower and upper bounds, ``2 x p``."""
        return self.table[2:]

    def log_density(self, theta: Tensor) -> Tensor:
        """Of the parameters, up to a constant: 0-dim, differentiable."""
        centre, sd, _, _ = torch.from_numpy(self.table).to(theta)
        return -0.5 * ((theta - centre) / sd).square().sum()


@dataclass(frozen=True)
class Evidence:
    """Log evidence plus log priors with its gradient, at the optimal mean and variance.

    Its parameters are ``d`` log lengthscales, the logarithm of noise above the floor unless the
    noise is known, and the logarithm of the warp's scale if targets are warped.

    Attributes:
        X: Points, ``n x d``, near the origin.
        targets: Targets, or their function of the logarithm of the warp's scale.
        priors: Of the parameters.
        noise: Relative noise variance, if it is known.
        cat_dims: Indices of categories.
    """

    X: Array
    targets: Targets | Callable[[float], Targets]
    priors: Priors
    noise: float | None = None
    cat_dims: tuple[int, ...] = ()

    @cached_property
    def _pairs(self) -> tuple[Places, Array]:
        """Places of the pairs of points above the diagonal of a matrix, flat, and their squared
        differences, ``d x pairs``.
        """
        rows, columns = np.triu_indices(len(self.X), 1)
        gaps = self.X.T[:, rows] - self.X.T[:, columns]
        for j in self.cat_dims:
            gaps[j] = gaps[j] != 0.0
        return rows * len(self.X) + columns, gaps * gaps

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Value and gradient: O(n^3 + d n^2)."""
        (n, d), priors, targets = self.X.shape, self.priors, self.targets_at(theta)
        above, squares = self._pairs
        rates = np.exp(-2.0 * theta[:d])
        k, falling = radial(rates @ squares, 2.5)
        R = np.eye(n)
        R.ravel()[above] = k  # the upper triangle is all that is used
        found = solved(R, self.noise_at(theta), targets.w, priors.k)
        centre, sd, _, _ = priors.table
        z = (theta - centre) / sd
        gradient = -z / sd
        a = found.weights
        half = less_outer(found.L, a, 1.0 / found.variance)
        gradient[:d] -= 2.0 * rates * (squares @ (half.T.ravel()[above] * falling))
        if self.noise is None:
            gradient[d] -= math.exp(theta[d]) * 0.5 * float(half.trace())
        if targets.by_scale is not None:
            slope = float(a @ targets.by_scale) / found.variance
            gradient[-1] += targets.log_slope_by_scale - slope
        return found.value + targets.log_slope - 0.5 * float(z @ z), gradient

    def targets_at(self, theta: Array) -> Targets:
        """The targets under some parameters."""
        return self.targets(float(theta[-1])) if callable(self.targets) else self.targets

    def noise_at(self, theta: Array) -> float:
        """The relative noise variance under some parameters."""
        if self.noise is not None:
            return self.noise
        return self.priors.floor + math.exp(theta[self.X.shape[1]])

    def solved_at(self, theta: Array) -> Solved:
        """Mean, variance and weights under some parameters."""
        inverse = np.exp(-theta[: self.X.shape[1]])
        R = RadialCovariance(inverse, categories=self.cat_dims).matrix(self.X)
        return solved(R, self.noise_at(theta), self.targets_at(theta).w, self.priors.k)


class Maximum(NamedTuple):
    """The result of a search.

    Attributes:
        theta: The best parameters seen.
        value: Log evidence plus log priors there.
        evaluations: Number of evaluations of value and gradient.
        converged: Whether the ascent that reached it ended by its tolerance.
    """

    theta: Array
    value: float
    evaluations: int
    converged: bool


def maximised(
    function: Callable[[Array], tuple[float, Array]],
    bounds: Array,
    starts: Sequence[Array],
    most: int | None,
    **options: float,
) -> Maximum:
    """The best point of bounded L-BFGS ascents from several starts.

    Args:
        function: What is maximised, with its gradient.
        bounds: Lower and upper bounds, ``2 x p``.
        starts: Parameters, which are moved within the bounds.
        most: Maximum number of evaluations over all starts; None for no limit.
        options: ``maxiter``, ``factr`` and ``pgtol`` of `scipy.optimize.fmin_l_bfgs_b`.
    """
    seen, ends, limits = list[tuple[float, Array]](), list[tuple[float, bool]](), [*bounds.T]

    def negative(theta: Array) -> tuple[float, Array]:
        if len(seen) == most:
            raise StopIteration
        value, gradient = function(theta)
        seen.append((-math.inf if math.isnan(value) else value, theta.copy()))
        return -value, -gradient

    try:
        for start in starts:
            within = np.clip(start, *bounds)
            _, loss, about = fmin_l_bfgs_b(negative, within, bounds=limits, **options)
            ends.append((loss, about["warnflag"] == 0))
        converged = min(ends)[1]
    except StopIteration:
        converged = False
    value, best = max(seen, key=lambda pair: pair[0])
    return Maximum(best, value, len(seen), converged)
