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
from functools import cached_property, partial, reduce
from itertools import accumulate
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, solve_triangular
from scipy.linalg.lapack import dpotrs, dtrtri

from bo_stream.mathematics.exact import factored
from bo_stream.mathematics.linalg import pivoted_root
from bo_stream.mathematics.radial import Array, Functions, Pull, RadialCovariance

__all__ = [
    "Covariance",
    "CubicTable",
    "ExpandedProcess",
    "Expansion",
    "Functions",
    "JointMoments",
    "LatentProcess",
    "OfOneInput",
    "PlacedFunctions",
    "ProductCovariance",
    "ProductFunctions",
    "RadialCovariance",
    "SineTable",
    "Slopes",
    "Sums",
    "applied",
    "mapped",
    "multiplied",
]

# -- functions of one input ----------------------------------------------------------------------


Slopes = Callable[[], Array]
"""Derivatives, computed on request."""

OfOneInput = Callable[[Array], tuple[Array, Slopes]]
"""Functions of one input: values at ``p`` numbers, ``p x P``, and derivatives there."""

DEGREES = np.array([3.0, 2.0, 1.0])


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

    def __call__(self, x: Array) -> tuple[Array, Slopes]:
        """As `OfOneInput`: O(4 P) a number."""
        t = (x - self.origin) / self.step
        cell = np.clip(t, self.first, self.last).astype(np.intp)
        s, powers = t - cell, np.empty((len(t), 1, 4))
        powers[:, 0, 3], powers[:, 0, 2], powers[:, 0, 1] = 1.0, s, s * s
        powers[:, 0, 0] = powers[:, 0, 1] * s

        def slopes() -> Array:
            rates = powers[..., 1:] * (DEGREES / self.step)
            return (rates @ self.coefficients[cell][:, :3])[:, 0]

        return (powers @ self.coefficients[cell])[:, 0], slopes


@dataclass(frozen=True)
class SineTable:
    """The constant 1, and ``scale sin(j (rate x + phase))`` for j = 1 .. highest."""

    rate: float
    phase: float
    scale: float
    highest: int

    def __call__(self, x: Array) -> tuple[Array, Slopes]:
        """As `OfOneInput`: powers of ``exp(i t)``, which take a third of the time of sines."""
        first = np.exp(1j * (self.rate * x + self.phase))
        waves = np.cumprod(np.broadcast_to(first[:, None], (len(x), self.highest)), 1)
        values = np.ones((len(x), self.highest + 1))
        np.multiply(waves.imag, self.scale, out=values[:, 1:])

        def slopes() -> Array:
            rising, speeds = np.zeros_like(values), np.arange(1, self.highest + 1)
            np.multiply(waves.real, self.scale * self.rate * speeds, out=rising[:, 1:])
            return rising

        return values, slopes


def mapped(read: tuple[Array, Slopes], linear: Callable[[Array], Array]) -> tuple[Array, Slopes]:
    """A linear function of values, and of their derivatives."""
    values, slopes = read
    return linear(values), lambda: linear(slopes())


@dataclass(frozen=True)
class Combinations:
    """Linear combinations of functions of one input.

    Attributes:
        table: ``P`` functions.
        M: ``P x P'``.
    """

    table: OfOneInput
    M: Array

    def __call__(self, x: Array) -> tuple[Array, Slopes]:
        """As `OfOneInput`: O(P P') a number."""
        return mapped(self.table(x), lambda values: values @ self.M)


# -- functions of all inputs ---------------------------------------------------------------------


def multiplied(factors: Sequence[tuple[Array, Slopes]], scale: float = 1.0) -> tuple[Array, Pull]:
    """A product of arrays, each a function of one input; and the gradient in the inputs, ``... x
    d``, from that in the product.

    Args:
        factors: The arrays, ``... x s`` each, and their derivatives.
        scale: One factor for all.
    """
    values = [value for value, _ in factors]

    def pull(bar: Array) -> Array:
        before = [*accumulate(values[:-1], np.multiply, initial=np.full_like(bar, scale))]
        result, after = list[Array](), bar
        for ahead, (value, slopes) in zip(before[::-1], factors[::-1], strict=True):
            result.append(np.einsum("...s,...s,...s->...", ahead, slopes(), after))
            after = after * value
        return np.stack(result[::-1], -1)

    return scale * reduce(np.multiply, values), pull


@dataclass(frozen=True)
class ProductFunctions(Functions):
    """``scale * prod_k T_k(x_k)[column_k]``.

    Attributes:
        tables: One for each input.
        columns: Of the tables, ``d x s``; None where they have one for each function.
        scale: One factor for all.
    """

    tables: Sequence[OfOneInput]
    columns: NDArray[np.intp] | None = None
    scale: float = 1.0

    def __call__(self, X: Array) -> tuple[Array, Pull]:
        """As `Functions`: O(d s) a point."""
        read = [table(x) for table, x in zip(self.tables, X.T, strict=True)]
        if self.columns is not None:
            pairs = zip(read, self.columns, strict=True)
            read = [mapped(part, partial(np.take, indices=at, axis=1)) for part, at in pairs]
        return multiplied(read, self.scale)


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

    def __call__(self, X: Array) -> tuple[Array, Pull]:
        """As `Functions`."""
        values, pull = self.functions(X @ self.slopes.T + self.origin)
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

    def functions(self, Z: Array) -> Functions:
        """As `RadialCovariance`."""
        at = zip(self.roots, Z.T, strict=True)
        tables = [Combinations(root, root(z)[0].T) for root, z in at]
        return ProductFunctions(tables, None, self.variance)

    def between(self, X: Array) -> tuple[Array, Pull]:
        """As `RadialCovariance`."""

        def factor(root: CubicTable, x: Array) -> tuple[Array, Slopes]:
            t, slopes = mapped(root(x), lambda values: values.reshape(*X.shape[:2], -1))
            T = t.transpose(0, 2, 1)
            return mapped((t, slopes), lambda rows: rows @ T)

        each = zip(self.roots, X.reshape(-1, X.shape[2]).T, strict=True)
        return multiplied([factor(root, x) for root, x in each], self.variance)


Covariance = RadialCovariance | ProductCovariance
"""A prior covariance ``k(x, z)``."""


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
        cls,
        prior: Covariance,
        Z: Array,
        alpha: Array,
        constant: float,
        T: Array | None,
        W: Array | float,
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
        spread = applied(self.rows(self.functions(X)[0]), self.W)
        columns, T, W = solve_triangular(L, spread, lower=True).T, self.T, self.W
        if T is not None:
            columns = T @ columns
        if self.prior is not None:
            columns = np.vstack([columns, solve_triangular(L, np.eye(len(L)), lower=True).T])
        more = len(columns) - len(self.alpha)
        alpha = np.append(self.alpha, np.zeros(more)) + columns @ r
        if T is None:
            W = np.pad(W, (0, more)) - columns @ columns.T
        else:
            T = np.hstack([np.pad(T, ((0, more), (0, 0))), columns])
            W = W if isinstance(W, float) else block_diag(W, -np.eye(len(L)))
        if self.prior is None or self.Z is None:
            return replace(self, alpha=alpha, W=W)
        return Expansion.on(self.prior, np.vstack([self.Z, X]), alpha, self.constant, T, W)


def applied(rows: Array, W: Array | float) -> Array:
    """``rows W``."""
    return rows * W if isinstance(W, float) else rows @ W


Onto = Callable[[Array], tuple[Array, Array | float]]
"""From gradients in sums, symmetric, to gradients in ``a`` and, directly, in the points."""


@dataclass(frozen=True)
class Sums:
    """Sums over points t of weighted products of covariances, ``sum_t w_t cov(x, t) cov(t, z)``.

    Attributes:
        weights: ``P``.
        coefficients: ``W a_t``, ``r x P``.
        functions: The prior covariances with the points, or None.
    """

    weights: Array
    coefficients: Array
    functions: Functions | None

    def between(self, X: Array, A: Array, R: int) -> tuple[Array, Onto]:
        """Those within each of R batches of points, ``R x q x q``: O(P (d + r)) a point.

        Args:
            X: All points, ``p x d``.
            A: ``a`` there, ``p x r``.
            R: Number of batches.
        """
        C, back = A @ self.coefficients, None
        if self.functions is not None:
            K, back = self.functions(X)
            C += K
        weighted = C * self.weights

        def onto(M: Array) -> tuple[Array, Array | float]:
            bar = _spread(M, weighted)
            return bar @ self.coefficients.T, 0.0 if back is None else back(bar)

        return _grouped(C, weighted, R), onto


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
        mean: Array = self.process.constant + B @ self.process.alpha
        return self.shift + self.scale * mean

    def marginals(self, X: Array) -> tuple[Array, Array]:
        """Means and variances at points ``p x d``, ``p`` each: O(r^2) a point.

        Variances on features have single precision: they are sums of squares.
        """
        own, Z = self.process, self._transformed(X)
        B, _ = own.functions(Z)
        A = own.rows(B)
        if own.prior is None:
            single = A.astype(np.float32)
            variance = np.einsum("pr,pr->p", single @ self._single, single).astype(np.float64)
        else:
            variance = np.einsum("pr,pr->p", applied(A, own.W), A)
            variance += own.prior.between(Z[:, None])[0].ravel()
        return self._means(B), self.scale**2 * np.maximum(variance, 0.0)

    def sums_over(self, points: Array, weights: Array) -> Sums:
        """Sums over points ``P x d`` with weights ``P``, for `moments`."""
        own, Z = self.process, self._transformed(points)
        G = applied(own.rows(own.functions(Z)[0]), own.W)
        if own.prior is not None:
            return Sums(weights, np.ascontiguousarray(G.T), own.prior.functions(Z))
        root = pivoted_root((G.T * weights) @ G)
        return Sums(np.ones(root.shape[1]), root, None)

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
        B, back = own.functions(flat)
        A = own.rows(B)
        G = applied(A, own.W)
        C, within = _grouped(A, G, R), None
        if own.prior is not None:
            K, within = own.prior.between(U)
            C = C + K
        total, onto = (None, None) if sums is None else sums.between(flat, A, R)

        def pull(bar_mean: Array, bar_cov: Array, bar_sums: Array | None = None) -> Array:
            M = variance * (bar_cov + bar_cov.transpose(0, 2, 1))
            bar = _spread(M, G)
            direct: Array | float = 0.0 if within is None else within(M).reshape(flat.shape)
            if onto is not None and bar_sums is not None:
                more, also = onto(variance**2 * (bar_sums + bar_sums.transpose(0, 2, 1)))
                bar, direct = bar + more, direct + also
            if own.T is not None:
                bar = bar @ own.T.T
            bar += (self.scale * bar_mean).reshape(-1, 1) * own.alpha
            result: Array = (back(bar) + direct).reshape(X.shape) / self.width
            return result

        total = None if total is None else variance**2 * total
        return JointMoments(self._means(B).reshape(R, q), variance * C, total, pull)


@dataclass(frozen=True)
class LatentProcess:
    """A posterior, and what proposals improve on.

    Attributes:
        process: The posterior, by its covariances with the observed points.
        values: At these, ``n``: the targets without noise, else the posterior mean.
    """

    process: ExpandedProcess
    values: Array

    @property
    def X(self) -> Array:
        """Observed points, ``n x d``, in the units of the model."""
        return cast(Array, self.process.process.Z)

    def believing(self, x: Array, noise: float = 1e-8) -> LatentProcess:
        """The posterior if points ``q x d`` were observed at their posterior means.

        The mean stays the same everywhere, the variance falls: O(n^2 q).

        Args:
            x: The points.
            noise: Their noise variance, in squared units of the process.
        """
        if not len(x):
            return self
        found = self.process.moments(x[None])
        L = factored(found.covariance[0] / self.process.scale**2, noise)
        given = self.process.process.conditioned(self.process._transformed(x), L, 0.0 * x[:, 0])
        process = replace(self.process, process=given)
        return LatentProcess(process, np.append(self.values, found.mean))


def _grouped(A: Array, B: Array, R: int) -> Array:
    """``A B'`` within each of R batches of rows, ``R x q x q``."""
    A, B = (rows.reshape(R, len(rows) // R, rows.shape[1]) for rows in (A, B))
    return A @ B.transpose(0, 2, 1)


def _spread(M: Array, rows: Array) -> Array:
    """``M B`` within each batch, for ``R x q x q`` M: rows like B."""
    R, q, _ = M.shape
    if q == 1:
        return M.reshape(-1, 1) * rows
    return (M @ rows.reshape(R, q, -1)).reshape(rows.shape)
