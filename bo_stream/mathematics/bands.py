"""The state of a Gaussian process on a grid: statistics over its nodes, stored by pairs of nodes.

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
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from bo_stream.mathematics.grid import REACH, Grid, Interpolation
from bo_stream.mathematics.shapes import nested, shaped
from bo_stream.mathematics.sums import BufferedStatistics

__all__ = ["GridState", "column_pairs", "matrix_of", "pair_count"]


@dataclass(frozen=True)
class GridState(BufferedStatistics):
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
    def before_data(cls, grid: Grid, outputs: int, shared: bool, opening: int) -> GridState:
        """The state before any data.

        Args:
            grid: The nodes.
            outputs: Number of outputs.
            shared: Whether they share noise variances.
            opening: Number of initial points to buffer.
        """
        sizes = grid.m, grid.inputs, outputs, shared, opening
        return cls.empty(*sizes, grid=grid, checked_at=torch.zeros((), dtype=torch.float64))

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
        A = self.A.new_zeros(len(self.A), pair_count(features.sizes))
        return replace(self, A=A, b=self.b.new_zeros(len(self.b), features.m), grid=features)

    def rows_at(self, X: Tensor) -> Interpolation:
        """Interpolation rows at points ``n x d``."""
        return self.grid.interpolate(X)

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
