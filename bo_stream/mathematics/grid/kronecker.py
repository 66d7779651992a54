"""Kronecker products of small matrices times large ones, and partial traces."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["kron_left", "kron_merged", "kron_right", "partial_traces"]


def kron_left(factors: Sequence[Tensor], M: Tensor) -> Tensor:
    """``(F_1 x .. x F_d) M`` for ``m x p`` M: O(m p sum n_k)."""
    p = M.shape[-1]
    before = 1
    for F in factors:
        M = F @ M.reshape(before, F.shape[-1], -1)
        before *= F.shape[-2]
    return M.reshape(-1, p)


def kron_right(M: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """``M (F_1 x .. x F_d)'`` for ``p x m`` M: O(m p sum n_k), without transposing M."""
    p, after = M.shape[0], 1
    for F in reversed(factors):
        n = F.shape[-1]
        M = M.reshape(-1, n) @ F.mT if after == 1 else F @ M.reshape(-1, n, after)
        after *= F.shape[-2]
    return M.reshape(p, -1)


def kron_merged(factors: Sequence[Tensor], limit: int = 128) -> list[Tensor]:
    """The same product with small trailing factors multiplied out: fewer passes over large
    operands.
    """
    merged = list(factors)
    while len(merged) > 1 and merged[-1].shape[0] * merged[-2].shape[0] <= limit:
        last, before = merged.pop(), merged.pop()
        merged.append(torch.kron(before.contiguous(), last.contiguous()))
    return merged


def partial_traces(Y: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """For ``m x m`` Y over a product grid: per dimension, the trace over all the others."""
    traces = []
    for k, n in enumerate(sizes):
        a, c = math.prod(sizes[:k]), math.prod(sizes[k + 1 :])
        blocks = Y.reshape(a, n, c, a, n, c)
        traces.append(blocks.diagonal(0, 0, 3).diagonal(0, 1, 3).sum((-1, -2)))
    return traces
