"""A regular grid: cubic interpolation from its nodes, and sums over them [WISKI, MATHS 2.1].

Nodes are numbered row by row, the last dimension fastest. A grid made from bounds is folded: its
first and last nodes are the bounds, and points may lie anywhere between them. On a grid given node
by node, points must lie between the second and the last but one node of each dimension.

In the first and the last cell of a folded grid one of Keys' four nodes lies beyond the end. The
value of this ghost node is extrapolated, ``u_-1 = 3 u_0 - 3 u_1 + u_2``, so that its weight goes to
the three nearest nodes.

A row of W is a product over dimensions, ``w_i = prod_k w_k[i_k]``, and in each dimension it touches
four neighbouring nodes. So an entry of ``A = W'R^-1 W`` depends, in each dimension, on an unordered
pair of nodes at most three apart. A dimension of ``n_k`` nodes has ``4 n_k`` such pairs, so A has
``4^d m`` distinct numbers. The pair of nodes i and ``i + s`` has the number ``4 i + s``; pairs off
the grid stay zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from typing import ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bo_stream.errors import BoundsError, InputError, ShapeError, UnsupportedError
from bo_stream.mathematics.autograd import lasting, lasting_property, twice
from bo_stream.mathematics.exact import Array
from bo_stream.mathematics.expanded import (
    CubicTable,
    Functions,
    ProductFunctions,
)
from bo_stream.mathematics.shapes import nested, shaped
from bo_stream.mathematics.sums import BufferedStatistics

__all__ = [
    "DEFAULT_SIZES",
    "REACH",
    "Grid",
    "GridState",
    "Interpolation",
    "ProductFeatures",
    "at_points",
    "column_pairs",
    "interpolated",
    "matrix_of",
    "outer",
    "pair_count",
]

DEFAULT_SIZES = {1: 100, 2: 30, 3: 10}
"""Nodes of each dimension by default, by the number of dimensions."""
REACH = 4
"""Nodes that a point is interpolated from in each dimension: the fewest of a grid."""
ROOM = {True: 1.0, False: 1e-9}
"""Cells by which a point may lie beyond the end of a grid, folded or not. (Surrogates check their
bounds more closely, in raw units.)"""
CUBICS = torch.tensor(
    [
        [[0.0, 0.5, -1.5, 1.0], [0.0, -1.0, 2.0, 0.0], [0.0, 0.5, -0.5, 0.0], [0.0] * 4],
        [[-0.5, 1.0, -0.5, 0.0], [1.5, -2.5, 0.0, 1.0], [-1.5, 2.0, 0.5, 0.0], [0.5, -0.5, 0, 0]],
        [[0.0] * 4, [0.0, 0.5, -0.5, 0.0], [0.0, -1.0, 0.0, 1.0], [0.0, 0.5, 0.5, 0.0]],
    ],
    dtype=torch.float64,
)
"""Coefficients of ``s^3, s^2, s, 1`` of the four weights: in a cell at the low end of a folded
grid, in an inner cell and in one at the high end."""
LEFT, RIGHT = torch.triu_indices(REACH, REACH)
PAIRS = tuple((REACH * LEFT + RIGHT - LEFT).tolist())
"""The pairs of four neighbouring nodes, and their numbers from that of the first node."""
AT_ONCE = 2**18
"""Products computed at a time when outer products are summed."""


@dataclass(frozen=True)
class Grid:
    """Regular nodes per dimension.

    Attributes:
        origin: First node of each dimension.
        step: Spacing of each dimension.
        sizes: Number of nodes of each dimension.
        folded: Whether points may also lie in the outermost cells.
    """

    origin: tuple[float, ...]
    step: tuple[float, ...]
    sizes: tuple[int, ...]
    folded: bool = False

    @classmethod
    def covering(cls, bounds: Tensor, sizes: int | Sequence[int] | None = None) -> Grid:
        """The folded grid from bound to bound (``2 x d``, transformed space)."""
        d = bounds.shape[1]
        wanted = DEFAULT_SIZES.get(d, 10) if sizes is None else sizes
        counts = list(wanted) if isinstance(wanted, Sequence) else [wanted] * d
        if len(counts) != d or not all(isinstance(g, int) and g >= REACH for g in counts):
            raise InputError(
                f"{d} grid sizes of at least {REACH} nodes",
                f"{wanted!r}",
                "Give one integer, or one per dimension.",
            )
        _check_dim(counts)
        low, high = bounds.tolist()
        steps = [(b - a) / (g - 1) for a, b, g in zip(low, high, counts, strict=True)]
        return cls(tuple(low), tuple(steps), tuple(counts), folded=True)

    @classmethod
    def from_nodes(cls, nodes: Sequence[Tensor], dim: int) -> Grid:
        """A grid from one regular 1-D tensor per dimension, two nodes beyond all points."""
        _check_dim([len(g) for g in nodes])
        if len(nodes) != dim or any(g.ndim != 1 or len(g) < REACH for g in nodes):
            raise ShapeError(
                f"{dim} one-dimensional tensors of at least {REACH} nodes",
                f"{[tuple(g.shape) for g in nodes]}",
                "Give one tensor per input dimension, in transformed space.",
            )
        for g in nodes:
            gaps = g.double().diff()
            even = torch.allclose(gaps, gaps.mean(), rtol=1e-4, atol=0.0)
            if bool((gaps <= 0).any()) or not even:
                raise InputError(
                    "increasing, evenly spaced nodes", f"{g.tolist()}", "Use linspace."
                )
        first = [float(g[0]) for g in nodes]
        step = [(float(g[-1]) - float(g[0])) / (len(g) - 1) for g in nodes]
        return cls(tuple(first), tuple(step), tuple(len(g) for g in nodes))

    @cached_property
    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def m(self) -> int:
        """Number of nodes."""
        return math.prod(self.sizes)

    def widths(self, like: Tensor) -> Tensor:
        """Distances from the first to the last nodes, ``d``."""
        return like.new_tensor(self.step) * (like.new_tensor(self.sizes) - 1.0)

    def same_as(self, other: Grid) -> bool:
        """Whether both grids interpolate alike."""
        return self == other

    def place(self, X: Tensor) -> Tensor:
        """Coordinates of points on the grid, ``batch x q x d``."""
        return X

    def interpolate(self, X: Tensor) -> Interpolation:
        """Interpolation rows at points ``batch x q x d``, by Keys' cubics (a = -1/2) in each
        dimension; differentiable in X.

        Raises:
            BoundsError: for points outside the grid, or in the outermost cells of one that is not
                folded.
        """
        places = self.place(X)
        origin, step, low, high, last = self._frame.to(places).unbind()
        t = (places - origin) / step
        cell = t.detach().clamp(low, high).floor_()
        s = t - cell
        least, most = s.detach().aminmax() if s.numel() else (0.0, 1.0)
        if not max(-float(least), float(most) - 1.0) <= ROOM[self.folded]:  # nor NaN
            raise BoundsError(
                "points inside the grid"
                + ("" if self.folded else ", at least one cell from its edge"),
                f"some outside (nodes from {self.origin}, steps {self.step}, sizes {self.sizes})",
                "Build the surrogate with `bounds` or a `grid` that covers them.",
            )
        s2 = s * s
        powers = torch.stack([s2 * s, s2, s, torch.ones_like(s)], -1)
        start = torch.minimum((cell - 1.0).clamp_min_(0.0), last)
        table = CUBICS.to(powers)[(cell - start).long()]
        weights = (table @ powers.unsqueeze(-1)).squeeze(-1)
        return Interpolation(self.sizes, start.long(), weights)

    def axes_at(self, X: Tensor) -> Tensor:
        """As `interpolate`, with zeros for all other nodes: ``batch x q x sum(g_k)``."""
        near = self.interpolate(X)
        before = torch.tensor([sum(self.sizes[:k]) for k in range(self.dim)])
        index = (near.along + before.to(near.start).unsqueeze(-1)).flatten(-2)
        rows = near.weights.new_zeros(*index.shape[:-1], sum(self.sizes))
        return rows.scatter(-1, index, near.weights.flatten(-2))

    def table(self, k: int, values: Array) -> CubicTable:
        """Functions interpolated along an axis, from their values at its nodes, ``g_k x P``."""
        size = self.sizes[k]
        first = np.clip(np.arange(size - 1) - 1, 0, size - REACH)
        near = values[first[:, None] + np.arange(REACH)]
        cubics = CUBICS.numpy()[np.arange(len(first)) - first]
        edge = 0 if self.folded else 1
        about = self.origin[k], self.step[k], edge, size - 2 - edge
        return CubicTable(*about, cubics.transpose(0, 2, 1) @ near)

    def placed(self, functions: Functions) -> Functions | None:
        """Functions of places, as functions of the points; None if they have no closed form."""
        return functions

    @lasting_property
    def _frame(self) -> Tensor:
        """First nodes, steps, the numbers of the first and of the last cell, and the last index of
        the first of four nodes: ``5 x d``.
        """
        edge = 0.0 if self.folded else 1.0
        low, high = [edge] * self.dim, [g - 2.0 - edge for g in self.sizes]
        last = [float(g - REACH) for g in self.sizes]
        return torch.tensor([self.origin, self.step, low, high, last], dtype=torch.float64)

    def axes(self, like: Tensor) -> list[Tensor]:
        """Points ``n_k x d`` along each dimension, starting at zero."""
        steps = torch.diag(like.new_tensor(self.step))
        pairs = zip(self.sizes, steps, strict=True)
        return [torch.arange(size).to(like).unsqueeze(-1) * step for size, step in pairs]

    def differences(self, like: Tensor) -> Tensor:
        """All distinct differences of nodes, ``prod(2 g_k - 1) x d``, in the order of the nodes."""
        ranges = [
            h * torch.arange(1 - g, g, dtype=like.dtype, device=like.device)
            for h, g in zip(self.step, self.sizes, strict=True)
        ]
        return torch.cartesian_prod(*ranges).reshape(-1, self.dim)

    def spread(self, values: Tensor) -> Tensor:
        """A stationary kernel's matrix ``o x m x m`` from its values at `differences`: O(m^2)."""
        windows = values.unflatten(-1, [2 * g - 1 for g in self.sizes])
        for k, g in enumerate(self.sizes):  # entries i + j of the values, for j counted backwards
            windows = windows.unfold(1 + k, g, 1)
        others = [-1 - k for k in range(self.dim)]
        return windows.flip(others).reshape(len(values), self.m, self.m)


@dataclass(frozen=True)
class Interpolation:
    """Sparse interpolation rows W, each a product over dimensions.

    Attributes:
        sizes: Number of nodes of each dimension.
        start: Index of the first of four neighbouring nodes in each dimension, ``batch x q x d``.
        weights: Their weights, ``batch x q x d x 4``.
    """

    sizes: tuple[int, ...]
    start: Tensor
    weights: Tensor

    @property
    def along(self) -> Tensor:
        """Indices of the four nodes in each dimension, ``batch x q x d x 4``."""
        return self.start.unsqueeze(-1) + torch.arange(REACH, device=self.start.device)

    @cached_property
    def index(self) -> Tensor:
        """Numbers of the nodes, ``batch x q x 4^d``."""
        return numbered(self.start, self.sizes, tuple(range(REACH)))

    @property
    def weight(self) -> Tensor:
        """Their weights, ``batch x q x 4^d``, differentiable."""
        return outer(self.weights)

    def transpose_times(self, values: Tensor, m: int) -> Tensor:
        """``W' values`` for ``o x q`` values, unbatched: ``o x m``."""
        weighted = (self.weight * values.unsqueeze(-1)).flatten(-2)
        return values.new_zeros(len(values), m).index_add_(1, self.index.flatten(), weighted)

    def outer_sums(self, weights: Tensor) -> Tensor:
        """``W' diag(weights) W`` by pairs of nodes.

        Costs O(q 10^d) for q points, unbatched.
        """
        A, counts = weights.new_zeros(pair_count(self.sizes)), tuple(REACH * n for n in self.sizes)
        size = max(1, AT_ONCE // len(LEFT) ** len(counts))
        pieces = self.start.split(size), self.weights.split(size), weights.split(size)
        for start, rows, r in zip(*pieces, strict=True):
            value = outer(rows[..., LEFT] * rows[..., RIGHT]) * r.unsqueeze(-1)
            A.index_add_(0, numbered(REACH * start, counts, PAIRS).flatten(), value.flatten())
        return A


def numbered(first: Tensor, sizes: tuple[int, ...], near: tuple[int, ...]) -> Tensor:
    """Numbers of all combinations of indices near the first ones, ``... x d`` to ``... x k^d``.

    Args:
        first: The first index of each dimension.
        sizes: Numbers of indices of each dimension.
        near: Distances of k indices from the first, in every dimension.
    """
    strides, distances = (numbers.to(first.device) for numbers in _distances(sizes, near))
    return (first * strides).sum(-1, keepdim=True) + distances


@cache
@lasting
def _distances(sizes: tuple[int, ...], near: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Distances of numbers: along each dimension, and of `numbered` from the first."""
    strides = torch.tensor([math.prod(sizes[k:]) for k in range(1, len(sizes) + 1)])
    each = [stride * torch.tensor(near) for stride in strides]
    return strides, reduce(lambda a, b: (a.unsqueeze(-1) + b).flatten(), each)


def outer(weights: Tensor) -> Tensor:
    """Products over dimensions, ``... x d x k`` to ``... x k^d``."""
    return reduce(lambda a, b: (a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(-2), weights.unbind(-2))


def _check_dim(sizes: Sequence[int]) -> None:
    """Refuse grids of more than three dimensions, with the memory they would take."""
    d = len(sizes)
    if d > max(DEFAULT_SIZES):
        gib = 2 * 8 * math.prod(map(float, sizes)) ** 2 / 2**30
        raise UnsupportedError(
            "at most 3 input dimensions for a grid",
            f"{d}: {' x '.join(map(str, sizes))} nodes would take {gib:.3g} GiB of state",
            "Use NodeWISKI (or ExactGP, OnlineSGPR, CaGP), or project the inputs to 3 dimensions.",
        )


# -- functions on the nodes ----------------------------------------------------------------------


@dataclass(frozen=True)
class ProductFeatures:
    """Products over dimensions of functions of one each, interpolated from the nodes of a grid; a
    `FeatureMap`.

    Attributes:
        grid: The nodes.
        values: The functions at the nodes, ``d x max(n_k) x P``.
        columns: For each dimension, every feature's row of `tables`, ``d x f``.
    """

    grid: Grid
    values: Tensor
    columns: Tensor
    main: ClassVar[int] = 0

    def tables(self, X: Tensor) -> Tensor:
        """For each dimension the constant 1 and its functions, at points ``p x d``.

        Returns:
            ``d x (1 + P) x p``.
        """
        rows = self.grid.interpolate(X)
        axis = torch.arange(self.grid.dim, device=rows.start.device).unsqueeze(-1)
        near = (rows.weights.unsqueeze(-2) @ self.values[axis, rows.along]).squeeze(-2)
        return F.pad(near.permute(1, 2, 0), (0, 0, 1, 0), value=1.0)

    def functions(self) -> Functions | None:
        """As `FeatureMap`."""
        values = zip(self.values.numpy(), self.grid.sizes, strict=True)
        tables = [self.grid.table(k, V[:size]) for k, (V, size) in enumerate(values)]
        return self.grid.placed(ProductFunctions(tables, self.columns.numpy() - 1))

    def features(self, X: Tensor) -> Tensor:
        """As `FeatureMap`: O(4 d P) per point, and O(d) per feature."""
        tables = zip(self.tables(X.reshape(-1, X.shape[-1])), self.columns, strict=True)
        factors = (table.index_select(0, column) for table, column in tables)
        return reduce(torch.mul, factors).mT.unflatten(0, X.shape[:-1])


def interpolated(values: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Weighted sums of functions' values at some nodes of each point, differentiable twice.

    Args:
        values: ``m x f``.
        index: Numbers of the nodes, ``... x k``.
        weight: Their weights, likewise.

    Returns:
        ``... x f``.
    """
    flat = index.reshape(-1, index.shape[-1]).int()  # faster than long

    def summed(weight: Tensor) -> Tensor:
        own = weight.reshape(flat.shape)
        sums = F.embedding_bag(flat, values, per_sample_weights=own, mode="sum")
        return sums.view(*weight.shape[:-1], values.shape[-1])

    def plain(weight: Tensor) -> Tensor:
        return (weight.unsqueeze(-2) @ values[index]).squeeze(-2)

    return twice(summed, plain, weight) if weight.requires_grad else summed(weight)


def at_points(values: Tensor, W: Interpolation) -> Tensor:
    """``W F`` for the values F of functions at the nodes, ``o x m x f``: ``o x n x f`` at n points.

    O(4^d) per point and function.
    """
    return torch.stack([interpolated(own, W.index, W.weight) for own in values])


# -- sums over the nodes -------------------------------------------------------------------------


@dataclass(frozen=True)
class GridState(BufferedStatistics[Grid]):
    """Statistics over the nodes of a grid, and the first points.

    Attributes:
        A: ``W'R^-1 W`` by pairs of nodes: ``4^d m`` numbers.
        checked_at: Number of observations when a fit last checked how fine the grid is; infinite
            once it has warned.
        grid: The nodes.
    """

    A: Tensor = shaped("s t")
    checked_at: Tensor = shaped("", "extended")
    grid: Grid = nested()

    @classmethod
    def before_data(
        cls, grid: Grid, dim: int, outputs: int, shared: bool, opening: int
    ) -> GridState:
        """The state before any data.

        Args:
            grid: The nodes.
            dim: Number of inputs of the points.
            outputs: Number of outputs.
            shared: Whether they share noise variances.
            opening: Number of initial points to buffer.
        """
        sizes = (pair_count(grid.sizes),), grid.m, dim, outputs, shared, opening
        return cls.empty(*sizes, grid=grid, checked_at=torch.zeros((), dtype=torch.float64))

    @property
    def features(self) -> Grid:
        """The nodes."""
        return self.grid

    def over(self, features: Grid) -> Self:
        """The state on another grid, whose sums are to be replaced."""
        return replace(self, grid=features)

    def _summed(
        self, X: Tensor, n: int, weights: Tensor, weighted: Tensor
    ) -> tuple[Tensor, Tensor]:
        """O(q 10^d) for q points."""
        W = self.grid.interpolate(X)
        A = torch.stack([W.outer_sums(r) for r in weights])
        return A, W.transpose_times(weighted, self.grid.m)

    def totals(self) -> tuple[Tensor, Tensor, Tensor]:
        """``W'R^-1 1`` (``s x m``), ``1'R^-1 y`` (``o``) and ``1'R^-1 1`` (``s``): O(4^d m)."""
        sums = self.A
        for n in self.grid.sizes:  # sum over one node of the pairs of the first dimension
            pairs = sums.reshape(len(sums), n, REACH, -1)
            along = pairs.sum(2)
            for s in range(1, REACH):
                along[:, s:] += pairs[:, : n - s, s]
            sums = along.mT.flatten(1)
        return sums, self.b.sum(-1), sums.sum(-1)


def pair_count(sizes: Sequence[int]) -> int:
    """Number of pairs over a grid: the entries of A."""
    return math.prod(REACH * n for n in sizes)


def matrix_of(A: Tensor, sizes: Sequence[int]) -> Tensor:
    """The matrix that is stored by pairs, ``m x m``: O(m^2)."""
    whole = A.reshape(1, 1, -1)
    for n in sizes:  # nodes so far, nodes so far, pairs left
        pairs = whole.unflatten(-1, (n, REACH, -1))
        wide = pairs.new_zeros(*whole.shape[:2], n, n, pairs.shape[-1])
        for s in range(min(REACH, n)):
            for other in (s, -s):
                wide.diagonal(other, 2, 3).copy_(pairs[:, :, : n - s, s].mT)
        whole = wide.transpose(1, 2).flatten(2, 3).flatten(0, 1)
    return whole.squeeze(-1)


def column_pairs(V: Tensor) -> Tensor:
    """Products of columns i >= j of ``n x P`` V over pairs of nodes: ``P (P + 1) / 2 x 4 n``."""
    i, j = torch.tril_indices(V.shape[1], V.shape[1], device=V.device)
    parts = []
    for s in range(REACH):
        low, high = V[: len(V) - s], V[s:]
        product = low[:, i] * high[:, j]
        if s:
            product = product + low[:, j] * high[:, i]
        parts.append(F.pad(product, (0, 0, 0, s)))
    return torch.stack(parts, 1).flatten(0, 1).mT
