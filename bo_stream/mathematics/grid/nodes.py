"""A regular grid: interpolation from its nodes, and differences of nodes [WISKI, MATHS 2.1].

Nodes are numbered row by row, the last dimension fastest. A grid made from bounds is folded: its
first and last nodes are the bounds, and points may lie anywhere between them. On a grid given node
by node, points must lie between the second and the last but one node of each dimension.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from bo_stream.errors import BoundsError, InputError, ShapeError, UnsupportedError
from bo_stream.mathematics.grid.weights import CUBICS, powers, sloped_products, weights
from bo_stream.mathematics.lasting import lasting_property
from bo_stream.mathematics.moments import sloped_product

__all__ = ["Grid", "Interpolation", "interpolated_product"]


DEFAULT_SIZES = {1: 100, 2: 30, 3: 10}
LEAST = 4
"""Fewest nodes a dimension: a point is interpolated from so many."""
ROOM = {True: 1.0, False: 1e-9}
"""Cells by which a point may lie beyond the end of a grid, folded or not. (Surrogates check their
bounds more closely, in raw units.)"""


@dataclass(frozen=True)
class Interpolation:
    """Sparse interpolation rows: ``index`` and ``weight``, ``batch x q x 4^d``."""

    index: Tensor
    weight: Tensor

    def dense(self, m: int) -> Tensor:
        """The rows as ``batch x q x m``."""
        rows = self.weight.new_zeros(*self.weight.shape[:-1], m)
        return rows.scatter_add(-1, self.index, self.weight)

    def transpose_times(self, values: Tensor, m: int) -> Tensor:
        """``W' values`` for ``o x q`` values, unbatched: ``o x m``."""
        weighted = (self.weight * values.unsqueeze(-1)).flatten(-2)
        return values.new_zeros(len(values), m).index_add_(1, self.index.flatten(), weighted)


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
        given = DEFAULT_SIZES.get(d, 10) if sizes is None else sizes
        listed = isinstance(given, Sequence) and not isinstance(given, str)
        counts = list(cast("Sequence[int]", given)) if listed else [cast(int, given)] * d
        if len(counts) != d or not all(isinstance(g, int) and g >= LEAST for g in counts):
            raise InputError(
                f"{d} grid sizes of at least {LEAST} nodes",
                f"{given!r}",
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
        if len(nodes) != dim or any(g.ndim != 1 or len(g) < LEAST for g in nodes):
            raise ShapeError(
                f"{dim} one-dimensional tensors of at least {LEAST} nodes",
                f"{[tuple(g.shape) for g in nodes]}",
                "Give one tensor per input dimension, in transformed space.",
            )
        for g in nodes:
            gaps = g.double().diff()
            if bool((gaps <= 0).any()) or not torch.allclose(
                gaps, gaps.mean(), rtol=1e-4, atol=0.0
            ):
                raise InputError(
                    "increasing, evenly spaced nodes", f"{g.tolist()}", "Use linspace."
                )
        first = [float(g[0]) for g in nodes]
        step = [(float(g[-1]) - float(g[0])) / (len(g) - 1) for g in nodes]
        return cls(tuple(first), tuple(step), tuple(len(g) for g in nodes))

    @property
    def dim(self) -> int:
        """Number of input dimensions."""
        return len(self.sizes)

    @property
    def inputs(self) -> int:
        """Number of inputs of the points that are interpolated at."""
        return self.dim

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

    def digest(self) -> str:
        """A hash that identifies the grid in saved states."""
        parts = (self.origin, self.step, self.sizes, *(["folded"] if self.folded else []))
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    @lasting_property
    def _frame(self) -> Tensor:
        """First nodes, steps, and the numbers of the first and of the last cell, ``4 x d``."""
        edge = 0.0 if self.folded else 1.0
        low, high = [edge] * self.dim, [g - 2.0 - edge for g in self.sizes]
        return torch.tensor([self.origin, self.step, low, high], dtype=torch.float64)

    @lasting_property
    def _counts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The smallest and largest number of the first of four neighbouring nodes, ``d`` each; the
        stride of each dimension, ``d``; and the offsets of the ``4^d`` nodes of a cell.
        """
        strides = torch.tensor([math.prod(self.sizes[k + 1 :]) for k in range(self.dim)])
        offsets = torch.zeros(1, dtype=torch.long)
        for stride in strides:
            offsets = (offsets.unsqueeze(-1) + stride * torch.arange(4)).flatten()
        last = torch.tensor(self.sizes) - 4
        return torch.zeros_like(last), last, strides, offsets

    def place(self, X: Tensor) -> Tensor:
        """Coordinates of points on the grid, ``batch x q x d``."""
        return X

    def interpolate(self, X: Tensor) -> Interpolation:
        """Keys' cubic weights (a = -1/2) at points ``batch x q x d``; differentiable in X.

        Raises:
            BoundsError: for points outside the grid, or in the outermost cells of one that is not
                folded.
        """
        s, cell = self._located(self.place(X))
        start, place = self._started(cell)
        return Interpolation(self._numbered(start), weights(s, place))

    def sloped(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes, and the weights with their derivatives, without an autograd graph.

        Args:
            places: Coordinates on the grid, ``batch x q x d``.

        Returns:
            ``batch x q x 4^d`` and ``batch x q x (1 + d) x 4^d``.
        """
        s, cell = self._located(places)
        start, place = self._started(cell)
        rows = sloped_products(s, place)
        rows[..., 1:, :] /= self._frame[1].to(rows).unsqueeze(-1)
        return self._numbered(start), rows

    def axes_at(self, places: Tensor, *, slopes: bool) -> Tensor:
        """Weights of all nodes of each dimension, padded to one size.

        Args:
            places: Coordinates on the grid, ``batch x q x d``.
            slopes: Whether to return derivatives, too.

        Returns:
            ``d x batch x q x 2 x max(g_k)``, values before derivatives, or ``.. x 1 x ..``.
        """
        orders, factors, first, table = (t.to(places.device) for t in self._cubics)
        s, cell = self._located(places)
        if not slopes:
            orders, factors = orders[:1], factors[:, :1]
        rising = powers(s)[..., orders] * factors
        return (rising @ table[cell.long() + first]).movedim(-3, 0)

    @lasting_property
    def _cubics(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What `axes_at` needs: indices in `powers` and factors, for values and derivatives; the
        first cell of each dimension in a table; and that table, the coefficients of all nodes'
        cubics in every cell, ``cells x 4 x max(g_k)``.
        """
        most = max(self.sizes)
        orders = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 3]])
        of_slopes = torch.tensor([3.0, 2.0, 1.0, 0.0]) / self._frame[1].unsqueeze(-1)
        factors = torch.stack([torch.ones_like(of_slopes), of_slopes], 1)
        table = factors.new_zeros(self.dim, most - 1, 4, most)
        for k, size in enumerate(self.sizes):
            cell = torch.arange(size - 1)
            start = (cell - 1).clamp(0, size - 4)
            node = start.unsqueeze(-1) + torch.arange(4)
            table[k, cell.unsqueeze(-1), :, node] = CUBICS[cell - start]
        first = (most - 1) * torch.arange(self.dim)
        return orders, factors, first, table.flatten(0, 1)

    def _numbered(self, start: Tensor) -> Tensor:
        """Numbers ``... x 4^d`` of the nodes whose first one has the indices ``... x d``."""
        strides, offsets = (t.to(start.device) for t in self._counts[2:])
        return (start * strides).sum(-1, keepdim=True) + offsets

    def _located(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Positions in cells, and the indices of these cells; both ``batch x q x d``.

        Raises:
            BoundsError: as `interpolate`.
        """
        origin, step, low, high = self._frame.to(places)
        t = (places - origin) / step
        cell = t.detach().clamp(low, high).floor_()
        s, room = t - cell, ROOM[self.folded]
        if s.numel():
            least, most = s.detach().aminmax()
            if not (float(least) >= -room and float(most) <= 1.0 + room):
                raise BoundsError(
                    "points inside the grid"
                    + ("" if self.folded else ", at least one cell from its edge"),
                    f"some outside (nodes from {self.origin}, steps {self.step}, "
                    f"sizes {self.sizes})",
                    "Build the surrogate with `bounds` or a `grid` that covers them.",
                )
        return s, cell

    def _started(self, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Index of the first of a cell's four nodes in each dimension, and the kind of the cell as
        in `weights`.
        """
        first, last = (t.to(cell.device) for t in self._counts[:2])
        number = cell.long()
        start = (number - 1).clamp(first, last)
        return start, number - start

    def axes(self, like: Tensor) -> list[Tensor]:
        """Points ``n_k x d`` along each dimension, starting at zero."""
        points = []
        for k, (h, size) in enumerate(zip(self.step, self.sizes, strict=True)):
            P = like.new_zeros(size, self.dim)
            P[:, k] = h * torch.arange(size, dtype=like.dtype, device=like.device)
            points.append(P)
        return points

    def differences(self, like: Tensor) -> Tensor:
        """All distinct differences of nodes, ``prod(2 g_k - 1) x d``, in the order of the nodes."""
        ranges = [
            h * torch.arange(1 - g, g, dtype=like.dtype, device=like.device)
            for h, g in zip(self.step, self.sizes, strict=True)
        ]
        return torch.cartesian_prod(*ranges).reshape(-1, self.dim)

    def spread(self, values: Tensor) -> Tensor:
        """A stationary kernel's matrix ``m x m`` from its values at `differences`; O(m^2)."""
        matrix: Tensor = _Spread.apply(values, self.sizes)
        return matrix

    def collect(self, M: Tensor) -> Tensor:
        """The adjoint of `spread`: entries of ``m x m`` M summed by difference of nodes; O(m^2)."""
        return _collect(M.unsqueeze(0), self.sizes).reshape(-1)


def interpolated_product(axes: Tensor, values: Tensor) -> Tensor:
    """Products over dimensions of functions given at the nodes, with derivatives.

    Args:
        axes: From `Grid.axes_at`.
        values: ``d x max(g_k) x f``.

    Returns:
        ``batch x q x (1 + d) x f``, or ``batch x q x 1 x f``.
    """
    along = (axes.flatten(1, -2) @ values).unflatten(1, axes.shape[1:-1])
    return sloped_product(along.unbind(0))


class _Spread(torch.autograd.Function):
    """`Grid.spread` by strided copies."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, sizes: tuple[int, ...]) -> Tensor:
        ctx.sizes = sizes
        return _spread(values.reshape(1, -1), sizes).squeeze(0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _collect(grad.unsqueeze(0), ctx.sizes).reshape(-1), None


def _spread(values: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """``B x prod(2 g_k - 1)`` values to ``B x m x m``: block Toeplitz, level by level."""
    batch = len(values)
    if not sizes:
        return values.reshape(batch, 1, 1)
    g, inner = sizes[0], _spread(values.reshape(batch * (2 * sizes[0] - 1), -1), sizes[1:])
    p = inner.shape[-1]
    blocks = inner.reshape(batch, 2 * g - 1, p, p).flip(1)
    M = values.new_empty(batch, g, p, g, p)
    for i in range(g):
        M[:, i] = blocks[:, g - 1 - i : 2 * g - 1 - i].transpose(1, 2)
    return M.reshape(batch, g * p, g * p)


def _collect(M: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """``B x m x m`` to ``B x prod(2 g_k - 1)``."""
    batch = len(M)
    if not sizes:
        return M.reshape(batch, 1)
    g, p = sizes[0], M.shape[-1] // sizes[0]
    blocks = M.new_zeros(batch, 2 * g - 1, p, p)
    view = M.reshape(batch, g, p, g, p)
    for i in range(g):
        blocks[:, g - 1 - i : 2 * g - 1 - i] += view[:, i].transpose(1, 2)
    return _collect(blocks.flip(1).reshape(-1, p, p), sizes[1:]).reshape(batch, -1)


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
