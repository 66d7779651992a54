"""Gaussian processes given the projected data S'y: the mathematics of computation-aware GPs.

[CaGP] Wenger, Wu, Hennig, Gardner, Pleiss, Cunningham 2024; MATHS 5. Pure functions of tensors; the
letters are the paper's:

    S (n x i)  actions            D = diag(noise)            e = y - c (n)         B = K S (n x i)
    G = S'(K + D) S,  L = chol(G),  w = L^-1 S'e,  v = L^-T w = G^-1 S'e,  delta = S'D S

    mean(x) = c + k(x, X) S v,   cov(x, z) = k(x, z) - V_x'V_z,   V_x = L^-1 S'k(X, x)
    [eq. 5]

The covariance is never below the exact GP's on the same data, for any S, and the ELBO never above
its log evidence.

The posterior is conditioned on actions, the linear functionals S'y [eq. 14; MATHS 5.1, 5.3].
`BlockMatrix` has one value a row (its column given by an index), so S costs O(n); `DenseMatrix` has
all n i numbers. Columns are kept at length one, S'S = I; the posterior depends on the span of S
alone. Products with kernel matrices take O(n i) memory: rows of the kernel matrix are computed in
turn, and again in the backward.

Actions are compressed without the data: pairs that lose least are merged [MATHS 5.4]. For any
full-rank T (i x i'), S T spans less than S and L_new = chol(T'L L'T): the posterior given (S T)'y
needs no kernel value, stays above the exact posterior, and its variance can only grow. Here T
merges disjoint pairs (a, b) of columns into cos(phi) s_a + sin(phi) s_b, so a block-sparse S stays
block sparse. A merge loses the functional g'S'y, G g = n = -sin(phi) a + cos(phi) b, that was
uncorrelated (a priori) with all that remains. With alpha = G^-1 S'e,

    lambda = (n'alpha)^2 / n'G^-1 n     the loss of |w|^2
    rho = n'delta^-1 n / n'G^-1 n       variance of the lost functional over that of its noise
    KL = 1/2 [log rho - (1 - 1/rho) (1 - lambda)]

KL is the divergence of the posterior before the merge from the one after it. |w|^2 alone cannot
rank the pairs: phi along (alpha_a, alpha_b) preserves it for each of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from bo_stream.errors import StateError
from bo_stream.mathematics.autograd import refused
from bo_stream.mathematics.kernels import Scaled, stationary
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.process import KernelBasis, Path
from bo_stream.mathematics.shapes import Rows, nested, shaped

__all__ = [
    "ActionBasis",
    "ActionMatrix",
    "BlockMatrix",
    "CaGPState",
    "DenseMatrix",
    "Projected",
    "compress",
    "cross_product",
    "kernel_values",
    "locality_blocks",
    "neighbours",
    "split_blocks",
]

CHUNK = 2**18
"""Kernel values between points and data in memory at once: 2 MB in float64."""

FAR = 300.0
"""exp of less than minus this is taken as exp of that: subnormal numbers, also as products, are a
hundred times slower than others, and exp(-300) is nothing beside one."""


@dataclass(frozen=True)
class BlockMatrix:
    """S[j, block[j]] = values[j], all else zero.

    Attributes:
        block: ``n`` column indices, int64. Every column is met.
        values: ``n`` values, float64.
    """

    block: Tensor = shaped("n", "not negative")
    values: Tensor = shaped("n")

    @property
    def num_actions(self) -> int:
        """Columns i."""
        return int(self.block.max()) + 1 if self.block.numel() else 0

    def transpose_times(self, A: Tensor) -> Tensor:
        """S'A for A ``n`` or ``n x p``. O(n p)."""
        values, block = (t.reshape(-1, *[1] * (A.dim() - 1)) for t in (self.values, self.block))
        out = A.new_zeros(self.num_actions, *A.shape[1:])
        return out.scatter_add(0, block.expand(A.shape), A * values)

    def times(self, A: Tensor) -> Tensor:
        """S A for A ``i x p``. O(n p)."""
        return A[self.block].mul_(self.values[:, None])

    def gram(self, weights: Tensor) -> Tensor:
        """S' diag(weights) S, ``i x i``, diagonal, as no two columns share a row."""
        squares = self.values.square() * weights
        return squares.new_zeros(self.num_actions).index_add(0, self.block, squares).diag_embed()

    def normalised(self) -> BlockMatrix:
        """The same span with columns of unit length."""
        lengths = self.gram(torch.ones_like(self.values)).diagonal().sqrt()
        return replace(self, values=self.values / lengths[self.block])

    def append(self, other: BlockMatrix) -> BlockMatrix:
        """blkdiag(S, other)."""
        block = torch.cat([self.block, other.block + self.num_actions])
        return BlockMatrix(block, torch.cat([self.values, other.values]))

    def merge(self, T: BlockMatrix) -> BlockMatrix:
        """S T: the blocks of the rows of T that share a column become one block."""
        return BlockMatrix(T.block[self.block], self.values * T.values[self.block])

    def dense(self) -> Tensor:
        """S, ``n x i``."""
        S = self.values.new_zeros(len(self.values), self.num_actions)
        return S.scatter(1, self.block[:, None], self.values[:, None])


@dataclass(frozen=True)
class DenseMatrix:
    """A dense S, of full column rank, a constant of every gradient.

    Attributes:
        values: ``n x i``.
    """

    values: Tensor = shaped("n i")

    @property
    def num_actions(self) -> int:
        """Columns i."""
        return self.values.shape[1]

    def transpose_times(self, A: Tensor) -> Tensor:
        """S'A for A ``n`` or ``n x p``. O(n i p)."""
        return self.values.mT @ A

    def times(self, A: Tensor) -> Tensor:
        """S A for A ``i x p``. O(n i p)."""
        return self.values @ A

    def gram(self, weights: Tensor) -> Tensor:
        """S' diag(weights) S, ``i x i``. O(n i^2)."""
        return self.values.mT @ (weights[:, None] * self.values)

    def append(self, other: BlockMatrix) -> DenseMatrix:
        """blkdiag(S, other)."""
        return DenseMatrix(torch.block_diag(self.values, other.dense()))

    def merge(self, T: BlockMatrix) -> DenseMatrix:
        """S T."""
        return DenseMatrix(T.transpose_times(self.values.mT).mT)

    def dense(self) -> Tensor:
        """S itself."""
        return self.values


ActionMatrix = BlockMatrix | DenseMatrix


def neighbours(X: Tensor, most: int | None = None) -> BlockMatrix:
    """One action for each of the points ``n x d``, or for each of ``most`` blocks of neighbours."""
    n, ones = X.shape[0], torch.ones_like(X[:, 0])
    if most is None or n <= most:
        return BlockMatrix(torch.arange(n, device=X.device), ones)
    return BlockMatrix(locality_blocks(X, most), ones).normalised()


# -- blocks ------------------------------------------------------------------------------------


def split_blocks(n: int, num_actions: int, device: torch.device) -> Tensor:
    """Block indices of n rows in order, sizes like `numpy.array_split` (longer blocks first)."""
    parts = torch.arange(n).tensor_split(max(1, min(num_actions, n)))
    sizes = torch.tensor([len(part) for part in parts], device=device)
    return torch.repeat_interleave(sizes)


def locality_blocks(X: Tensor, num_blocks: int) -> Tensor:
    """Block index of each row: array-split sizes, each block a cell of a k-d tree.

    Blocks along an arbitrary row order mix points that have nothing to do with each other, and a
    block of unrelated points says little about any of them [MATHS 5.3]. Every node splits its rows
    across the coordinate of most variance, in proportion to the blocks each side is to have. Scale
    X first: distances are Euclidean. Ties are broken by the coordinate of next most variance, and
    so on (a split of a column of few values, such as a category, must not scatter the neighbours of
    one value over both sides); rows equal in all keep their order, so the result is deterministic.

    Args:
        X: ``n x d``.
        num_blocks: Blocks wanted; min(num_blocks, n) are made.

    Returns:
        ``n`` indices. O(d n log(i) log n) time.
    """
    n, blocks = X.shape[0], min(num_blocks, X.shape[0])
    in_order, order = split_blocks(n, num_blocks, X.device), torch.arange(n, device=X.device)
    starts = torch.searchsorted(in_order, torch.arange(blocks + 1, device=X.device)).tolist()
    nodes = [(0, blocks)] if blocks > 1 else []
    while nodes:
        first, last = nodes.pop()
        middle = (first + last) // 2
        rows = order[starts[first] : starts[last]]
        axes = X[rows].var(0, correction=0).argsort(descending=True, stable=True).flip(0)
        along = np.lexsort(X[rows][:, axes].mT.cpu().numpy())  # by the last of the axes first
        order[starts[first] : starts[last]] = rows[torch.from_numpy(along).to(rows)]
        nodes += [(a, b) for a, b in ((first, middle), (middle, last)) if b - a > 1]
    return torch.empty_like(in_order).scatter(0, order, in_order)


# -- products with kernel matrices -------------------------------------------------------------


def cross_product(kernel: Kernel, X_star: Tensor, X: Tensor, S: ActionMatrix) -> Tensor:
    """K(X*, X) S, differentiable in X* or in the kernel's parameters and the values of S.

    Args:
        kernel: A gpytorch kernel without batch dimensions (or with one of size 1).
        X_star: ``p x d``, float64.
        X: ``n x d``, float64, constants of the gradient.
        S: Actions, ``n x i``.

    Returns:
        ``p x i``, float64. O(p n) time, O(p i) memory.
    """
    if not len(X):
        return X_star[:, :0]
    form = stationary(kernel, X.shape[-1])
    if form is not None and form.nu > 1.0 and not X_star.requires_grad:
        return _stationary_product(form, X_star, X, S)

    def product(points: Tensor) -> Tensor:
        K = kernel(X, points).to_dense().reshape(len(X), len(points)).double()
        return S.transpose_times(K).mT

    chunks = X_star.split(max(1, CHUNK // max(X.shape[0], 1)))
    if len(chunks) == 1 or not torch.is_grad_enabled():
        return torch.cat([product(points) for points in chunks])
    return torch.cat([checkpoint(product, points, use_reentrant=False) for points in chunks])


def kernel_values(kernel: Kernel, X1: Tensor, X2: Tensor) -> Tensor:
    """The dense ``n1 x n2`` kernel matrix, float64, with first derivatives in hyperparameters."""
    return cross_product(kernel, X2, X1, neighbours(X1)).mT


def _stationary_product(form: Scaled, X_star: Tensor, X: Tensor, S: ActionMatrix) -> Tensor:
    """`cross_product` for RBF and smooth Matern kernels; no derivatives in X*.

    The kernel is os f(h), h a multiple of sum_j ((x_j - x'_j) / ls_j)^2 [MATHS 0]: one matrix
    product, of X and its squares with X* and its squares in weights.
    """
    factor = 0.5 if math.isinf(form.nu) else 2.0 * form.nu
    weights = factor * form.lengthscales(X.shape[-1], 1).square().reciprocal()
    centre = X.mean(0)
    x, z = X - centre, X_star - centre
    left = torch.cat([x, x.square(), torch.ones_like(x[:, :1])], -1)
    right = [2.0 * weights * z, -weights.expand_as(z), -(weights * z.square()).sum(-1, True)]
    product: Tensor = _Product.apply(left, torch.cat(right, -1).mT, S.values, S, form.nu)
    return (form.variances(1) * product).mT


class _Product(Function):
    """``S'f(left right)``, ``i x p``, for ``left`` (``n x r``) and ``right`` (``r x p``).

    Differentiable once, in ``right`` and the values of a `BlockMatrix`; f is computed again.
    """

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, values: Tensor, S: ActionMatrix, nu: float
    ) -> Tensor:
        """Some columns after others, half as many at once: values and slopes stay in the cache."""
        ctx.save_for_backward(left, right, values)
        ctx.S, ctx.nu, ctx.columns = S, nu, max(1, CHUNK // 2 // max(len(left), 1))
        parts = right.split(ctx.columns, -1)
        return torch.cat([S.transpose_times(_shape(left @ part, nu)[0]) for part in parts], -1)

    @staticmethod
    def backward(ctx: Any, bar: Tensor) -> tuple[Tensor | None, ...]:
        """The same columns."""
        left, right, values = ctx.saved_tensors
        slopes, values_bar = list[Tensor](), torch.zeros_like(values)
        with torch.no_grad():
            for part, part_bar in zip(
                *(t.split(ctx.columns, -1) for t in (right, bar)), strict=True
            ):
                f, slope = _shape(left @ part, ctx.nu)
                part_bar = part_bar.contiguous()
                if ctx.needs_input_grad[2]:
                    values_bar += (f * part_bar[ctx.S.block]).sum(-1)
                slopes.append(left.mT @ slope.mul_(ctx.S.times(part_bar)))
        gradients = [torch.cat(slopes, -1), values_bar]
        if torch.is_grad_enabled():
            inputs = (right, values, bar)
            gradients = refused(gradients, inputs, "kernel values of a computation-aware GP")
        return None, *gradients, None, None


def _shape(h: Tensor, nu: float) -> tuple[Tensor, Tensor]:
    """RBF kernels (nu infinite) of h = -r^2 / 2, Matern kernels of h = -2 nu r^2, for distances r
    in lengthscales, and slopes in h, which may share memory. h is overwritten.
    """
    if nu == math.inf:
        f = _exp(h.clamp_(-FAR, 0.0))
        return f, f
    u = h.clamp_(-(FAR**2), 0.0).neg_().sqrt_()
    e = _exp(u.neg())
    f = (1.0 + u).mul_(e)
    if nu == 1.5:
        return f, e.mul_(0.5)
    return u.square_().mul_(e).div_(3.0).add_(f), f.div_(6.0)


def _exp(x: Tensor) -> Tensor:
    """exp(x), in place and in two thirds of the time of torch's."""
    return x.mul_(math.log2(math.e)).exp2_()


# -- the posterior and its losses ---------------------------------------------------------------


@dataclass(frozen=True)
class Projected:
    """A Gaussian process seen through S: what its losses share, free of y.

    Attributes:
        S: Actions, ``n x i``.
        noise: Noise variances d_j, ``n``.
        prior_variance: k(x_j, x_j), ``n``.
        B: K S, ``n x i``.
        L: chol(S'(K + D) S), ``i x i``.
        delta: S'D S, ``i x i``.
    """

    S: ActionMatrix
    noise: Tensor
    prior_variance: Tensor
    B: Tensor
    L: Tensor
    delta: Tensor

    @classmethod
    def of(
        cls, kernel: Kernel, X: Tensor, S: ActionMatrix, noise: Tensor, repair: float = 0.0
    ) -> Projected:
        """At inputs ``n x d``, differentiable in kernel, noise and S. O(n^2 + i^3), O(n i) memory.

        Args:
            kernel: The prior's kernel.
            X: Inputs.
            S: Actions, ``n x i``.
            noise: Noise variances, ``n``.
            repair: The largest jitter for G, as in `chol_psd`.

        Raises:
            StateError: if G is not positive definite.
        """
        B, delta = cross_product(kernel, X, X, S), S.gram(noise)
        prior_variance = kernel(X, diag=True).double().reshape(-1)
        try:
            L = chol_psd(S.transpose_times(B) + delta, repair)
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            raise StateError(
                "S'(K + D)S positive definite",
                f"a failure ({error})",
                "Give linearly independent actions, or noise above 1e-12 of the outputscale.",
            ) from error
        return cls(S, noise, prior_variance, B, L, delta)

    def weights(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """For residuals e = y - c, ``n x p``, w = L^-1 S'e and v = L^-T w, ``i x p``."""
        w = torch.linalg.solve_triangular(self.L, self.S.transpose_times(e), upper=False)
        return w, torch.linalg.solve_triangular(self.L.mT, w, upper=True)

    def elbo(self, e: Tensor) -> Tensor:
        """The evidence lower bound [eq. 11; MATHS 5.2, signed as a log likelihood], 0-dim.

        Equals log p(y) - KL(posterior given S'y || exact posterior): at most the log evidence,
        and equal to it for S = I. Invariant under any change of S within its column span.
        Differentiable in everything. O(n i^2) time, O(n i) memory.

        Args:
            e: Residuals y - c, ``n``.
        """
        w, v = (x[:, 0] for x in self.weights(e[:, None]))
        A = torch.linalg.solve_triangular(self.L, self.B.mT, upper=False)  # L^-1 S'K, i x n
        misfit = (e - self.B @ v).square() + self.prior_variance - A.square().sum(0)
        # v'S'KS v = w'w - v'delta v and tr(G^-1 S'KS) = i - tr(G^-1 delta), as S'KS = G - delta
        fit = w.square().sum() - v @ self.delta @ v
        trace = v.numel() - (torch.cholesky_inverse(self.L) * self.delta).sum()
        logs = 2.0 * self.L.diagonal().log().sum() - self.delta.logdet() + self.noise.log().sum()
        logs = logs + e.numel() * math.log(2.0 * math.pi)
        return -0.5 * ((misfit / self.noise).sum() + fit - trace + logs)

    def log_likelihood(self, e: Tensor) -> Tensor:
        """The projected log likelihood log N(S'y; S'c, G), columns normalised [eq. 9], 0-dim.

        It sees S'y alone, not what S leaves out: for study, not recommended for training.
        """
        w = self.weights(e[:, None])[0]
        lengths = self.S.gram(torch.ones_like(self.noise))
        logs = 2.0 * self.L.diagonal().log().sum() - lengths.logdet()
        return -0.5 * (w.square().sum() + logs + w.numel() * math.log(2.0 * math.pi))

    def best_constant(self, y: Tensor) -> Tensor:
        """The constant mean c that maximises `elbo` for targets y (``n``), 0-dim.

        With e = y - c 1 the bound is a parabola in c: of r'D^-1 r + v'(G - delta)v, r = e - B v.
        """
        e = torch.stack([y, torch.ones_like(y)], -1)
        w, v = self.weights(e)
        r = e - self.B @ v
        form = r.mT @ (r / self.noise[:, None]) + w.mT @ w - v.mT @ self.delta @ v
        return form[0, 1] / form[1, 1]


@dataclass(frozen=True)
class CaGPState:
    """All data, the actions and their factor, and what the fits have left.

    Attributes:
        rows: The data.
        S: The actions, ``n x i``.
        L: The factor chol(S'(K + D)S), ``i x i``; zeros if unknown.
        made_with: The hyperparameters of L, flat; zeros if it is unknown.
        fitted: Number of data at the last fit, int64.
        learned: Number of data when learning the values of S last converged, int64.
        chi_square: Sum of squared standardised residuals since the last fit.
        residuals: Their number.
    """

    rows: Rows = nested(n="n")
    S: ActionMatrix = nested(n="n", i="i")
    L: Tensor = shaped("i i")
    made_with: Tensor = shaped("p")
    fitted: Tensor = shaped("", "not negative")
    learned: Tensor = shaped("", "not negative")
    chi_square: Tensor = shaped("", "not negative")
    residuals: Tensor = shaped("", "not negative")

    @classmethod
    def empty(cls, dim: int, dense: bool, made_with: Tensor) -> Self:
        """Before any data of ``dim`` inputs, under these hyperparameters (flat)."""
        rows, count = Rows.empty(dim), torch.zeros((), dtype=torch.int64)
        none, zero = rows.X[:, :0], rows.X.new_zeros(())
        S = DenseMatrix(none) if dense else neighbours(rows.X)
        return cls(rows, S, none, made_with, count, count, zero, zero)

    def with_actions(self, S: ActionMatrix) -> Self:
        """The same data with other actions, whose factor is not known."""
        L = self.L.new_zeros(S.num_actions, S.num_actions)
        return replace(self, S=S, L=L, made_with=torch.zeros_like(self.made_with))

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The same data with targets ``(y - shift) / factor``. Known noise takes a new factor;
        dense actions, which may depend on the targets, are built again.
        """
        state = replace(self, rows=self.rows.rescaled(shift, factor, known_noise))
        again = known_noise or isinstance(self.S, DenseMatrix)
        return state.with_actions(self.S) if again else state

    def after_fit(self) -> Self:
        """With the counts for `CaGP.refit_due` as after a fit."""
        now, zero = torch.full_like(self.fitted, len(self.rows)), torch.zeros_like(self.residuals)
        return replace(self, fitted=now, chi_square=zero, residuals=zero)


@dataclass(frozen=True)
class ActionBasis(KernelBasis):
    """``S'k(Z, x)``: the functionals are combinations of the noisy values at the data Z.

    Attributes:
        S: ``n x i``.
    """

    S: ActionMatrix = field(kw_only=True)

    def __call__(self, X: Tensor) -> Tensor:
        """O(n) per point."""
        flat = cross_product(self.kernel, X.reshape(-1, X.shape[-1]), self.Z, self.S)
        return flat.unflatten(0, X.shape[:-1]).unsqueeze(-3)

    def spread(self, T: Tensor) -> tuple[Tensor, Tensor]:
        """The data and ``S T``."""
        return self.Z, self.S.times(T)

    def functionals(self, f: Path) -> Tensor:
        """``S'`` times the noisy values of the sample functions at the data."""
        values = super().functionals(f)
        columns = self.S.transpose_times(values.flatten(0, -2).mT)
        return columns.mT.unflatten(0, values.shape[:-1])


# -- compression -------------------------------------------------------------------------------

COARSE, FINE = 6, 60
"""Angles tried for every pair, and for the pairs that are merged."""


def compress(
    S: ActionMatrix, L: Tensor, projected_residual: Tensor, noise: Tensor, num_actions: int
) -> tuple[ActionMatrix, Tensor]:
    """S (``n x i``) and L = chol(S'(K + D) S) with at most ``num_actions`` columns. O(i^3).

    Args:
        S: Actions, columns of length one and orthogonal.
        L: ``i x i``.
        projected_residual: S'e, ``i``.
        noise: Noise variances, ``n``.
        num_actions: Largest number of columns.
    """
    u = projected_residual
    while S.num_actions > num_actions:
        T = choose_merges(L, S.gram(noise), u, num_actions)
        R = torch.linalg.qr(T.transpose_times(L).mT, mode="r")[1]
        signs = torch.where(R.diagonal() < 0, -1.0, 1.0)
        S, L, u = S.merge(T), (signs[:, None] * R).mT.contiguous(), T.transpose_times(u)
    return S, L


def merge_loss(
    G_inv: Tensor, delta_inv: Tensor, alpha: Tensor, pairs: Tensor, angles: int
) -> tuple[Tensor, Tensor]:
    """Least KL of merging pairs of actions over some angles, and the angle at which it is reached.

    Args:
        G_inv: G^-1, ``i x i``.
        delta_inv: (S'D S)^-1, ``i x i``.
        alpha: G^-1 S'e, ``i``.
        pairs: ``2 x P`` indices.
        angles: How many angles of half a turn to try.

    Returns:
        ``P`` losses in nats and ``P`` angles. O(P angles).
    """
    a, b = pairs
    phi = torch.arange(angles, dtype=alpha.dtype, device=alpha.device) * (math.pi / angles)
    sin, cos = phi.sin()[:, None], phi.cos()[:, None]

    def quadratic(M: Tensor) -> Tensor:  # n'M n, angles x P
        diagonal = M.diagonal()
        squares = sin.square() * diagonal[a] + cos.square() * diagonal[b]
        return squares.addcmul_(sin * cos, M[a, b], value=-2.0)

    precision = quadratic(G_inv)
    rho = (quadratic(delta_inv) / precision).clamp_min_(1.0)
    lam = (cos * alpha[b] - sin * alpha[a]).square_() / precision
    loss, which = (0.5 * (rho.log() - (1.0 - 1.0 / rho) * (1.0 - lam))).min(0)
    return loss, phi[which]


def choose_merges(
    L: Tensor, delta: Tensor, projected_residual: Tensor, num_actions: int
) -> BlockMatrix:
    """T that brings i actions down to ``num_actions`` by merging disjoint pairs, cheapest first.

    A pair takes part in one merge of a call; where too many actions must go for that, the caller
    repeats. Losses are those of single merges: a few merges among many actions add up nearly.

    Args:
        L: chol(G), ``i x i``.
        delta: S'D S, ``i x i``.
        projected_residual: S'e, ``i``.
        num_actions: Actions wanted, fewer than i; at least i / 2 are kept.

    Returns:
        T, ``i x i'``, one value a row. O(i^3).
    """
    i = L.shape[-1]
    alpha = torch.cholesky_solve(projected_residual[:, None], L)[:, 0]
    G_inv, delta_inv = (torch.cholesky_inverse(F) for F in (L, torch.linalg.cholesky(delta)))
    pairs = torch.triu_indices(i, i, 1, device=L.device)
    loss, _ = merge_loss(G_inv.float(), delta_inv.float(), alpha.float(), pairs, COARSE)
    chosen, free = list[tuple[int, int]](), set(range(i))
    for a, b in zip(*pairs[:, loss.argsort(stable=True)].cpu().numpy(), strict=True):
        if a in free and b in free:
            chosen.append((a, b))
            free -= {a, b}
        if len(chosen) == min(i - num_actions, i // 2):
            break
    first, second = merged = torch.tensor(chosen, device=L.device).mT
    _, phi = merge_loss(G_inv, delta_inv, alpha, merged, FINE)
    target, weights = torch.arange(i, device=L.device), torch.ones_like(alpha)
    target[second] = first
    weights[first], weights[second] = phi.cos(), phi.sin()
    return BlockMatrix(target.unique(return_inverse=True)[1], weights)
