"""The posterior of an exact Matern-5/2 Gaussian process at small n, in numpy (MATHS 13.1).

Values and slopes at a few hundred points cost as little as the algebra: no autograd, no modules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

from bo_stream.mathematics.linalg import jitters

__all__ = ["Array", "LatentProcess", "factor", "matern"]

Array = NDArray[np.float64]

LEAST = 1e-12
"""Smallest posterior variance, relative to the prior's."""
MOST = 1e-4
"""Largest jitter of correlations."""


def matern(r2: Array) -> tuple[Array, Array]:
    """The Matern-5/2 correlation and its slope, as functions of the squared scaled distance."""
    t = 5.0 * r2
    third = t * (1.0 / 3.0)
    np.sqrt(t, out=t)
    k = t + 1.0
    np.exp(np.negative(t, out=t), out=t)
    slope = k * (-5.0 / 6.0)
    slope *= t
    k += third
    k *= t
    return k, slope


def factor(C: Array) -> Array:
    """Lower Cholesky factor, with as little added to the diagonal as it takes.

    Raises:
        torch.linalg.LinAlgError: if it is not positive definite with any jitter.
    """
    for added in (0.0, *jitters(MOST)):
        A = C.copy()
        A.flat[:: len(A) + 1] += added
        L, failed = dpotrf(A, lower=1, clean=1)
        if not failed:
            return np.asarray(L)
    raise torch.linalg.LinAlgError("The correlations are not positive definite.")  # type: ignore[attr-defined]


@dataclass(frozen=True)
class LatentProcess:
    """The posterior at points ``p x d`` of the model's inputs.

    Attributes:
        X: Observed points, ``n x d``.
        inverse_lengthscales: ``d``.
        mean: Constant prior mean.
        variance: Prior variance.
        weights: ``C^-1 (w - mean)``, ``n``, with ``C`` the correlations plus relative noise.
        lower: Cholesky factor ``L`` of ``C``, ``n x n``.
        inverse_factor: ``L^-1``.
        fitted: Posterior mean at the observed points, ``n``.
        best: The largest value: of the targets without noise, else of ``fitted``.
        incumbent: Row of the best point in ``X``.
        cat_dims: Indices of categories, along which there are no slopes.
    """

    X: Array
    inverse_lengthscales: Array
    mean: float
    variance: float
    weights: Array
    lower: Array
    inverse_factor: Array
    fitted: Array
    best: float
    incumbent: int
    cat_dims: tuple[int, ...] = ()

    @classmethod
    def given(
        cls,
        X: Array,
        w: Array,
        noise: Array | float,
        lengthscales: Array,
        mean: float,
        variance: float,
        *,
        exact: bool,
        cat_dims: tuple[int, ...] = (),
    ) -> LatentProcess:
        """The posterior given targets ``w``: O(n^3).

        Args:
            X: ``n x d``, n >= 1.
            w: ``n``.
            noise: Noise variances relative to ``variance``, ``n`` or one for all.
            lengthscales: ``d``.
            mean: Prior mean.
            variance: Prior variance.
            exact: Whether the best target counts as the best value.
            cat_dims: Indices of categories.
        """
        K, _ = matern(_distances(X, _Scaled.of(X, 1.0 / lengthscales, cat_dims)))
        C = K.copy()
        C.flat[:: len(X) + 1] += noise
        L = factor(C)
        inverse = np.tril(dtrtri(L, lower=1)[0])
        weights = inverse.T @ (inverse @ (w - mean))
        fitted = mean + K @ weights
        values = w if exact else fitted
        at = int(np.argmax(values))
        best = float(values[at])
        about = weights, L, inverse, fitted, best, at, cat_dims
        return cls(X, 1.0 / lengthscales, mean, variance, *about)

    def at(self, x: Array) -> tuple[Array, Array]:
        """Means and standard deviations at ``p x d``: O(p n^2)."""
        k, _ = self._correlations(x)
        v = k @ self.inverse_factor.T
        return self.mean + k @ self.weights, self._deviation(v)

    def joint(self, x: Array) -> tuple[Array, Array]:
        """Means ``p`` and covariances ``p x p``: O(p n^2)."""
        k, _ = self._correlations(x)
        v, (corner, _) = k @ self.inverse_factor.T, matern(self._distances(x))
        return self.mean + k @ self.weights, self.variance * (corner - v @ v.T)

    def slopes(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """Means, standard deviations (``p``), and their slopes (``p x d``): O(p n^2)."""
        k, dk = self._correlations(x)
        v = k @ self.inverse_factor.T
        sd = self._deviation(v)
        il2 = 2.0 * self._scaled.il**2
        by_mean = dk * self.weights
        slope = il2 * (x * by_mean.sum(1)[:, None] - by_mean @ self.X)
        by_variance = dk * (v @ self.inverse_factor)
        falling = il2 * (x * by_variance.sum(1)[:, None] - by_variance @ self.X)
        return self.mean + k @ self.weights, sd, slope, falling * (-self.variance / sd)[:, None]

    def believing(self, x: Array, noise: float = 1e-8) -> LatentProcess:
        """The posterior if points ``q x d`` were observed at their posterior means.

        The mean stays the same everywhere, the variance falls: O(n^2 q).

        Args:
            x: The points.
            noise: Their noise variance, relative to the prior's.
        """
        if not len(x):
            return self
        k, _ = self._correlations(x)
        n, q = len(self.X), len(x)
        values = self.mean + k @ self.weights
        below = k @ self.inverse_factor.T
        corner, _ = matern(self._distances(x))
        corner = corner - below @ below.T
        corner.flat[:: q + 1] += noise
        L, inverse = np.zeros((n + q, n + q)), np.zeros((n + q, n + q))
        L[:n, :n], L[n:, :n], L[n:, n:] = self.lower, below, factor(corner)
        corner = np.tril(dtrtri(L[n:, n:], lower=1)[0])
        inverse[:n, :n], inverse[n:, n:] = self.inverse_factor, corner
        inverse[n:, :n] = -corner @ (below @ self.inverse_factor)
        at = n + int(np.argmax(values)) if values.max() > self.best else self.incumbent
        return replace(
            self,
            X=np.vstack([self.X, x]),
            weights=np.concatenate([self.weights, np.zeros(q)]),
            lower=L,
            inverse_factor=inverse,
            fitted=np.concatenate([self.fitted, values]),
            best=max(self.best, float(values.max())),
            incumbent=at,
        )

    def distance(self, x: Array) -> float:
        """Scaled distance of a point ``d`` to the nearest point observed; infinite for none."""
        gaps = self.X - x
        for j in self.cat_dims:
            gaps[:, j] = gaps[:, j] != 0.0
        gaps *= self.inverse_lengthscales
        return float(np.sqrt((gaps * gaps).sum(1).min(initial=np.inf)))

    @cached_property
    def _scaled(self) -> _Scaled:
        return _Scaled.of(self.X, self.inverse_lengthscales, self.cat_dims)

    def _correlations(self, x: Array) -> tuple[Array, Array]:
        return matern(_distances(x, self._scaled))

    def _distances(self, x: Array) -> Array:
        return _distances(x, _Scaled.of(x, self.inverse_lengthscales, self.cat_dims))

    def _deviation(self, v: Array) -> Array:
        left = np.maximum(1.0 - np.einsum("ij,ij->i", v, v), LEAST)
        result: Array = np.sqrt(self.variance * left)
        return result


@dataclass(frozen=True)
class _Scaled:
    """Points that others are compared with.

    Attributes:
        il: Inverse lengthscales of the inputs that are ordered, zero of categories, ``d``.
        points: Scaled points times -2, ``d x n``.
        squares: Their squared lengths, ``n``.
        categories: Squared inverse lengthscale and values ``n`` of every category, by index.
    """

    il: Array
    points: Array
    squares: Array
    categories: dict[int, tuple[float, Array]]

    @classmethod
    def of(cls, X: Array, il: Array, cat_dims: tuple[int, ...]) -> _Scaled:
        ordered = il.copy()
        ordered[list(cat_dims)] = 0.0
        z = X * ordered
        about = {j: (il[j] ** 2, X[:, j]) for j in cat_dims}
        return cls(ordered, -2.0 * z.T, np.einsum("ij,ij->i", z, z), about)


def _distances(x: Array, z: _Scaled) -> Array:
    """Squared scaled distances ``p x n``; of categories, whether they differ."""
    a = x * z.il
    r2: Array = a @ z.points
    r2 += z.squares
    r2 += np.einsum("ij,ij->i", a, a)[:, None]
    np.maximum(r2, 0.0, out=r2)
    for j, (weight, values) in z.categories.items():
        r2 += weight * (x[:, j, None] != values)
    return r2
