"""A stationary kernel on the nodes of a grid [MATHS 2.3, 2.4].

A product kernel is evaluated along each axis, any other kernel at the distinct differences of
nodes. Negligible values are set to zero, because their products would be subnormal numbers, which
are slow.
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
from torch.quasirandom import SobolEngine

from bo_stream.mathematics.grid.data_space import DataSpacePrior, DensePrior, ProductPrior
from bo_stream.mathematics.grid.nodes import Grid
from bo_stream.mathematics.grid.roots import JITTER, TINY, flushed

__all__ = [
    "data_space_priors",
    "is_kronecker",
    "is_product",
    "is_stationary",
    "kernel_along",
    "kernel_matrices",
    "kernel_values",
    "product_factors",
]

POINTS, MOVE, SAME = 16, 0.43, 1e-3
"""Points that move, by what share of a grid, and by what share covariances may then change."""


def data_space_priors(kernel: Kernel, grid: Grid, X: Tensor, outputs: int) -> list[DataSpacePrior]:
    """The prior covariance at points ``n x d`` for each output, differentiable.

    A kernel that is not a product gets the jitter of `dense_root`, so that both routes agree.
    """
    if is_kronecker(kernel, grid):
        axes = grid.axes_at(grid.place(X), slopes=False).squeeze(-2)
        rows = [axis[:, :size] for axis, size in zip(axes, grid.sizes, strict=True)]
        factors = product_factors(kernel, grid, X, outputs)
        return [ProductPrior(a, [flushed(K) for K in Ks], rows) for a, *Ks in factors]
    values, whole = kernel_values(kernel, grid, X, outputs), grid.interpolate(X)
    diagonal = torch.zeros_like(values[0])
    diagonal[len(diagonal) // 2] = JITTER
    return [DensePrior(v * (1.0 + diagonal), grid, whole) for v in values]


def kernel_matrices(kernel: Kernel, grid: Grid, like: Tensor, outputs: int) -> list[Tensor]:
    """The ``m x m`` kernel matrix of each output, differentiable."""
    return [grid.spread(row) for row in kernel_values(kernel, grid, like, outputs)]


def kernel_values(kernel: Kernel, grid: Grid, like: Tensor, outputs: int) -> Tensor:
    """The kernel at `Grid.differences`, ``o x prod(2 g_k - 1)``, differentiable."""
    values = _values(kernel, grid.differences(like), outputs)
    return torch.where(values.abs() < TINY * values.amax(), 0.0, values)


def kernel_along(kernel: Kernel, input_: int, t: Tensor, dim: int, outputs: int) -> Tensor:
    """The kernel at distances ``t`` along one of ``dim`` inputs, ``o x len(t)``."""
    Z = t.new_zeros(len(t), dim)
    Z[:, input_] = t
    return _values(kernel, Z, outputs)


def is_stationary(kernel: Kernel, grid: Grid, like: Tensor) -> bool:
    """Whether the kernel depends on differences of points only.

    It must be declared so, and covariances must stay the same, to a thousandth, if points move
    together inside the grid. (gpytorch declares every kernel with a lengthscale stationary.)
    """
    return _declared_stationary(kernel) and _moves(kernel, grid, like)


def _declared_stationary(kernel: Kernel) -> bool:
    if isinstance(kernel, ScaleKernel):
        return _declared_stationary(kernel.base_kernel)
    if isinstance(kernel, ProductKernel | AdditiveKernel):
        return all(_declared_stationary(k) for k in kernel.kernels)
    return isinstance(kernel, ConstantKernel) or bool(kernel.is_stationary)


@torch.no_grad()
def _moves(kernel: Kernel, grid: Grid, like: Tensor) -> bool:
    """Whether covariances stay the same if the points move along any input by `MOVE` widths.

    The points lie in one half of the grid, at distances from a half of its width to a thousandth.
    """
    d, widths, first = grid.dim, grid.widths(like), like.new_tensor(grid.origin)
    size = 10.0 ** -torch.arange(POINTS).remainder(4).to(like)
    unit = 0.5 * size.unsqueeze(-1) * SobolEngine(d).draw(POINTS, dtype=like.dtype).to(like)
    X = first + widths * unit
    kept = kernel(X).to_dense()
    moved = (kernel(X + MOVE * move).to_dense() for move in torch.diag(widths))
    most = SAME * kept.abs().amax()
    return all(bool(((values - kept).abs() <= most).all()) for values in moved)


def is_product(kernel: Kernel) -> bool:
    """Whether the kernel is a product of one-dimensional kernels."""
    if isinstance(kernel, ScaleKernel):
        return is_product(kernel.base_kernel)
    if isinstance(kernel, ProductKernel):
        return all(is_product(k) for k in kernel.kernels)
    if kernel.active_dims is not None and len(kernel.active_dims) == 1:
        return not isinstance(kernel, AdditiveKernel)
    return type(kernel) in (RBFKernel, PeriodicKernel)


def is_kronecker(kernel: Kernel, grid: Grid) -> bool:
    """Whether the kernel matrix of the nodes is a Kronecker product over dimensions."""
    return grid.dim == 1 or is_product(kernel)


def product_factors(kernel: Kernel, grid: Grid, like: Tensor, outputs: int) -> list[list[Tensor]]:
    """The amplitude of a product kernel and its unit-diagonal factors, for each output."""
    axes = grid.axes(like)
    factors = []
    for row in _values(kernel, torch.cat(axes), outputs):
        parts = row.split([len(axis) for axis in axes])
        factors.append([row[0], *(_toeplitz(part / part[0]) for part in parts)])
    return factors


def _values(kernel: Kernel, Z: Tensor, outputs: int) -> Tensor:
    """Kernel between the origin and ``k`` points, ``o x k``."""
    origin = Z.new_zeros(1, Z.shape[-1])
    return kernel(origin, Z).to_dense().reshape(-1, len(Z)).expand(outputs, -1)


def _toeplitz(row: Tensor) -> Tensor:
    """Symmetric Toeplitz matrix of its first row."""
    i = torch.arange(len(row), device=row.device)
    return row[(i.unsqueeze(0) - i.unsqueeze(1)).abs()]
