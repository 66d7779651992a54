"""A stationary kernel on the nodes of a grid, and interpolated from them [MATHS 2.3, 2.4].

A product kernel is evaluated along each axis, any other kernel at the distinct differences of
nodes. Negligible values are set to zero, because their products would be subnormal numbers, which
are slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    Kernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from linear_operator import to_linear_operator
from torch import Size, Tensor
from torch.quasirandom import SobolEngine

from bo_stream.mathematics.grid import REACH, Grid, Interpolation
from bo_stream.mathematics.moments import sloped_product

__all__ = [
    "InterpolatedKernel",
    "TabulatedKernel",
    "covariance_with_nodes",
    "flushed",
    "interpolated",
    "is_product",
    "is_stationary",
    "kernel_along",
    "kron_left",
    "node_covariance",
    "prior_covariance",
    "product_factors",
    "tabulated",
]

POINTS, MOVE, SAME = 16, 0.43, 1e-3
"""Points that move, by what share of a grid, and by what share covariances may then change."""
JITTER = 1e-9
"""Share of the prior variance added to the nodes' covariance where it has no product form."""
TINY = 1e-50
"""Relative size below which kernel values are set to zero."""


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


def is_product(kernel: Kernel, dim: int) -> bool:
    """Whether the kernel of ``dim`` inputs is a product of one-dimensional kernels."""
    if dim == 1:
        return True
    if isinstance(kernel, ScaleKernel):
        return is_product(kernel.base_kernel, dim)
    if isinstance(kernel, ProductKernel):
        return all(is_product(k, dim) for k in kernel.kernels)
    if kernel.active_dims is not None and len(kernel.active_dims) == 1:
        return not isinstance(kernel, AdditiveKernel)
    return type(kernel) in (RBFKernel, PeriodicKernel)


def kernel_along(kernel: Kernel, input_: int, t: Tensor, dim: int, outputs: int) -> Tensor:
    """The kernel at distances ``t`` along one of ``dim`` inputs, ``o x len(t)``."""
    Z = t.new_zeros(len(t), dim)
    Z[:, input_] = t
    return _values(kernel, Z, outputs)


def product_factors(
    kernel: Kernel, grid: Grid, like: Tensor, outputs: int
) -> tuple[Tensor, list[Tensor]]:
    """The amplitudes of a product kernel, ``o``, and its unit-diagonal factors, ``o x g_k x g_k``
    for each dimension; differentiable.
    """
    axes, factors = grid.axes(like), []
    values = _values(kernel, torch.cat(axes), outputs)
    for row in values.split([len(axis) for axis in axes], -1):
        i = torch.arange(row.shape[-1], device=row.device)
        factors.append((row / row[:, :1])[:, (i.unsqueeze(-1) - i).abs()])
    return values[:, 0], factors


def node_covariance(kernel: Kernel, grid: Grid, like: Tensor, outputs: int) -> Tensor:
    """The kernel matrix of the nodes with a little jitter, ``o x m x m``, differentiable."""
    return grid.spread(tabulated(kernel, grid, like, outputs))


def tabulated(kernel: Kernel, grid: Grid, like: Tensor, outputs: int) -> Tensor:
    """The kernel at `Grid.differences`, ``o x prod(2 g_k - 1)``, with the jitter of
    `node_covariance`; differentiable.
    """
    values = flushed(_values(kernel, grid.differences(like), outputs))
    jitter = torch.zeros_like(values)
    jitter[:, values.shape[1] // 2] = JITTER  # no difference
    return values * (1.0 + jitter)


def covariance_with_nodes(table: Tensor, W: Interpolation) -> Tensor:
    """``W K`` for a `tabulated` kernel and n points, ``o x n x m``, differentiable in the table.

    Costs O(4 d n m): each point takes a window of the table, and is interpolated in it along one
    dimension after the other.
    """
    d, places = len(W.sizes), []
    for k, g in enumerate(W.sizes):
        place = g - REACH - W.start[:, k, None] + torch.arange(g + REACH - 1, device=table.device)
        places.append(_along(place, k, d))
    K = table.unflatten(-1, [2 * g - 1 for g in W.sizes])[(slice(None), *places)]
    for k, g in enumerate(W.sizes):
        weights = W.weights[:, k].reshape(-1, REACH, *[1] * d)
        K = sum(weights[:, REACH - 1 - a] * K.narrow(2 + k, a, g) for a in range(REACH))
    return K.flatten(2)


def _along(values: Tensor, k: int, d: int) -> Tensor:
    """The last dimension as number k of d dimensions, whose others have one element."""
    return values[(..., *(slice(None) if j == k else None for j in range(d)))]


def prior_covariance(kernel: Kernel, grid: Grid, X: Tensor, outputs: int) -> Tensor:
    """The prior covariance ``W K W'`` at points ``n x d``, ``o x n x n``, differentiable (once).

    Costs O(d n^2) and products of one dimension each for a product kernel, else O(4 d n m + 4^d
    n^2).
    """
    if is_product(kernel, grid.dim):
        amplitude, factors = product_factors(kernel, grid, X, outputs)
        axes = grid.axes_at(grid.place(X), slopes=False).squeeze(-2)
        rows = [a[:, :g] for a, g in zip(axes, grid.sizes, strict=True)]
        parts = [W @ flushed(K) @ W.mT for W, K in zip(rows, factors, strict=True)]
        return amplitude[:, None, None] * flushed(math.prod(parts[1:], start=parts[0]))
    W = grid.interpolate(X)
    return interpolated(covariance_with_nodes(tabulated(kernel, grid, X, outputs), W), W)


def interpolated(half: Tensor, W: Interpolation) -> Tensor:
    """``half W'`` for ``o x n x m`` half, differentiable in it."""
    number = torch.arange(len(W.start), device=half.device).unsqueeze(-1).expand(W.index.shape)
    place = torch.stack([number.flatten(), W.index.flatten()])
    size = len(W.start), half.shape[-1]
    sparse = torch.sparse_coo_tensor(place, W.weight.flatten(), size, check_invariants=False)
    return torch.stack([torch.sparse.mm(sparse, each.mT).mT for each in half])


def flushed(K: Tensor) -> Tensor:
    """Zero for what is smaller than `TINY` of the largest."""
    return torch.where(K.abs() < TINY * K.amax(), 0.0, K) if K.numel() else K


def kron_left(factors: Sequence[Tensor], M: Tensor) -> Tensor:
    """``(F_1 x .. x F_d) M`` for ``m x p`` M: O(m p sum n_k)."""
    p, before = M.shape[-1], 1
    for factor in factors:
        M = factor @ M.reshape(before, factor.shape[-1], -1)
        before *= factor.shape[-2]
    return M.reshape(-1, p)


class InterpolatedKernel(Kernel):
    """The prior covariance ``w_x' K w_z`` of a product kernel on a grid, for o outputs.

    Args:
        grid: The nodes.
        amplitude: ``o``.
        factors: ``o x g_k x g_k`` for each dimension.
    """

    amplitude: Tensor

    def __init__(self, grid: Grid, amplitude: Tensor, factors: Sequence[Tensor]) -> None:
        one = len(amplitude) == 1
        super().__init__(batch_shape=Size([] if one else [len(amplitude)]))
        self.grid = grid
        self.register_buffer("amplitude", amplitude.reshape((1, 1) if one else (-1, 1, 1)))
        for k, K in enumerate(factors):  # buffers, since gpytorch indexes those of a batch
            self.register_buffer(f"factor_{k}", flushed(K[0] if one else K))

    @property
    def factors(self) -> list[Tensor]:
        """One factor for each dimension."""
        return [self.get_buffer(f"factor_{k}") for k in range(self.grid.dim)]

    def sloped(self, axes: Tensor, others: Tensor) -> Tensor:
        """Values of one output with their derivatives in the first points, or without.

        Args:
            axes: Rows of the points in each dimension, from `Grid.axes_at`.
            others: Rows of p others, ``d x (batch x) p x max(g_k)``.

        Returns:
            ``batch x q x (1 + d | 1) x p``.
        """
        parts = []
        for a, K, b in zip(axes, self.factors, others, strict=True):
            K = K.reshape(K.shape[-2:])
            half = K @ b[..., : len(K)].mT
            parts.append(a[..., : len(K)] @ (half if half.ndim == 2 else half.unsqueeze(-3)))
        return sloped_product([self.amplitude.squeeze() * parts[0], *parts[1:]])

    def __call__(self, x1: Tensor, x2: Tensor | None = None, **params: Any) -> Any:
        """As gpytorch's, which costs more than the values at few points of two sets."""
        if x2 is None:
            return super().__call__(x1, **params)
        return to_linear_operator(self.forward(x1, x2, **params))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Values at points ``batch x (1 x) q x d``."""
        left = self.grid.axes_at(self.grid.place(x1), slopes=False).squeeze(-2)
        right = left
        if x1 is not x2:
            right = self.grid.axes_at(self.grid.place(x2), slopes=False).squeeze(-2)
        parts = []
        for a, K, b in zip(left, self.factors, right, strict=True):
            half, b = a[..., : K.shape[-1]] @ K, b[..., : K.shape[-1]]
            parts.append((half * b).sum(-1) if diag else half @ b.mT)
        amplitude = self.amplitude.squeeze(-1) if diag else self.amplitude
        return amplitude * math.prod(parts[1:], start=parts[0])


class TabulatedKernel(Kernel):
    """The prior covariance ``w_x' K w_z`` of a stationary kernel on a grid, for o outputs.

    Args:
        grid: The nodes.
        table: The `tabulated` kernel, ``o x prod(2 g_k - 1)``.
    """

    table: Tensor

    def __init__(self, grid: Grid, table: Tensor) -> None:
        one = len(table) == 1
        super().__init__(batch_shape=Size([] if one else [len(table)]))
        self.grid = grid
        self.register_buffer("table", table[0] if one else table)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Values at points ``batch x (1 x) q x d``: O(7^d) each.

        In each dimension two points have seven differences of their nodes.
        """
        (start, left), (other, right) = (self._cubics(x) for x in (x1, x2))
        if not diag:
            start, left = start.unsqueeze(-2), left.unsqueeze(-3)
            other, right = other.unsqueeze(-3), right.unsqueeze(-4)
        reach, d = REACH - 1, self.grid.dim
        weights = (F.pad(left, (reach, reach)).unfold(-1, REACH, 1) * right.unsqueeze(-2)).sum(-1)
        near, places = torch.arange(-reach, REACH, device=start.device), []
        for k, g in enumerate(self.grid.sizes):
            places.append(_along((start - other)[..., k, None] + (g - 1) + near, k, d))
        if self.batch_shape:
            output = torch.arange(len(self.table), device=start.device)
            places.insert(0, output.reshape(-1, *[1] * (d + 2 - diag)))
        values = self.table.unflatten(-1, [2 * g - 1 for g in self.grid.sizes])[tuple(places)]
        for k in reversed(range(d)):
            values = (values * _along(weights[..., k, :], k, k + 1)).sum(-1)
        return values

    def _cubics(self, X: Tensor) -> tuple[Tensor, Tensor]:
        start, weights = self.grid.cubics(self.grid.place(X), slopes=False)
        return start, weights.squeeze(-2)

    def __call__(self, x1: Tensor, x2: Tensor | None = None, **params: Any) -> Any:
        """As `InterpolatedKernel`'s."""
        if x2 is None:
            return super().__call__(x1, **params)
        return to_linear_operator(self.forward(x1, x2, **params))


def _values(kernel: Kernel, Z: Tensor, outputs: int) -> Tensor:
    """Kernel between the origin and ``k`` points, ``o x k``."""
    origin = Z.new_zeros(1, Z.shape[-1])
    return kernel(origin, Z).to_dense().reshape(-1, len(Z)).expand(outputs, -1)
