"""K(X*, X) S for block-sparse S, chunked over X*, with a gradient to X* written by hand.  [CaGP,
eq. 5; MATHS 5.3]

Predictions and appended data need this product. Kernel values are computed for a few rows of X* at
a time, multiplied by the values of S and summed per block; the backward pass computes them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bo_stream.mathematics.computation_aware.matrix import BlockMatrix
from bo_stream.mathematics.computation_aware.products.stationary import (
    Form,
    Stationary,
    minus_half_squared_distance,
)
from bo_stream.mathematics.derivatives import traced

CHUNK = 2**21
"""Kernel values held at once: 16 MB in float64."""


def row_chunks(rows: int, columns: int, chunk: int = CHUNK) -> Iterator[slice]:
    """Slices of ``rows`` of at most ``chunk`` values each (and at least one row)."""
    step = max(1, chunk // max(columns, 1))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


class CrossBlockProduct(torch.autograd.Function):
    """f(K(X*, X)) S; differentiable in X* only, and in O(p n d) memory after the first time."""

    @staticmethod
    def forward(
        ctx: Any,
        X_star: Tensor,
        X: Tensor,
        lengthscale: Tensor,
        values: Tensor,
        block: Tensor,
        num_blocks: int,
        form: Form,
        chunk: int,
    ) -> Tensor:
        """The product; keeps its arguments only."""
        ctx.save_for_backward(X_star, X, lengthscale, values, block)
        ctx.form, ctx.chunk, ctx.num_blocks = form, chunk, num_blocks
        z, z_star = X / lengthscale, X_star / lengthscale
        S = BlockMatrix(block, values, num_blocks)
        B = X.new_zeros(X_star.shape[0], num_blocks)
        for rows in row_chunks(X_star.shape[0], X.shape[0], chunk):
            h = minus_half_squared_distance(z_star[rows], z, form.exact_distance)
            B[rows] = S.right_of(form.value(h))
        return B

    @staticmethod
    def backward(ctx: Any, B_bar: Tensor) -> tuple[Tensor | None, ...]:
        """Derivatives of the kernel, chunk by chunk."""
        X_star, X, lengthscale, values, block = ctx.saved_tensors
        z, z_star = X / lengthscale, X_star / lengthscale
        if torch.is_grad_enabled():
            S = BlockMatrix(block, values, ctx.num_blocks)
            product = partial(_smooth_product, z=z, lengthscale=lengthscale, S=S, form=ctx.form)
            return *traced(product, (X_star,), B_bar), *[None] * 7
        z_bar = torch.empty_like(z_star)
        for rows in row_chunks(X_star.shape[0], X.shape[0], ctx.chunk):
            h = minus_half_squared_distance(z_star[rows], z, ctx.form.exact_distance)
            P = ctx.form.value_and_slope(h)[1].mul(B_bar[rows][:, block]).mul_(values)
            # dh/dz* = z - z*
            z_bar[rows] = P @ z - P.sum(-1, keepdim=True) * z_star[rows]
        return z_bar / lengthscale, *[None] * 7


def _smooth_product(
    X_star: Tensor, z: Tensor, lengthscale: Tensor, S: BlockMatrix, form: Form
) -> Tensor:
    """The product in operations that autograd differentiates."""
    gaps = (X_star / lengthscale).unsqueeze(-2) - z
    return S.right_of(form.smooth(gaps.square().sum(-1)))


def cross_block_product(
    X_star: Tensor, X: Tensor, kernel: Stationary, S: BlockMatrix, chunk: int = CHUNK
) -> Tensor:
    """K(X*, X) S.

    Args:
        X_star: ``p x d``; the only argument with a gradient.
        X: ``n x d``.
        kernel: The kernel, a constant of the gradient.
        S: Actions, ``n x i``, a constant of the gradient.
        chunk: Kernel values held at once.

    Returns:
        ``p x i``, float64. O(p n d) time, O(p i + chunk) memory.
    """
    centre = X.mean(0) if X.shape[0] else 0.0
    product: Tensor = CrossBlockProduct.apply(
        X_star - centre,
        X - centre,
        kernel.lengthscale.detach(),
        (kernel.outputscale * S.values).detach(),
        S.block,
        S.num_actions,
        kernel.form,
        chunk,
    )
    return product
