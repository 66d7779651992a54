"""The state of a Gaussian process on a grid: the sums, and the first rows of W on a large grid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from bo_stream.grid.nodes import Grid, Interpolation
from bo_stream.shapes import shaped
from bo_stream.sums.state import Sums, Undo, noisier

__all__ = ["GridState"]

ROWS_FROM = 2000
"""Nodes from which a grid that has seen fewer points is factorised through their rows."""


@dataclass(frozen=True)
class GridState(Sums):
    """Sums over the nodes of a grid and, from 2,000 nodes on, the rows of W while they are fewer.

    Attributes:
        row_index, row_weight: Rows of W, ``w x 4^d``; w is 0 or the number of nodes.
        row_y: Their targets, counted from the origin.
        row_r: Their noise variances, before any learned scale.
    """

    row_index: Tensor = shaped("w k", "not negative")
    row_weight: Tensor = shaped("w k")
    row_y: Tensor = shaped("o w")
    row_r: Tensor = shaped("s w", "positive")

    @classmethod
    def entries(cls, grid: Grid) -> tuple[int, ...]:
        """Shape of A."""
        return grid.m, grid.m

    @classmethod
    def on(cls, grid: Grid, outputs: int, shared: bool, **more: Any) -> Self:
        """Before any data; ``more`` are the fields of a subclass."""
        sums = Sums.none(grid.m, outputs, shared, cls.entries(grid))
        w = grid.m if grid.m >= ROWS_FROM else 0
        zeros = sums.b.new_zeros(w, 4**grid.dim)
        rows = (zeros.long(), zeros, sums.b.new_zeros(outputs, w), sums.b.new_ones(len(sums.A), w))
        return cls(sums.A, sums.b, sums.yy, sums.origin, sums.ld, sums.weight, *rows, **more)

    def absorb_at(self, rows: Interpolation, Y: Tensor, R: Tensor, undo: Undo, n: int) -> GridState:
        """The state after a batch, with n points before it (MATHS 2.2); O(q 16^d)."""
        new = self.absorb(rows, Y, R, undo, first=n == 0)
        new._hold_rows(rows, Y - new.origin.unsqueeze(-1), R, undo, n)
        return new

    def _hold_rows(self, rows: Interpolation, y: Tensor, R: Tensor, undo: Undo, n: int) -> None:
        """Write rows behind the first n, while there is room; in place, like A."""
        end = n + y.shape[-1]
        if end > len(self.row_index):
            return
        news = (rows.index, rows.weight, y.mT, R.mT)
        helds = (self.row_index, self.row_weight, self.row_y.mT, self.row_r.mT)
        for held, new in zip(helds, news, strict=True):
            place = held[n:end]
            undo.append(partial(place.copy_, place.clone()))
            place.copy_(new)

    def rows(self, n: int) -> Interpolation | None:
        """The rows of all n points, where they are held."""
        if not 0 < n < len(self.row_index):
            return None
        return Interpolation(self.row_index[:n], self.row_weight[:n])

    def about(self, origin: Tensor) -> Self:
        """The same data with y counted from another origin: O(m^2)."""
        shift = torch.where(self._written(), (origin - self.origin).unsqueeze(-1), 0.0)
        return replace(super().about(origin), row_y=self.row_y - shift)

    def _written(self) -> Tensor:
        """Which rows are those of a point, ``w``."""
        return (self.row_weight != 0.0).any(-1)

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The state for targets ``(y - shift) / factor`` and, where known, noise to match."""
        noise = factor.square() if known_noise else torch.ones_like(factor)
        row_r = torch.where(self._written(), self.row_r / noise.unsqueeze(-1), self.row_r)
        row_r = row_r if known_noise else self.row_r
        scaled = replace(self, row_y=self.row_y / factor.unsqueeze(-1), row_r=row_r)
        return super(GridState, scaled).rescaled(shift, factor, known_noise)

    def discounted(self, factor: float) -> Self:
        """The state with everything it holds counted ``factor`` times: noisier rows."""
        row_r = torch.where(self._written(), noisier(self.row_r, factor), self.row_r)
        return replace(super().discounted(factor), row_r=row_r)

    def merged_at(self, other: GridState, undo: Undo, n: int, others: int) -> GridState:
        """Both streams' data, n and others of them, counted from this one's origin: O(m^2)."""
        mine = self if n else self.about(other.origin)
        if not torch.equal(other.origin, mine.origin):
            other = other.about(mine.origin)
        new, rows = mine.merged(other), other.rows(others)
        if rows is not None:
            r = other.row_r[:, :others]
            new._hold_rows(rows, other.row_y[:, :others], r, undo, n)
        return new

    def row_targets(self, output: int, n: int) -> tuple[Tensor, Tensor]:
        """Targets and noise variances of the rows of one output, each ``n``."""
        return self.row_y[output, :n], self.row_r[min(output, len(self.row_r) - 1), :n]
