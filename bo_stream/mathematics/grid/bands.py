"""A matrix of statistics on a grid, stored by pairs of nodes in each dimension.

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

import torch
from torch import Tensor

from bo_stream.mathematics.grid.nodes import Interpolation

__all__ = ["REACH", "BandRows", "axis_rows", "matrix_of", "pair_count"]

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

    def add_outer(self, A: Tensor, weights: Tensor) -> None:
        """``A += W' diag(weights) W`` in place, by pairs: O(n 10^d)."""
        left, right = torch.triu_indices(REACH, REACH, device=A.device)
        size = max(1, AT_ONCE // len(left) ** len(self.sizes))
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
            A.index_add_(0, index.flatten(), value.flatten())


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
