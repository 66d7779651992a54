"""K(X*, X) S for any gpytorch kernel and any S: row chunks, each recomputed in the backward.

Slower than the closed forms, and general: gradients flow to X*, to S and to every parameter of the
kernel. Memory is one chunk of kernel values and the graph of its backward pass, never n x n.
"""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bo_stream.mathematics.computation_aware.matrix import ActionMatrix
from bo_stream.mathematics.computation_aware.products.cross import CHUNK, row_chunks
from bo_stream.mathematics.computation_aware.products.stationary import (
    describe,
    minus_half_squared_distance,
)


def kernel_block(kernel: Kernel, X1: Tensor, X2: Tensor) -> Tensor:
    """The dense ``n1 x n2`` kernel matrix, float64 whatever the kernel's parameters are."""
    K: Tensor = kernel(X1, X2).to_dense()
    return K.reshape(X1.shape[0], X2.shape[0]).to(torch.float64)


def constant_kernel_block(kernel: Kernel, X1: Tensor, X2: Tensor) -> Tensor:
    """The dense ``n1 x n2`` kernel matrix without gradient, in closed form if there is one."""
    with torch.no_grad():
        form = describe(kernel, X1.shape[-1])
        if form is None or X2.shape[0] == 0:
            return kernel_block(kernel, X1, X2)
        centre = X2.mean(0)
        z1, z2 = (X1 - centre) / form.lengthscale, (X2 - centre) / form.lengthscale
        h = minus_half_squared_distance(z1, z2, form.form.exact_distance)
        return form.form.value(h).mul_(form.outputscale)


def checkpointed_product(
    kernel: Kernel, X_star: Tensor, X: Tensor, S: ActionMatrix, chunk: int = CHUNK
) -> Tensor:
    """K(X*, X) S, ``p x i``.

    Args:
        kernel: Any gpytorch kernel without batch dimensions (or with one of size 1).
        X_star: ``p x d``.
        X: ``n x d``.
        S: Actions, ``n x i``.
        chunk: Kernel values held at once.
    """

    def product(rows: Tensor) -> Tensor:
        return S.right_of(kernel_block(kernel, rows, X))

    chunks = [X_star[rows] for rows in row_chunks(X_star.shape[0], X.shape[0], chunk)]
    if not chunks:
        return X.new_zeros(0, S.num_actions)
    if not torch.is_grad_enabled():
        return torch.cat([product(chunk) for chunk in chunks])
    return torch.cat([checkpoint(product, chunk, use_reentrant=False) for chunk in chunks])


class KernelOperator:
    """Repeated products K(X, X) q.

    Args:
        kernel: The kernel.
        X: ``n x d``.
        held: Rows up to which K is held, 32 MB by default; with more, it is computed in chunks.
    """

    def __init__(self, kernel: Kernel, X: Tensor, held: int = 2048) -> None:
        self.kernel, self.X = kernel, X
        self.K = constant_kernel_block(kernel, X, X) if X.shape[0] <= held else None

    def times(self, q: Tensor) -> Tensor:
        """K q for q ``n``. O(n^2) time."""
        if self.K is not None:
            return self.K @ q
        n = self.X.shape[0]
        parts = [
            constant_kernel_block(self.kernel, self.X[rows], self.X) @ q
            for rows in row_chunks(n, n)
        ]
        return torch.cat(parts)
