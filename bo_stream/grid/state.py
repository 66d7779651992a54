"""The state of a Gaussian process on a grid: sums over its nodes, and the first points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from bo_stream.grid.nodes import Grid
from bo_stream.shapes import nested
from bo_stream.sums.opening import OpeningSums
from bo_stream.sums.state import Rows

__all__ = ["GridState"]


@dataclass(frozen=True)
class GridState(OpeningSums):
    """Sums over the nodes of a grid and, while they are all of them, the points summed over.

    Attributes:
        grid: The nodes.
    """

    grid: Grid = nested()

    @classmethod
    def on(cls, grid: Grid, outputs: int, shared: bool, opening: int) -> Self:
        """Before any data."""
        return cls.empty(grid.m, grid.dim, outputs, shared, opening, grid=grid)

    @property
    def features(self) -> Grid:
        """The nodes."""
        return self.grid

    def over(self, features: Grid) -> Self:
        """A state on another grid, before any data."""
        A, b, m = self.A, self.b, features.m
        A = A.new_zeros(len(A), *self.entries(m, grid=features))
        b = b.new_zeros(len(b), m)
        return replace(self, A=A, b=b, grid=features)

    def rows_at(self, X: Tensor) -> Rows:
        """Interpolation rows at points ``n x d``."""
        return self.grid.interpolate(X)

    def _unlike(self) -> tuple[str, str, str]:
        return (
            "two streams on the same grid",
            "grids of different nodes, and points no longer at hand",
            "Build both with the same `grid_size`.",
        )
