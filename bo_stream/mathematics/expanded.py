"""Posterior processes in numpy, with gradients in closed form [MATHS 18.1].

The search of acquisition functions evaluates means and covariances at a few points some hundred
times. Then the bookkeeping of autograd and of kernels as modules costs many times the algebra.
Every posterior is, at points x and z,

    mean(x) = c + b(x)'alpha,    cov(x, z) = k(x, z) + a(x)' W a(z),    a = T'b

with finitely many functions b, a prior covariance k or none, and a symmetric matrix W. A gradient
in means and covariances goes back to the points through

    bar a_i = sum_j (bar C + bar C')_ij W a_j,    bar b_i = bar m_i alpha + T bar a_i,
    bar x_i = (db/dx)' bar b_i + sum_j (bar C + bar C')_ij dk(x_i, x_j)/dx_i,

so that p points with gradients cost some products p x r x r. With a prior, b are its covariances
with some points Z: k(Z, x). The matrix T whitens them where W in their place would lose digits.

Functions b of all inputs that are products of functions of one each are read off tables of these.

Arrays are float64; gradients are returned by closures, ``pull``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, solve_triangular
from scipy.linalg.lapack import dpotrs, dpstrf, dtrtri

from bo_stream.mathematics.exact import factored
from bo_stream.mathematics.radial import Array, Functions, Pull, RadialCovariance

__all__ = [
    "Covariance",
    "CubicTable",
    "ExpandedProcess",
    "Expansion",
    "Functions",
    "JointMoments",
    "LatentProcess",
    "NodeFunctions",
    "OfOneInput",
    "PlacedFunctions",
    "ProductCovariance",
    "ProductFunctions",
    "RadialCovariance",
    "SineTable",
    "Sums",
    "multiplied",
    "pivoted_root",
]

# -- functions of one input ----------------------------------------------------------------------


OfOneInput = Callable[[Array, bool], Sequence[Array]]
"""Functions of one input: values at ``p`` numbers, ``p x P``, and on request derivatives."""


@dataclass(frozen=True)
class CubicTable:
    """Functions that are cubic polynomials in each cell of an axis.

    Attributes:
        origin: First node.
        step: Width of a cell.
        first: The first cell that points may lie in.
        last: The last one.
        coefficients: Of ``s^3, s^2, s, 1`` for positions s in the cell, ``cells x 4 x P``.
    """

    origin: float
    step: float
    first: int
    last: int
    coefficients: Array

    def cells(self, x: Array) -> tuple[NDArray[np.intp], Array]:
        """The cells of ``p`` numbers, and their positions in these."""
        t = (x - self.origin) / self.step
        cell = np.clip(t, self.first, self.last).astype(np.intp)
        return cell, t - cell

    def __call__(self, x: Array, slopes: bool) -> Sequence[Array]:
        """As `OfOneInput`: O(4 P) a number."""
        cell, s = self.cells(x)
        powers = np.zeros((len(x), 1 + slopes, 4))
        powers[:, 0, 3], powers[:, 0, 2], powers[:, 0, 1] = 1.0, s, s * s
        powers[:, 0, 0] = powers[:, 0, 1] * s
        if slopes:
            powers[:, 1, 2], powers[:, 1, 1] = 1.0 / self.step, s * (2.0 / self.step)
            powers[:, 1, 0] = powers[:, 0, 1] * (3.0 / self.step)
        both = powers @ self.coefficients[cell]
        return [both[:, i] for i in range(1 + slopes)]

    def times(self, M: Array) -> CubicTable:
        """Linear combinations of the functions, for ``P x P'`` M."""
        return replace(self, coefficients=self.coefficients @ M)


@dataclass(frozen=True)
class SineTable:
    """The constant 1, and ``scale sin(j (rate x + phase))`` for j = 1 .. highest."""

    rate: float
    phase: float
    scale: float
    highest: int

    def __call__(self, x: Array, slopes: bool) -> Sequence[Array]:
        """As `OfOneInput`: powers of ``exp(i t)`` by doubling, in a third of the time of sines."""
        waves = np.empty((len(x), self.highest), complex)
        waves[:, 0] = np.exp(1j * (self.rate * x + self.phase))
        done = 1
        while done < self.highest:
            more = min(done, self.highest - done)
            waves[:, done : done + more] = waves[:, :more] * waves[:, done - 1 : done]
            done += more
        values = np.ones((len(x), self.highest + 1))
        np.multiply(waves.imag, self.scale, out=values[:, 1:])
        if not slopes:
            return [values]
        rising = np.zeros_like(values)
        speeds = (self.scale * self.rate) * np.arange(1, self.highest + 1)
        np.multiply(waves.real, speeds, out=rising[:, 1:])
        return values, rising


# -- functions of all inputs ---------------------------------------------------------------------


def multiplied(
    values: Sequence[Array], slopes: Sequence[Array], scale: float = 1.0
) -> tuple[Array, Pull]:
    """A product of arrays, each a function of one input; and the gradient in the inputs, ``... x
    d``, from that in the product.

    Args:
        values: The arrays, ``... x s`` each.
        slopes: Their derivatives.
        scale: One factor for all.
    """
    before = [np.full_like(values[0], scale)]
    for value in values:
        before.append(before[-1] * value)

    def pull(bar: Array) -> Array:
        result, after = list[Array](), bar
        for ahead, value, slope in zip(before[-2::-1], values[::-1], slopes[::-1], strict=True):
            result.append(np.einsum("...s,...s,...s->...", ahead, slope, after))
            after = after * value
        return np.stack(result[::-1], -1)

    return before[-1], pull


@dataclass(frozen=True)
class ProductFunctions(Functions):
    """``scale * prod_k T_k(x_k)[column_k]``.

    Attributes:
        tables: One for each input.
        columns: Of the tables, ``d x s``; None where they have one for each function.
        scale: One factor for all.
    """

    tables: Sequence[OfOneInput]
    columns: Array | None = None
    scale: float = 1.0

    def values(self, X: Array) -> Array:
        """As `Functions`: O(d s) a point."""
        return self.scale * reduce(np.multiply, [factor for (factor,) in self._factors(X, False)])

    def sloped(self, X: Array) -> tuple[Array, Pull]:
        """As `Functions`."""
        values, slopes = zip(*self._factors(X, True), strict=True)
        return multiplied(values, slopes, self.scale)

    def _factors(self, X: Array, slopes: bool) -> list[Sequence[Array]]:
        read = [table(x, slopes) for table, x in zip(self.tables, X.T, strict=True)]
        if self.columns is None:
            return read
        pairs = zip(read, self.columns, strict=True)
        return [[part.take(column, axis=1) for part in parts] for parts, column in pairs]


@dataclass(frozen=True)
class NodeFunctions(Functions):
    """Any functions interpolated from the nodes of a grid.

    Attributes:
        weights: For each input a table of the weights of four neighbouring nodes.
        starts: For each input the first of these by cell.
        node_values: Of the functions, ``m x s``, the last input's nodes fastest.
        sizes: Number of nodes of each input.
    """

    weights: Sequence[CubicTable]
    starts: Sequence[NDArray[np.intp]]
    node_values: Array
    sizes: Sequence[int]

    def values(self, X: Array) -> Array:
        """As `Functions`: O(4^d s) a point."""
        near, (weights,) = self._near(X), zip(*self._weights(X, False), strict=True)
        return (_outer(weights)[:, None] @ near)[:, 0]

    def sloped(self, X: Array) -> tuple[Array, Pull]:
        """As `Functions`."""
        near, (weights, slopes) = self._near(X), zip(*self._weights(X, True), strict=True)

        def pull(bar: Array) -> Array:
            each, columns = (near @ bar[:, :, None])[:, :, 0], []
            for k, slope in enumerate(slopes):
                along = _outer([*weights[:k], slope, *weights[k + 1 :]])
                columns.append(np.einsum("pn,pn->p", along, each))
            return np.stack(columns, 1)

        return (_outer(weights)[:, None] @ near)[:, 0], pull

    def _weights(self, X: Array, slopes: bool) -> list[Sequence[Array]]:
        return [table(x, slopes) for table, x in zip(self.weights, X.T, strict=True)]

    def _near(self, X: Array) -> Array:
        """Values at the nodes around each point, ``p x 4^d x s``."""
        number = np.zeros((len(X), 1), np.intp)
        parts = zip(self.weights, self.starts, X.T, self.sizes, strict=True)
        for table, start, x, size in parts:
            along = start[table.cells(x)[0]][:, None] + np.arange(4)
            number = (number[:, :, None] * size + along[:, None]).reshape(len(X), -1)
        return self.node_values[number]


def _outer(weights: Sequence[Array]) -> Array:
    """Products of weights ``p x 4`` for each input, ``p x 4^d``."""
    first, *others = weights
    for other in others:
        first = (first[:, :, None] * other[:, None]).reshape(len(first), -1)
    return first


@dataclass(frozen=True)
class PlacedFunctions(Functions):
    """Functions of linear functions of the inputs, ``slopes x + origin``.

    Attributes:
        functions: Of ``k`` places.
        slopes: ``k x d``.
        origin: ``k``.
    """

    functions: Functions
    slopes: Array
    origin: Array

    def lengths(self, lengthscales: Array) -> Array:
        """As `Functions`."""
        return 1.0 / np.abs(self.slopes / lengthscales[: len(self.slopes), None]).max(0)

    def values(self, X: Array) -> Array:
        """As `Functions`."""
        return self.functions.values(X @ self.slopes.T + self.origin)

    def sloped(self, X: Array) -> tuple[Array, Pull]:
        """As `Functions`."""
        values, pull = self.functions.sloped(X @ self.slopes.T + self.origin)
        return values, lambda bar: pull(bar) @ self.slopes


# -- prior covariances ---------------------------------------------------------------------------


@dataclass(frozen=True)
class ProductCovariance:
    """``variance * prod_k t_k(x_k)'t_k(z_k)``.

    Attributes:
        roots: A table of ``t_k`` for each input.
        variance: One factor for all.
    """

    roots: Sequence[CubicTable]
    variance: float

    def diagonal(self, X: Array) -> Array:
        """As `RadialCovariance`."""
        squares = [np.einsum("pr,pr->p", t, t) for t in self._at(X)]
        return self.variance * reduce(np.multiply, squares)

    def functions(self, Z: Array) -> Functions:
        """As `RadialCovariance`."""
        at = zip(self.roots, self._at(Z), strict=True)
        return ProductFunctions([root.times(t.T) for root, t in at], None, self.variance)

    def between(self, X: Array) -> tuple[Array, Pull]:
        """As `RadialCovariance`."""
        factors, slopes = [], []
        for k, root in enumerate(self.roots):
            t, s = (part.reshape(*X.shape[:2], -1) for part in root(X[..., k].ravel(), True))
            factors.append(t @ t.transpose(0, 2, 1))
            slopes.append(s @ t.transpose(0, 2, 1))
        return multiplied(factors, slopes, self.variance)

    def _at(self, X: Array) -> list[Array]:
        return [root(x, False)[0] for root, x in zip(self.roots, X.T, strict=True)]


Covariance = RadialCovariance | ProductCovariance
"""A prior covariance ``k(x, z)``."""


def pivoted_root(K: Array) -> Array:
    """A root F of a covariance ``g x g``, ``F F' = K`` up to rounding, ``g x r``: O(g r^2)."""
    factor, pivots, rank, _ = dpstrf(K, tol=ROUNDING * K.diagonal().max(), lower=1)
    root = np.empty((len(K), rank))
    root[pivots - 1] = np.tril(factor)[:, :rank]
    return root


ROUNDING = 1e-15
"""Share of the largest variance below which others are rounding errors."""


# -- processes -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expansion:
    """A process in the units of the model; see the module.

    Attributes:
        functions: ``b``.
        alpha: ``s``.
        W: ``r x r``, or a multiple of the identity.
        constant: ``c``.
        prior: ``k``, or None.
        Z: The points whose prior covariances are ``b``, ``s x d``; None without a prior.
        T: ``s x r``; None for the identity.
    """

    functions: Functions
    alpha: Array
    W: Array | float
    constant: float
    prior: Covariance | None = None
    Z: Array | None = None
    T: Array | None = None

    @classmethod
    def on(
        cls, prior: Covariance, Z: Array, alpha: Array, constant: float, T: Array, W: Array | float
    ) -> Expansion:
        """A process with a prior."""
        return cls(prior.functions(Z), alpha, W, constant, prior, Z, T)

    @classmethod
    def given(cls, prior: RadialCovariance, X: Array, y: Array, noise: Array | float) -> Expansion:
        """A process of mean zero given outcomes: O(n^3).

        Args:
            prior: Its covariance.
            X: ``n x d``, n >= 1.
            y: ``n``.
            noise: Noise variances, ``n`` or one for all.
        """
        L = factored(prior.matrix(X), noise)
        # products with the inverse take half the time of solves
        return cls.on(prior, X, dpotrs(L, y, lower=1)[0], 0.0, dtrtri(L, lower=1)[0].T, -1.0)

    def folded(self) -> Expansion:
        """The same with W in the place of T: one product in place of two or three, O(s r^2)."""
        if self.T is None:
            return self
        return replace(self, W=_applied(self.T, self.W) @ self.T.T, T=None)

    def rows(self, B: Array) -> Array:
        """``a`` from values of b, ``p x r``."""
        return B if self.T is None else B @ self.T

    def conditioned(self, X: Array, L: Array, r: Array) -> Expansion:
        """The process given q outcomes: O(q s r), or O(q r^2) without a prior.

        Args:
            X: Their points, ``q x d``.
            L: Cholesky factor of their covariance with noise, ``q x q``.
            r: ``L^-1 (y - mean)``, ``q``.
        """
        spread = _applied(self.rows(self.functions.values(X)), self.W)
        G = solve_triangular(L, spread, lower=True).T
        if self.prior is None or self.Z is None:
            return replace(self, alpha=self.alpha + G @ r, W=_dense(self.W, len(G)) - G @ G.T)
        new = solve_triangular(L, np.eye(len(L)), lower=True).T
        columns = np.vstack([G if self.T is None else self.T @ G, new])
        T, W = None, self.W
        if self.T is None:
            W = np.pad(_dense(W, len(G)), (0, len(L))) - columns @ columns.T
        else:
            T = np.hstack([np.pad(self.T, ((0, len(L)), (0, 0))), columns])
            W = W if isinstance(W, float) else block_diag(W, -np.eye(len(L)))
        Z, alpha = np.vstack([self.Z, X]), np.append(self.alpha, np.zeros(len(L)))
        functions = self.prior.functions(Z)
        return replace(self, functions=functions, alpha=alpha + columns @ r, W=W, Z=Z, T=T)


def _applied(rows: Array, W: Array | float) -> Array:
    """``rows W``."""
    return rows * W if isinstance(W, float) else rows @ W


def _dense(W: Array | float, size: int) -> Array:
    return W * np.eye(size) if isinstance(W, float) else W


Onto = Callable[[Array], tuple[Array, Array | float]]
"""From gradients in sums, symmetric, to gradients in ``a`` and, directly, in the points."""


@dataclass(frozen=True)
class FeatureSums:
    """Sums of a process without a prior.

    Attributes:
        N: ``W (sum_t w_t a_t a_t') W``, with which sums are ``a_x'N a_z``.
    """

    N: Array

    def between(self, X: Array, A: Array, R: int) -> tuple[Array, Onto]:
        """Those within each of R batches of points, ``R x q x q``: O(r^2) a point.

        Args:
            X: All points, ``p x d``.
            A: ``a`` there, ``p x r``.
            R: Number of batches.
        """
        rows = A @ self.N
        return _grouped(A, rows, R), lambda M: (_spread(M, rows), 0.0)


@dataclass(frozen=True)
class PointSums:
    """Sums of a process with a prior.

    Attributes:
        weights: ``P``.
        functions: The prior covariances with the points.
        coefficients: ``W a_t``, ``r x P``.
    """

    weights: Array
    functions: Functions
    coefficients: Array

    def between(self, X: Array, A: Array, R: int) -> tuple[Array, Onto]:
        """As `FeatureSums`: O(P (d + r)) a point."""
        K, back = self.functions.sloped(X)
        C = K + A @ self.coefficients
        weighted = C * self.weights

        def onto(M: Array) -> tuple[Array, Array | float]:
            bar = _spread(M, weighted)
            return bar @ self.coefficients.T, back(bar)

        return _grouped(C, weighted, R), onto


Sums = FeatureSums | PointSums
"""Sums over points t of weighted products of covariances, ``sum_t w_t cov(x, t) cov(t, z)``."""


@dataclass(frozen=True)
class JointMoments:
    """Moments of each of R batches of q points.

    Attributes:
        mean: ``R x q``.
        covariance: ``R x q x q``.
        sums: Those of `Sums`, ``R x q x q``; None if there were none.
        pull: From gradients in the mean, in each entry of the covariance, and in those of the
            sums: the gradient in the points, ``R x q x d``.
    """

    mean: Array
    covariance: Array
    sums: Array | None
    pull: Callable[..., Array]


@dataclass(frozen=True)
class ExpandedProcess:
    """A posterior of one outcome at raw points, in raw units.

    Attributes:
        process: The process in the units of the model.
        unit: Lengths over which it varies, ``d``, at most the widths of the box.
        low: The raw point that is the model's origin, ``d``.
        width: The model's units of the inputs, ``d``.
        shift: The raw outcome that is the model's zero.
        scale: The model's unit of the outcome.
    """

    process: Expansion
    unit: Array
    low: Array
    width: Array
    shift: float = 0.0
    scale: float = 1.0

    @cached_property
    def _single(self) -> Array:
        """W in single precision."""
        return np.asarray(self.process.W, np.float32)

    def _transformed(self, X: Array) -> Array:
        return (X - self.low) / self.width

    def _means(self, B: Array) -> Array:
        mean: Array = self.scale * (B @ self.process.alpha)
        mean += self.shift + self.scale * self.process.constant
        return mean

    def marginals(self, X: Array) -> tuple[Array, Array]:
        """Means and variances at points ``p x d``, ``p`` each: O(r^2) a point.

        Variances on features have single precision: they are sums of squares.
        """
        own, Z = self.process, self._transformed(X)
        B = own.functions.values(Z)
        A = own.rows(B)
        if own.prior is None:
            single = A.astype(np.float32)
            variance = np.einsum("pr,pr->p", single @ self._single, single).astype(np.float64)
        else:
            weighted = A if isinstance(own.W, float) else A @ own.W
            variance = np.einsum("pr,pr->p", weighted, A)
            variance *= own.W if isinstance(own.W, float) else 1.0
            variance += own.prior.diagonal(Z)
        return self._means(B), self.scale**2 * np.maximum(variance, 0.0)

    def joint(self, X: Array) -> tuple[Array, Array]:
        """Means and covariance at points ``p x d``: ``p`` and ``p x p``."""
        own, Z = self.process, self._transformed(X)
        B = own.functions.values(Z)
        A = own.rows(B)
        C = _applied(A, own.W) @ A.T
        if own.prior is not None:
            C += own.prior.between(Z[None])[0][0]
        return self._means(B), self.scale**2 * C

    def sums_over(self, points: Array, weights: Array) -> Sums:
        """Sums over points ``P x d`` with weights ``P``, for `moments`."""
        own, Z = self.process, self._transformed(points)
        A = own.rows(own.functions.values(Z))
        if own.prior is None:
            gram = _applied((A * weights[:, None]).T @ A, own.W)
            return FeatureSums(_applied(gram.T, own.W))
        coefficients = np.ascontiguousarray(_applied(A, own.W).T)
        return PointSums(weights, own.prior.functions(Z), coefficients)

    def moments(self, X: Array, sums: Sums | None = None) -> JointMoments:
        """Moments of batches of points ``R x q x d``, from which gradients go back to the points.

        O(r^2) a point; with sums and a prior, O(P (d + r)) too.

        Args:
            X: The points.
            sums: Sums over points to return as well, as from `sums_over`.
        """
        own, (R, q, d), variance = self.process, X.shape, self.scale**2
        U = self._transformed(X)
        flat = U.reshape(R * q, d)
        B, back = own.functions.sloped(flat)
        A = own.rows(B)
        G = _applied(A, own.W)
        C, within = _grouped(A, G, R), None
        if own.prior is not None:
            K, within = own.prior.between(U)
            C = C + K
        total, onto = (None, None) if sums is None else sums.between(flat, A, R)

        def pull(bar_mean: Array, bar_cov: Array, bar_sums: Array | None = None) -> Array:
            M = variance * (bar_cov + bar_cov.transpose(0, 2, 1))
            bar, bar_points = _spread(M, G), np.zeros_like(flat)
            if within is not None:
                bar_points += within(M).reshape(flat.shape)
            if onto is not None and bar_sums is not None:
                more, direct = onto(variance**2 * (bar_sums + bar_sums.transpose(0, 2, 1)))
                bar, bar_points = bar + more, bar_points + direct
            if own.T is not None:
                bar = bar @ own.T.T
            bar += (self.scale * bar_mean).reshape(-1, 1) * own.alpha
            result: Array = (back(bar) + bar_points).reshape(X.shape) / self.width
            return result

        total = None if total is None else variance**2 * total
        return JointMoments(self._means(B).reshape(R, q), variance * C, total, pull)


@dataclass(frozen=True)
class LatentProcess:
    """A posterior at points of the model's inputs, and what proposals improve on.

    Attributes:
        process: The posterior, by its covariances with the observed points.
        values: At these, ``n``: the targets without noise, else the posterior mean.
    """

    process: ExpandedProcess
    values: Array

    @property
    def X(self) -> Array:
        """Observed points, ``n x d``."""
        return cast(Array, self.process.process.Z)

    @property
    def best(self) -> float:
        """The largest of the values."""
        return float(self.values.max())

    def believing(self, x: Array, noise: float = 1e-8) -> LatentProcess:
        """The posterior if points ``q x d`` were observed at their posterior means.

        The mean stays the same everywhere, the variance falls: O(n^2 q).

        Args:
            x: The points.
            noise: Their noise variance, in squared units of the process.
        """
        if not len(x):
            return self
        means, C = self.process.joint(x)
        L = factored(C / self.process.scale**2, noise)
        given = self.process.process.conditioned(x, L, np.zeros(len(x)))
        process = replace(self.process, process=given)
        return LatentProcess(process, np.concatenate([self.values, means]))


def _grouped(A: Array, B: Array, R: int) -> Array:
    """``A B'`` within each of R batches of rows, ``R x q x q``."""
    A, B = (rows.reshape(R, len(rows) // R, -1) for rows in (A, B))
    if A.shape[1] == 1:
        return np.einsum("rqf,rqf->rq", A, B)[..., None]
    product: Array = A @ B.transpose(0, 2, 1)
    return product


def _spread(M: Array, rows: Array) -> Array:
    """``M B`` within each batch, for ``R x q x q`` M: rows like B."""
    R, q, _ = M.shape
    if q == 1:
        return M.reshape(-1, 1) * rows
    return (M @ rows.reshape(R, q, -1)).reshape(rows.shape)
