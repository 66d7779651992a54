"""Products of kernel matrices with action matrices, in O(n) memory."""

from __future__ import annotations

from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.computation_aware.matrix import ActionMatrix, BlockMatrix
from bo_stream.mathematics.computation_aware.products.checkpointed import (
    KernelOperator,
    checkpointed_product,
    constant_kernel_block,
    kernel_block,
)
from bo_stream.mathematics.computation_aware.products.cross import CHUNK, cross_block_product
from bo_stream.mathematics.computation_aware.products.stationary import Stationary, describe
from bo_stream.mathematics.computation_aware.products.symmetric import symmetric_block_product

__all__ = [
    "KernelOperator",
    "Stationary",
    "constant_kernel_block",
    "cross_product",
    "describe",
    "kernel_block",
    "symmetric_product",
]


def symmetric_product(
    kernel: Kernel,
    X: Tensor,
    S: ActionMatrix,
    *,
    tile: int | None = None,
    chunk: int = CHUNK,
) -> Tensor:
    """K(X, X) S, differentiable in the kernel's parameters and in the values of a block-sparse S.

    Args:
        kernel: A gpytorch kernel without batch dimensions (or with one of size 1).
        X: ``n x d`` inputs, float64, constants of the gradient.
        S: Actions, ``n x i``.
        tile: Rows of a tile of the closed forms; by default as suits the device.
        chunk: Kernel values held at once for other kernels.

    Returns:
        ``n x i``, float64. n^2 / 2 kernel values for RBF and Matern kernels with block-sparse S,
        n^2 otherwise; as many again in the backward. O(n i) memory.
    """
    form = describe(kernel, X.shape[-1])
    if form is not None and isinstance(S, BlockMatrix):
        return symmetric_block_product(X, form, S.block, S.values, S.num_actions, tile)
    return checkpointed_product(kernel, X, X, S, chunk)


def cross_product(
    kernel: Kernel, X_star: Tensor, X: Tensor, S: ActionMatrix, *, chunk: int = CHUNK
) -> Tensor:
    """K(X*, X) S, ``p x i``, differentiable in X* (``p x d``). O(p n) time, never p n memory."""
    form = describe(kernel, X.shape[-1])
    if form is not None and isinstance(S, BlockMatrix):
        return cross_block_product(X_star, X, form, S, chunk)
    return checkpointed_product(kernel, X_star, X, S, chunk)
