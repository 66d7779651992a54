"""A stationary kernel on the nodes of a grid: its matrix, or a root of it [MATHS 2.3, 2.4].

A kernel that is a product over dimensions is evaluated along each axis only; any other at the
distinct differences of nodes. What is too small to matter is set to zero, because products of such
values would be subnormal numbers, which are slow.
"""

from __future__ import annotations

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    Kernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

from bo_stream.mathematics.grid.data_space import DensePrior, ProductPrior, RowPrior
from bo_stream.mathematics.grid.nodes import Grid
from bo_stream.mathematics.grid.roots import (
    JITTER,
    TINY,
    ProductRoot,
    dense_root,
    flushed,
    jittered,
)
from bo_stream.mathematics.sufficient_statistics.evidence import Root

__all__ = [
    "is_product",
    "is_stationary",
    "kernel_along",
    "kernel_matrices",
    "kernel_roots",
    "kernel_values",
    "product_factors",
    "row_priors",
]


def kernel_roots(
    kernel: Kernel, grid: Grid, like: Tensor, outputs: int
) -> tuple[list[Root], list[list[Tensor]]]:
    """Per output a root of K without gradient, and the tensors (with gradient) it is made from.

    Args:
        kernel: A stationary kernel, with or without one batch dimension of the outputs.
        grid: The nodes.
        like: A tensor of the wanted dtype and device.
        outputs: Number of outputs.
    """
    if grid.dim == 1 or is_product(kernel):
        sources = product_factors(kernel, grid, like, outputs)
        made = [ProductRoot(a.detach(), [K.detach() for K in Ks]) for a, *Ks in sources]
        return list(made), sources
    matrices = kernel_matrices(kernel, grid, like, outputs)
    band = 4 * (grid.m // grid.sizes[0])
    return [dense_root(K.detach(), band) for K in matrices], [[K] for K in matrices]


def row_priors(kernel: Kernel, grid: Grid, X: Tensor, outputs: int) -> list[RowPrior]:
    """Per output the prior as the rows of points ``n x d`` see it, differentiable.

    With the jitter that roots have, so that both give the same evidence.
    """
    if grid.dim == 1 or is_product(kernel):
        Z = grid.place(X)
        rows = [
            grid.axis(k).interpolate(Z[:, k : k + 1]).dense(size)
            for k, size in enumerate(grid.sizes)
        ]
        factors = product_factors(kernel, grid, X, outputs)
        return [ProductPrior(a, [jittered(flushed(K)) for K in Ks], rows) for a, *Ks in factors]
    values, whole = kernel_values(kernel, grid, X, outputs), grid.interpolate(X)
    diagonal = torch.zeros_like(values[0])
    diagonal[len(diagonal) // 2] = JITTER
    return [DensePrior(v * (1.0 + diagonal), grid, whole) for v in values]


def kernel_matrices(kernel: Kernel, grid: Grid, like: Tensor, outputs: int) -> list[Tensor]:
    """Per output the ``m x m`` kernel matrix, differentiable: one kernel value per difference."""
    return [grid.spread(row) for row in kernel_values(kernel, grid, like, outputs)]


def kernel_values(kernel: Kernel, grid: Grid, like: Tensor, outputs: int) -> Tensor:
    """Per output the kernel at `Grid.differences`, ``o x prod(2 g_k - 1)``, differentiable."""
    values = _values(kernel, grid.differences(like), outputs)
    return torch.where(values.abs() < TINY * values.amax(), 0.0, values)


def kernel_along(kernel: Kernel, input_: int, t: Tensor, dim: int, outputs: int) -> Tensor:
    """The kernel at distances ``t`` along one of ``dim`` inputs, ``o x len(t)``."""
    Z = t.new_zeros(len(t), dim)
    Z[:, input_] = t
    return _values(kernel, Z, outputs)


def is_stationary(kernel: Kernel) -> bool:
    """Whether the kernel depends on differences of points only; sums with constants do."""
    if isinstance(kernel, ScaleKernel):
        return is_stationary(kernel.base_kernel)
    if isinstance(kernel, ProductKernel | AdditiveKernel):
        return all(is_stationary(k) for k in kernel.kernels)
    return isinstance(kernel, ConstantKernel) or bool(kernel.is_stationary)


def is_product(kernel: Kernel) -> bool:
    """Whether the kernel is a product of one-dimensional kernels."""
    if isinstance(kernel, ScaleKernel):
        return is_product(kernel.base_kernel)
    if isinstance(kernel, ProductKernel):
        return all(is_product(k) for k in kernel.kernels)
    if kernel.active_dims is not None and len(kernel.active_dims) == 1:
        return not isinstance(kernel, AdditiveKernel)
    return type(kernel) in (RBFKernel, PeriodicKernel)


def product_factors(kernel: Kernel, grid: Grid, like: Tensor, outputs: int) -> list[list[Tensor]]:
    """Per output the amplitude of a product kernel and its factors, of unit diagonal."""
    axes = grid.axes(like)
    factors = []
    for row in _values(kernel, torch.cat(axes), outputs):
        parts = row.split([len(axis) for axis in axes])
        factors.append([row[0], *(_toeplitz(part / part[0]) for part in parts)])
    return factors


def _values(kernel: Kernel, Z: Tensor, outputs: int) -> Tensor:
    """Kernel of the origin against ``k`` points, ``o x k``."""
    origin = Z.new_zeros(1, Z.shape[-1])
    return kernel(origin, Z).to_dense().reshape(-1, len(Z)).expand(outputs, -1)


def _toeplitz(row: Tensor) -> Tensor:
    """Symmetric Toeplitz matrix of its first row."""
    i = torch.arange(len(row), device=row.device)
    return row[(i.unsqueeze(0) - i.unsqueeze(1)).abs()]
