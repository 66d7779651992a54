"""The state of a Gaussian process on a grid: statistics over its nodes, and the first points."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self, cast

from torch import Tensor

from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.grid.bands import REACH, BandRows, pair_count
from bo_stream.mathematics.grid.nodes import Grid
from bo_stream.mathematics.shapes import nested, shaped
from bo_stream.mathematics.sufficient_statistics.initial_buffer import BufferedStatistics
from bo_stream.mathematics.sufficient_statistics.state import Rows

__all__ = ["BandState", "GridState", "grid_state", "state_kind"]

DENSE_NODES = 4096
"""Nodes up to which A is a matrix."""
MOST_DENSE_NODES = 10_000
"""Nodes up to which A may be a matrix if it cannot be stored by pairs of nodes."""
MOST_A_SIDE = 1000
"""Nodes of one dimension up to which A can be stored by pairs of nodes."""


@dataclass(frozen=True)
class GridState(BufferedStatistics):
    """Statistics over the nodes of a grid, and the first points.

    Attributes:
        grid: The nodes.
        by_pairs: Whether the kernel is a product over inputs: then a large A is stored by pairs.
    """

    grid: Grid = nested()
    by_pairs: bool = nested()

    @property
    def features(self) -> Grid:
        """The nodes."""
        return self.grid

    def over(self, features: Grid) -> Self:
        """A state on another grid, before any data."""
        outputs, noises = len(self.b), len(self.A)
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        kind = state_kind(features, self.by_pairs)
        parts["A"] = self.A.new_zeros(noises, *kind.entries(features.m, grid=features))
        parts["b"] = self.b.new_zeros(outputs, features.m)
        return cast(Self, kind(**{**parts, "grid": features}))

    def rows_at(self, X: Tensor) -> Rows:
        """Interpolation rows at points ``n x d``."""
        return self.grid.interpolate(X)

    def _unlike(self) -> tuple[str, str, str]:
        return (
            "two streams on the same grid",
            "grids of different nodes, and points no longer held",
            "Build both with the same `grid_size`.",
        )


@dataclass(frozen=True)
class BandState(GridState):
    """The state of a large grid, its A stored by pairs of nodes: ``4^d m`` numbers.

    Attributes:
        A: ``W'R^-1 W``, ``prod(4 n_k)`` entries.
    """

    A: Tensor = shaped("s t")

    @classmethod
    def entries(cls, m: int, **features: Any) -> tuple[int, ...]:
        """Shape of A."""
        return (pair_count(features["grid"].sizes),)

    def rows_at(self, X: Tensor) -> BandRows:
        """Interpolation rows at points ``n x d``, whose products are added by pairs of nodes."""
        return BandRows(self.grid.interpolate(X), self.grid.sizes)

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


def grid_state(grid: Grid, outputs: int, shared: bool, opening: int, by_pairs: bool) -> GridState:
    """The state before any data, of the kind given by `state_kind`.

    Args:
        grid: The nodes.
        outputs: Number of outputs.
        shared: Whether they share noise variances.
        opening: Number of initial points to buffer.
        by_pairs: Whether the kernel is a product over inputs.

    Raises:
        UnsupportedError: as `state_kind`.
    """
    kind = state_kind(grid, by_pairs)
    return kind.empty(grid.m, grid.inputs, outputs, shared, opening, grid=grid, by_pairs=by_pairs)


def state_kind(grid: Grid, by_pairs: bool) -> type[GridState]:
    """`BandState` for a product kernel on many nodes, else `GridState`.

    Raises:
        UnsupportedError: for many nodes and a kernel that is not a product.
    """
    many = grid.m > DENSE_NODES
    if many and by_pairs and max(grid.sizes) <= MOST_A_SIDE:
        return BandState
    if grid.m <= MOST_DENSE_NODES or not many:
        return GridState
    raise UnsupportedError(
        f"at most {MOST_DENSE_NODES} nodes, or a product of one-dimensional kernels on at most "
        f"{MOST_A_SIDE} nodes a side",
        f"{' x '.join(map(str, grid.sizes))} nodes, whose state would take "
        f"{8 * grid.m**2 / 2**30:.1f} GiB",
        "Take an RBF kernel, or a ProductKernel of Matern kernels with one active dimension each, "
        "or fewer nodes.",
    )
