"""A matrix of statistics on a large grid, stored by pairs of nodes in each dimension.

A row of W is a product over dimensions, ``w_i = prod_k w_k[i_k]``, and in each dimension it touches
four neighbouring nodes. So an entry of ``A = W'R^-1 W`` depends, in each dimension, on an unordered
pair of nodes at most three apart. A dimension of ``n_k`` nodes has ``4 n_k`` such pairs, so A has
``4^d m`` distinct numbers. The pair of nodes i and ``i + s`` has the number ``4 i + s``; pairs off
the grid stay zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from bo_stream.mathematics.grid.nodes import Interpolation
from bo_stream.mathematics.sufficient_statistics.state import Undo

__all__ = ["REACH", "BandRows", "axis_rows", "pair_count"]

REACH = 4
"""Nodes that a point is interpolated from, in each dimension."""
AT_ONCE = 2**18
"""Products computed at a time when outer products are summed."""


def axis_rows(rows: Interpolation, sizes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Factors of interpolation rows: nodes and weights in each dimension, ``batch x q x 4``."""
    d = len(sizes)
    weight, factors = rows.weight.unflatten(-1, (REACH,) * d), []
    for k, size in enumerate(sizes):
        stride = math.prod(sizes[k + 1 :])
        first = rows.index[..., :1] // stride % size
        others = [j - d for j in range(d) if j != k]
        own = weight.sum(others) if others else weight  # weights sum to one in every dimension
        factors.append((first + torch.arange(REACH, device=first.device), own))
    return factors


@dataclass(frozen=True)
class BandRows:
    """Rows of W for ``n`` points, whose outer products are added by pairs of nodes."""

    rows: Interpolation
    sizes: tuple[int, ...]

    def transpose_times(self, values: Tensor, m: int) -> Tensor:
        """``W' values`` for ``o x n`` values: ``o x m``."""
        return self.rows.transpose_times(values, m)

    def add_outer(self, A: Tensor, weights: Tensor, undo: Undo) -> None:
        """``A += W' diag(weights) W`` in place, by pairs: O(n 10^d)."""
        left, right = torch.triu_indices(REACH, REACH, device=A.device)
        each = len(left) ** len(self.sizes)
        many = len(weights) * each > A.numel()
        if many:
            undo.append(partial(A.copy_, A.clone()))
        size = max(1, AT_ONCE // each)
        pieces = (self.rows.index.split(size), self.rows.weight.split(size), weights.split(size))
        for i, w, s in zip(*pieces, strict=True):
            index, value = i.new_zeros(len(i), 1), s.unsqueeze(-1)
            for n, (node, own) in zip(
                self.sizes, axis_rows(Interpolation(i, w), self.sizes), strict=True
            ):
                pair = REACH * node[:, left] + (right - left)
                index = (REACH * n * index.unsqueeze(-1) + pair.unsqueeze(-2)).flatten(1)
                product = (own[:, left] * own[:, right]).unsqueeze(-2)
                value = (value.unsqueeze(-1) * product).flatten(1)
            index = index.flatten()
            if not many:
                undo.append(partial(A.index_copy_, 0, index, A[index]))
            A.index_add_(0, index, value.flatten())


def pair_count(sizes: Sequence[int]) -> int:
    """Number of pairs over a grid: the entries of A."""
    return math.prod(REACH * n for n in sizes)
