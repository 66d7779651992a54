"""Quadratic forms ``w' M w`` of interpolation rows, from the entries of M that they need.

The ``4^d`` nodes around a point are at most three apart in every dimension, so of a symmetric ``m x
m`` matrix only ``7^d`` entries a row matter, and all points of one cell share one ``4^d x 4^d``
block.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bo_stream.mathematics.grid.nodes import Grid, Interpolation

__all__ = ["LocalEntries", "SparseRows", "quadratic"]

ROWS = 96
"""Columns multiplied at a time."""
BLOCK_VALUES = 2**19
"""Entries fetched at a time."""
REACH = 3


@dataclass(frozen=True)
class SparseRows:
    """A symmetric sparse ``m x m`` matrix in compressed rows.

    Attributes:
        columns: Column of each entry, row by row.
        values: Value of each entry.
        starts: First entry of each row, ``m``.
    """

    columns: Tensor
    values: Tensor
    starts: Tensor

    @classmethod
    def of(cls, A: Tensor) -> SparseRows:
        """The non-zero entries of a dense matrix."""
        row, column = A.nonzero(as_tuple=True)
        counts = row.bincount(minlength=len(A))
        return cls(column, A[row, column], counts.cumsum(0) - counts)

    def times(self, M: Tensor) -> Tensor:
        """``A M`` for contiguous ``m x p`` M."""
        return F.embedding_bag(
            self.columns, M, self.starts, per_sample_weights=self.values, mode="sum"
        )

    def trace(self, S: Tensor) -> Tensor:
        """``tr(A S)`` for ``o x m x m`` S: ``o``."""
        counts = torch.diff(self.starts, append=self.starts.new_tensor([len(self.columns)]))
        rows = torch.repeat_interleave(torch.arange(len(counts), device=S.device), counts)
        return (S[:, rows, self.columns] * self.values).sum(-1)


@dataclass(frozen=True)
class LocalEntries:
    """Entries of a symmetric matrix between nodes at most three apart in every dimension.

    Attributes:
        grid: The nodes.
        entries: ``M[i, i + offset]``, ``o x m x 7^d``; arbitrary off the grid.
        offsets: ``7^d`` differences of node numbers, increasing, symmetric about zero.
    """

    grid: Grid
    entries: Tensor
    offsets: Tensor

    @classmethod
    def congruence(cls, S: Tensor, A: SparseRows, grid: Grid) -> LocalEntries:
        """Entries of ``S A S`` for symmetric S, ``o x m x m``: O(7^d m^2 + m^(3 - 1/d))."""
        offsets = _offsets(grid).to(S.device)
        half, m = len(offsets) // 2 + 1, grid.m
        entries = S.new_zeros(len(S), m, len(offsets))
        for e, s in zip(entries, S, strict=True):
            for i in range(0, m, ROWS):  # columns i to j of S A S, the rows just above and beside
                j, first = min(i + ROWS, m), max(0, i + int(offsets[0]))
                product = s[first:j] @ A.times(s[:, i:j].contiguous())
                row = torch.arange(i - first, j - first, device=S.device) + offsets[:half, None]
                e[i:j, :half] = product.gather(0, row.clamp_min(0)).mT
            for k in range(half, len(offsets)):  # the other half: M[i, i + s] = M[i + s, i]
                shift = int(offsets[k])
                e[: m - shift, k] = e[shift:, len(offsets) - 1 - k]
        return cls(grid, entries, offsets)

    def quadratic(self, rows: Interpolation) -> Tensor:
        """``w' M w`` per row ``batch x q x 4^d``: ``batch x o x q``, O(16^d) each."""

        def block(nodes: Tensor) -> Tensor:
            gaps = nodes[0] - nodes[0].unsqueeze(-1)  # the same in every cell
            place = torch.searchsorted(self.offsets, gaps)
            return self.entries[:, nodes.unsqueeze(-1), place]

        return _by_cell(rows, len(self.entries), block)


def quadratic(M: Tensor, rows: Interpolation) -> Tensor:
    """``w' M w`` for ``o x m x m`` M and rows ``batch x q x 4^d``: ``batch x o x q``."""
    return _by_cell(rows, len(M), lambda nodes: M[:, nodes.unsqueeze(-1), nodes.unsqueeze(-2)])


def _by_cell(rows: Interpolation, outputs: int, block: Callable[[Tensor], Tensor]) -> Tensor:
    """``w' M w`` with the block ``o x C x 4^d x 4^d`` of each of C cells fetched once.

    Args:
        rows: ``batch x q x 4^d``.
        outputs: Number of outputs o.
        block: Entries of M between the nodes ``C x 4^d`` of each cell.
    """
    K = rows.index.shape[-1]
    index, weight = rows.index.reshape(-1, K), rows.weight.reshape(-1, K)
    if len(index) == 0:
        return weight.new_zeros(*rows.index.shape[:-2], outputs, rows.index.shape[-2])
    pattern = index[0] - index[0, 0]
    order = index[:, 0].argsort()
    parts = []
    for part in order.split(max(1, BLOCK_VALUES // (K * K))):
        cells, which = index[part, 0].unique_consecutive(return_inverse=True)
        M = block(cells.unsqueeze(-1) + pattern)[:, which]
        w = weight[part]
        parts.append(((M @ w.unsqueeze(-1)).squeeze(-1) * w).sum(-1))
    values = torch.cat(parts, -1)[:, order.argsort()]
    return values.reshape(len(values), *rows.index.shape[:-1]).movedim(0, -2)


def _offsets(grid: Grid) -> Tensor:
    """Differences of node numbers at most `REACH` apart in every dimension, increasing.

    On a grid of few nodes several steps have the same number; they are merged.
    """
    strides = [math.prod(grid.sizes[k + 1 :]) for k in range(grid.dim)]
    steps = itertools.product(range(-REACH, REACH + 1), repeat=grid.dim)
    flat = {sum(s * t for s, t in zip(step, strides, strict=True)) for step in steps}
    return torch.tensor(sorted(flat))
