"""The state of a Gaussian process on a grid: statistics over its nodes, and the first points."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

from torch import Tensor

from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.grid.bands import REACH, BandRows, matrix_of, pair_count
from bo_stream.mathematics.grid.nodes import Grid
from bo_stream.mathematics.shapes import nested, shaped
from bo_stream.mathematics.sums import BufferedStatistics

__all__ = ["GridState", "check_size"]

MOST_NODES = 10_000
"""Nodes of a kernel that is no product over inputs, which needs A as a matrix."""
MOST_A_SIDE = 1000
"""Nodes of one dimension up to which a larger grid of a product kernel is possible."""


@dataclass(frozen=True)
class GridState(BufferedStatistics):
    """Statistics over the nodes of a grid, and the first points.

    Attributes:
        A: ``W'R^-1 W`` by pairs of nodes (`bo_stream.mathematics.grid.bands`): ``4^d m`` numbers.
        grid: The nodes.
        product: Whether the kernel is a product over inputs.
    """

    A: Tensor = shaped("s t")
    grid: Grid = nested()
    product: bool = nested()

    @classmethod
    def before_data(
        cls, grid: Grid, outputs: int, shared: bool, opening: int, product: bool
    ) -> GridState:
        """The state before any data.

        Args:
            grid: The nodes.
            outputs: Number of outputs.
            shared: Whether they share noise variances.
            opening: Number of initial points to buffer.
            product: Whether the kernel is a product over inputs.

        Raises:
            UnsupportedError: as `check_size`.
        """
        check_size(grid, product)
        sizes = grid.m, grid.inputs, outputs, shared, opening
        return cls.empty(*sizes, grid=grid, product=product)

    @classmethod
    def entries(cls, m: int, **features: Any) -> tuple[int, ...]:
        """Shape of A."""
        return (pair_count(features["grid"].sizes),)

    @property
    def features(self) -> Grid:
        """The nodes."""
        return self.grid

    def over(self, features: Grid) -> Self:
        """A state on another grid, before any data."""
        check_size(features, self.product)
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        parts["A"] = self.A.new_zeros(len(self.A), pair_count(features.sizes))
        parts["b"] = self.b.new_zeros(len(self.b), features.m)
        return type(self)(**{**parts, "grid": features})

    def rows_at(self, X: Tensor) -> BandRows:
        """Interpolation rows at points ``n x d``, whose products are added by pairs of nodes."""
        return BandRows(self.grid.interpolate(X), self.grid.sizes)

    def matrix(self, output: int) -> Tensor:
        """``W'R^-1 W`` of one output, ``m x m``."""
        return matrix_of(self.A[min(output, len(self.A) - 1)], self.grid.sizes)

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

    def _unlike(self) -> tuple[str, str, str]:
        return (
            "two streams on the same grid",
            "grids of different nodes, and points no longer held",
            "Build both with the same `grid_size`.",
        )


def check_size(grid: Grid, product: bool) -> None:
    """Refuse grids that are too large.

    Raises:
        UnsupportedError: for many nodes and a kernel that is not a product, or many nodes a side.
    """
    if grid.m <= MOST_NODES or (product and max(grid.sizes) <= MOST_A_SIDE):
        return
    raise UnsupportedError(
        f"at most {MOST_NODES} nodes, or a product of one-dimensional kernels on at most "
        f"{MOST_A_SIDE} nodes a side",
        f"{' x '.join(map(str, grid.sizes))} nodes, whose matrices would take "
        f"{8 * grid.m**2 / 2**30:.1f} GiB",
        "Take an RBF kernel, or a ProductKernel of Matern kernels with one active dimension each, "
        "or fewer nodes.",
    )
