"""The action matrix S (n x i) of a computation-aware GP, block sparse or dense, and its products.

[CaGP, eq. 14; MATHS 5.1, 5.3] Actions are the linear functionals S'y of the data a computation-
aware GP conditions on. `BlockMatrix` has one value a row (its column given by an index), so S costs
O(n); `DenseMatrix` has all n i numbers. Columns are kept at length one, S'S = I; the posterior
depends on the span of S alone.

Products with kernel matrices take O(n i) memory. For K(X, X) S square tiles of the kernel matrix,
half of them by symmetry, are computed one after the other, and again in the backward.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from bo_stream.mathematics.autograd import refused
from bo_stream.mathematics.kernels import stationary

__all__ = [
    "ActionMatrix",
    "BlockMatrix",
    "DenseMatrix",
    "cross_product",
    "identity_actions",
    "kernel_values",
    "locality_blocks",
    "neighbours",
    "split_blocks",
    "symmetric_product",
]

TILES = {"cpu": 320, "cuda": 4096}
"""Rows and columns of a tile of the kernel matrix by device."""

CHUNK = 2**18
"""Kernel values between points and data in memory at once: 2 MB in float64."""

FLOOR = -300.0
"""exp of less is taken as exp of this: subnormal numbers, also as products, are a hundred times
slower than others, and exp(-300) is nothing beside one."""


@dataclass(frozen=True)
class BlockMatrix:
    """S[j, block[j]] = values[j], all else zero.

    Attributes:
        block: ``n`` column indices, int64. Every column is met.
        values: ``n`` values, float64.
        num_actions: Columns i.
    """

    block: Tensor
    values: Tensor
    num_actions: int

    @property
    def num_rows(self) -> int:
        """Rows n."""
        return self.block.shape[0]

    def strip(self, rows: slice) -> tuple[slice, Tensor]:
        """The columns that some rows meet, and S restricted to both, dense."""
        block = self.block[rows]
        first = int(block.min())
        S = self.values.new_zeros(len(block), int(block.max()) + 1 - first)
        columns = slice(first, first + S.shape[1])
        return columns, S.scatter(1, (block - first)[:, None], self.values[rows, None])

    def transpose_times(self, A: Tensor) -> Tensor:
        """S'A for A ``n`` or ``n x p``. O(n p)."""
        weighted = A * (self.values if A.dim() == 1 else self.values[:, None])
        out = weighted.new_zeros(self.num_actions, *A.shape[1:])
        return out.index_add(0, self.block, weighted)

    def right_of(self, K: Tensor) -> Tensor:
        """K S for K ``p x n``. O(p n)."""
        out = K.new_zeros(K.shape[0], self.num_actions)
        return out.scatter_add(1, self.block.expand(K.shape[0], -1), K * self.values)

    def gram_diagonal(self, weights: Tensor) -> Tensor:
        """The diagonal of S' diag(weights) S, ``i``, all of it, as no two columns share a row."""
        squares = self.values.square() * weights
        return squares.new_zeros(self.num_actions).index_add(0, self.block, squares)

    def gram(self, weights: Tensor) -> Tensor:
        """S' diag(weights) S, ``i x i``."""
        return torch.diag_embed(self.gram_diagonal(weights))

    def gram_logdet(self, weights: Tensor) -> Tensor:
        """log|S' diag(weights) S|."""
        return self.gram_diagonal(weights).log().sum()

    def normalised(self) -> BlockMatrix:
        """The same span with columns of unit length."""
        norms = self.gram_diagonal(torch.ones_like(self.values)).sqrt()
        return replace(self, values=self.values / norms[self.block])

    def append(self, other: BlockMatrix) -> BlockMatrix:
        """blkdiag(S, other)."""
        block = torch.cat([self.block, other.block + self.num_actions])
        values = torch.cat([self.values, other.values])
        return BlockMatrix(block, values, self.num_actions + other.num_actions)

    def merge(self, target: Tensor, weights: Tensor) -> BlockMatrix:
        """S T for T[a, target[a]] = weights[a]: the blocks of one target become one block."""
        block, values = target[self.block], self.values * weights[self.block]
        return BlockMatrix(block, values, int(target.max()) + 1)

    def dense(self) -> Tensor:
        """S, ``n x i``."""
        S = self.values.new_zeros(self.num_rows, self.num_actions)
        return S.scatter(1, self.block[:, None], self.values[:, None])


@dataclass(frozen=True)
class DenseMatrix:
    """A dense S, of full column rank, a constant of every gradient.

    Attributes:
        values: ``n x i``.
    """

    values: Tensor

    @property
    def num_actions(self) -> int:
        """Columns i."""
        return self.values.shape[1]

    @property
    def num_rows(self) -> int:
        """Rows n."""
        return self.values.shape[0]

    def strip(self, rows: slice) -> tuple[slice, Tensor]:
        """All columns, and some rows of S."""
        return slice(None), self.values[rows]

    def transpose_times(self, A: Tensor) -> Tensor:
        """S'A for A ``n`` or ``n x p``. O(n i p)."""
        return self.values.mT @ A

    def right_of(self, K: Tensor) -> Tensor:
        """K S for K ``p x n``. O(p n i)."""
        return K @ self.values

    def gram(self, weights: Tensor) -> Tensor:
        """S' diag(weights) S, ``i x i``. O(n i^2)."""
        return self.values.mT @ (weights[:, None] * self.values)

    def gram_logdet(self, weights: Tensor) -> Tensor:
        """log|S' diag(weights) S|."""
        return 2.0 * torch.linalg.cholesky(self.gram(weights)).diagonal().log().sum()

    def append(self, other: BlockMatrix) -> DenseMatrix:
        """blkdiag(S, other)."""
        return DenseMatrix(torch.block_diag(self.values, other.dense()))

    def merge(self, target: Tensor, weights: Tensor) -> DenseMatrix:
        """S T for T[a, target[a]] = weights[a]."""
        T = self.values.new_zeros(target.numel(), int(target.max()) + 1)
        return DenseMatrix(self.values @ T.scatter(1, target[:, None], weights[:, None]))

    def dense(self) -> Tensor:
        """S itself."""
        return self.values


ActionMatrix = BlockMatrix | DenseMatrix


def identity_actions(X: Tensor) -> BlockMatrix:
    """S = I: one action for each of the points ``n x d``."""
    n = X.shape[0]
    return BlockMatrix(torch.arange(n, device=X.device), X.new_ones(n), n)


def neighbours(X: Tensor, most: int | None) -> BlockMatrix:
    """One action for each of the points ``n x d``, or for each of ``most`` blocks of neighbours."""
    if most is None or X.shape[0] <= most:
        return identity_actions(X)
    return BlockMatrix(locality_blocks(X, most), torch.ones_like(X[:, 0]), most).normalised()


# -- blocks ------------------------------------------------------------------------------------


def split_blocks(n: int, num_actions: int, device: torch.device) -> Tensor:
    """Block indices of n rows in order, sizes like `numpy.array_split` (longer blocks first)."""
    i = min(num_actions, n)
    sizes = torch.full((i,), n // max(i, 1), device=device)
    sizes[: n - int(sizes.sum())] += 1
    return torch.repeat_interleave(torch.arange(i, device=device), sizes)


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
        ``n`` indices. O(n log(i) (d + log n)) time, O(d n log(i) log n) where columns have ties.
    """
    n, blocks = X.shape[0], min(num_blocks, X.shape[0])
    in_order, order = split_blocks(n, num_blocks, X.device), torch.arange(n, device=X.device)
    starts = torch.searchsorted(in_order, torch.arange(blocks + 1, device=X.device)).tolist()
    nodes = [(0, blocks)] if blocks > 1 else []
    while nodes:
        first, last = nodes.pop()
        middle = (first + last) // 2
        rows = order[starts[first] : starts[last]]
        order[starts[first] : starts[last]] = rows[_line_up(X[rows])]
        nodes += [(a, b) for a, b in ((first, middle), (middle, last)) if b - a > 1]
    return torch.empty_like(in_order).scatter(0, order, in_order)


def _line_up(points: Tensor) -> Tensor:
    """The order of points along the coordinate of most variance, ties by the next, and so on."""
    axes = points.var(0, correction=0).argsort(descending=True, stable=True)
    along, order = points[:, axes[0]].sort(stable=True)
    if not bool((along[1:] == along[:-1]).any()):
        return order
    order = torch.arange(len(points), device=points.device)
    for axis in axes.flip(0).tolist():
        order = order[points[order, axis].argsort(stable=True)]
    return order


# -- products with kernel matrices -------------------------------------------------------------


def symmetric_product(
    kernel: Kernel, X: Tensor, S: ActionMatrix, tile: int | None = None
) -> Tensor:
    """K(X, X) S, differentiable, once, in the kernel's parameters and a block-sparse S's values.

    Args:
        kernel: A gpytorch kernel without batch dimensions (or with one of size 1).
        X: ``n x d`` inputs, float64, constants of the gradient.
        S: Actions, ``n x i``.
        tile: Rows and columns of a tile; by default `TILES`.

    Returns:
        ``n x i``, float64. n^2 / 2 kernel values, as many again in the backward, O(n i) memory.
    """
    tile = tile or TILES.get(X.device.type, TILES["cpu"])
    if isinstance(S, DenseMatrix):
        return _product(kernel, X, S, tile)
    order = S.block.argsort(stable=True)  # few columns meet in a tile
    in_order = BlockMatrix(S.block[order], S.values[order], S.num_actions)
    return _product(kernel, X[order], in_order, tile)[order.argsort()]


def _product(kernel: Kernel, X: Tensor, S: ActionMatrix, tile: int) -> Tensor:
    product: Tensor = TiledProduct.apply(kernel, X, S, tile, S.values, *kernel.parameters())
    return product


class TiledProduct(Function):
    """K(X, X) S; differentiable in the values of S and the kernel's parameters, once."""

    @staticmethod
    def forward(
        ctx: Any, kernel: Kernel, X: Tensor, S: ActionMatrix, tile: int, *inputs: Tensor
    ) -> Tensor:
        """The product; keeps its arguments only."""
        ctx.kernel, ctx.X, ctx.S, ctx.tile = kernel, X, S, tile
        ctx.save_for_backward(*inputs)
        B = X.new_zeros(X.shape[0], S.num_actions)
        for rows, others in _tiles(X.shape[0], tile):
            K, scale = scaled_values(kernel, X[rows], X[others])
            (i, S_rows), (j, S_others) = S.strip(rows), S.strip(others)
            B[rows, j] += scale * (K @ S_others)
            if rows != others:
                B[others, i] += scale * (K.mT @ S_rows)
        return B

    @staticmethod
    def backward(ctx: Any, B_bar: Tensor) -> tuple[Tensor | None, ...]:
        """Kernel values again, tile by tile."""
        inputs = ctx.saved_tensors
        wanted = [t for t in inputs if t.requires_grad]
        sums = [torch.zeros_like(t) for t in wanted]
        with torch.enable_grad():
            S = replace(ctx.S, values=inputs[0])
            for rows, others in _tiles(ctx.X.shape[0], ctx.tile):
                K, scale = scaled_values(ctx.kernel, ctx.X[rows], ctx.X[others])
                (i, S_rows), (j, S_others) = S.strip(rows), S.strip(others)
                part = ((K @ S_others) * B_bar.detach()[rows, j]).sum()
                if rows != others:
                    part = part + ((K.mT @ S_rows) * B_bar.detach()[others, i]).sum()
                slopes = torch.autograd.grad(scale * part, wanted, allow_unused=True)
                for total, slope in zip(sums, slopes, strict=True):
                    total += 0.0 if slope is None else slope
        if torch.is_grad_enabled():
            what = "products of a kernel matrix with actions"
            sums = refused(sums, (*wanted, B_bar), what)
        found = iter(sums)
        return None, None, None, None, *(next(found) if t.requires_grad else None for t in inputs)


def _tiles(n: int, tile: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of the tiles on and above the diagonal."""
    strips = [slice(start, start + tile) for start in range(0, n, tile)]
    for k, rows in enumerate(strips):
        for others in strips[k:]:
            yield rows, others


def cross_product(kernel: Kernel, X_star: Tensor, X: Tensor, S: ActionMatrix) -> Tensor:
    """K(X*, X) S, ``p x i``, differentiable in X* (``p x d``). O(p n) time, O(p i) memory."""

    def product(rows: Tensor) -> Tensor:
        if not rows.requires_grad:
            return S.right_of(kernel_values(kernel, rows, X))
        return S.right_of(kernel(rows, X).to_dense().reshape(rows.shape[0], X.shape[0]).double())

    chunks = X_star.split(max(1, CHUNK // max(X.shape[0], 1)))
    if len(chunks) == 1 or not torch.is_grad_enabled():
        return torch.cat([product(rows) for rows in chunks])
    return torch.cat([checkpoint(product, rows, use_reentrant=False) for rows in chunks])


def kernel_values(kernel: Kernel, X1: Tensor, X2: Tensor) -> Tensor:
    """The dense ``n1 x n2`` kernel matrix, float64, with first derivatives in hyperparameters."""
    K, scale = scaled_values(kernel, X1, X2)
    return K * scale


def scaled_values(kernel: Kernel, X1: Tensor, X2: Tensor) -> tuple[Tensor, Tensor | float]:
    """Kernel values ``n1 x n2``, as `kernel_values`, and a scale that they are to be times.

    A stationary kernel is os f(h), h = -r^2 / 2, r^2 = sum_j ((x_j - x'_j) / ls_j)^2 [MATHS 0].
    For RBF and smooth Matern kernels h is one matrix product of the inputs bordered by their norms,
    and f a closed form, at half the cost of gpytorch's.
    """
    form = stationary(kernel, X1.shape[-1])
    if form is None or form.nu < 1.0:
        return kernel(X1, X2).to_dense().reshape(X1.shape[0], X2.shape[0]).double(), 1.0
    z1, z2 = ((X - X2.mean(0)) / form.lengthscales(X1.shape[-1], 1) for X in (X1, X2))
    half1, half2 = (-0.5 * z.square().sum(-1, keepdim=True) for z in (z1, z2))
    left = torch.cat([z1, half1, torch.ones_like(half1)], -1)
    right = torch.cat([z2, torch.ones_like(half2), half2], -1)
    return _Shape.apply(left @ right.mT, form.nu), form.variances(1)


class _Shape(Function):
    """f(h) of RBF (nu infinite) and Matern kernels; differentiable once."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, nu: float) -> Tensor:
        """Values; keeps slopes."""
        if nu == math.inf:
            f = slope = h.clamp(FLOOR, 0.0).exp_()
        else:
            u = h.clamp(max=0.0).mul_(-4.0 * nu).sqrt_()  # sqrt(2 nu) r
            e = (-u).clamp_(min=FLOOR).exp_()
            f = slope = (1.0 + u).mul_(e)
            if nu == 1.5:
                slope = e.mul_(3.0)
            else:
                f, slope = torch.addcmul(f, u.square_(), e, value=1.0 / 3.0), slope.mul(5.0 / 3.0)
        ctx.save_for_backward(slope)
        return f

    @staticmethod
    def backward(ctx: Any, f_bar: Tensor) -> tuple[Tensor, None]:
        """f_bar f'(h)."""
        return f_bar * ctx.saved_tensors[0], None
