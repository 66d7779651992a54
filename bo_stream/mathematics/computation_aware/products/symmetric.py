"""K(X, X) S for block-sparse S, in O(n i) memory, with a backward written by hand.  [CaGP, section
4.2; MATHS 5.3]

Training needs this product. By symmetry it costs n^2/2 kernel values forward, and n^2/2 more
backward, where they are computed again. Rows are sorted by block, so that a square tile of the
kernel matrix contains few blocks, and the product with S and the segment sums of its gradients are
small dense matrix products. No n x n matrix is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bo_stream.mathematics.computation_aware.products.stationary import (
    Form,
    Stationary,
    border_left,
    border_right,
    minus_half_squared_distance,
    squared_difference,
    wide_coordinates,
)
from bo_stream.mathematics.derivatives import refused

TILES = {"cpu": 512, "cuda": 4096}
"""Rows and columns of a tile by device."""


class _Strip(NamedTuple):
    """Consecutive rows of the sorted data, the blocks they meet, and S restricted to both."""

    rows: slice
    blocks: slice
    column: Tensor  # rows: column of the row's block within `blocks`
    S: Tensor  # rows x blocks


def _strips(block: Tensor, values: Tensor, tile: int) -> list[_Strip]:
    n = block.numel()
    strips = []
    for start in range(0, n, tile):
        stop = min(start + tile, n)
        first, last = int(block[start]), int(block[stop - 1])
        column = block[start:stop] - first
        S = values.new_zeros(stop - start, last - first + 1)
        S.scatter_(1, column[:, None], values[start:stop, None])
        strips.append(_Strip(slice(start, stop), slice(first, last + 1), column, S))
    return strips


class _Tiles:
    """The tiles h = -r^2/2, rows R up to columns C, of one kernel matrix."""

    def __init__(self, z: Tensor, strips: list[_Strip], form: Form) -> None:
        self.z, self.strips, self.form = z, strips, form
        self.wide = wide_coordinates(z)
        self.narrow = [k for k in range(z.shape[-1]) if k not in self.wide]
        self.left = border_left(z[:, self.narrow])
        self.right = border_right(z[:, self.narrow]).mT.contiguous()

    def pairs(self) -> Iterator[tuple[_Strip, _Strip]]:
        """Pairs R, C whose kernel values are not all negligible, judged by bounding boxes."""
        low = torch.stack([self.z[strip.rows].amin(0) for strip in self.strips])
        high = torch.stack([self.z[strip.rows].amax(0) for strip in self.strips])
        gap = torch.maximum(low[:, None] - high, low - high[:, None]).clamp_(min=0.0)
        near = (gap.square().sum(-1) <= -2.0 * self.form.negligible).tolist()
        for a, R in enumerate(self.strips):
            for b in range(a, len(self.strips)):
                if near[a][b]:
                    yield R, self.strips[b]

    def h(self, R: slice, C: slice) -> Tensor:
        if self.form.exact_distance:
            h = minus_half_squared_distance(self.z[R], self.z[C], exact=True)
        else:
            h = self.left[R] @ self.right[:, C]
            for k in self.wide:
                h.sub_(0.5 * squared_difference(self.z[R, k], self.z[C, k]))
        if R == C:
            h.fill_diagonal_(0.0)
        return h.clamp_(max=0.0)


class SymmetricBlockProduct(torch.autograd.Function):
    """f(K) S of sorted data; differentiable in lengthscale and values, once."""

    @staticmethod
    def forward(
        ctx: Any,
        X: Tensor,
        lengthscale: Tensor,
        values: Tensor,
        block: Tensor,
        num_blocks: int,
        form: Form,
        tile: int,
    ) -> Tensor:
        """The product; keeps its arguments only."""
        tiles = _Tiles(X / lengthscale, _strips(block, values, tile), form)
        B = X.new_zeros(X.shape[0], num_blocks)
        for R, C in tiles.pairs():
            K = form.value(tiles.h(R.rows, C.rows))
            B[R.rows, C.blocks] += K @ C.S
            if R is not C:
                B[C.rows, R.blocks] += K.mT @ R.S
        ctx.save_for_backward(X, lengthscale, values, block)
        ctx.form, ctx.tile = form, tile
        return B

    @staticmethod
    def backward(ctx: Any, B_bar: Tensor) -> tuple[Tensor | None, ...]:
        """Kernel values again, and three products with each tile."""
        grads = SymmetricBlockProduct._gradients(ctx, B_bar.detach())
        if torch.is_grad_enabled():
            inputs = (*ctx.saved_tensors[1:3], B_bar)
            grads = refused(grads, inputs, "products of a kernel matrix with sparse actions")
        return None, *grads, *[None] * 4

    @staticmethod
    @torch.no_grad()
    def _gradients(ctx: Any, B_bar: Tensor) -> list[Tensor]:
        X, lengthscale, values, block = ctx.saved_tensors
        z = X / lengthscale
        tiles = _Tiles(z, _strips(block, values, ctx.tile), ctx.form)
        values_bar, ard = torch.zeros_like(values), torch.zeros_like(lengthscale)
        for R, C in tiles.pairs():
            K, slope = ctx.form.value_and_slope(tiles.h(R.rows, C.rows))
            RC, CR = B_bar[R.rows, C.blocks], B_bar[C.rows, R.blocks]
            # f = sum_jl B_bar_jl B_jl: its derivative in s_m is (K' B_bar)_{m, block(m)}
            if ctx.needs_input_grad[2]:
                values_bar[C.rows] += (K.mT @ RC).gather(1, C.column[:, None])[:, 0]
                if R is not C:
                    values_bar[R.rows] += (K @ CR).gather(1, R.column[:, None])[:, 0]
            P = RC @ C.S.mT  # its derivative in K_jm
            if R is not C:
                P.addmm_(R.S, CR.mT)
            P = P.mul_(slope)
            ard[tiles.narrow] += _ard(P, z[R.rows, tiles.narrow], z[C.rows, tiles.narrow])
            for k in tiles.wide:
                ard[k] += (P * squared_difference(z[R.rows, k], z[C.rows, k])).sum()
        # dK/dls_d = f'(h) (z_jd - z_md)^2 / ls_d
        return [ard / lengthscale, values_bar]


def _ard(P: Tensor, z1: Tensor, z2: Tensor) -> Tensor:
    """For each d, sum_jm P_jm (z1_jd - z2_md)^2, by one product with P (n1 x n2)."""
    z1, z2 = z1 - z1[:1], z2 - z1[:1]  # close to the origin: the three sums below must not cancel
    d = z1.shape[-1]
    right = torch.cat([z2, z2.square(), torch.ones_like(z2[:, :1])], -1)
    sums = P @ right
    return (z1.square() * sums[:, -1:] - 2.0 * z1 * sums[:, :d] + sums[:, d:-1]).sum(0)


def symmetric_block_product(
    X: Tensor,
    kernel: Stationary,
    block: Tensor,
    values: Tensor,
    num_blocks: int,
    tile: int | None = None,
) -> Tensor:
    """K(X, X) S.

    Args:
        X: ``n x d`` inputs, float64, constants of the gradient.
        kernel: The kernel; differentiable in its lengthscale and outputscale.
        block: ``n`` block indices, one a row of X, in any order.
        values: ``n`` values of S, S[j, block[j]] = values[j]; differentiable.
        num_blocks: Columns i of S.
        tile: Rows and columns of a tile; by default `TILES`.

    Returns:
        ``n x i``. O(n^2 (d + i / number of tiles)) time, O(n i) memory.
    """
    order = torch.argsort(block, stable=True)
    centred = X[order] - X.mean(0)
    B = SymmetricBlockProduct.apply(
        centred,
        kernel.lengthscale,
        values[order],
        block[order],
        num_blocks,
        kernel.form,
        TILES.get(X.device.type, 512) if tile is None else tile,
    )
    return kernel.outputscale * B[torch.argsort(order)]
