"""Additive statistics of rows and targets: the state of every family of MATHS 2.2."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bo_stream.grid.nodes import Interpolation

__all__ = ["Statistics", "add_outer"]


OUTER_VALUES = 2**18
"""Products formed at a time when outer products are summed."""


def add_outer(A: Tensor, rows: Interpolation, r: Tensor) -> None:
    """``A += sum_i r_i w_i w_i'`` in place: O(q 16^d)."""
    m, K = A.shape[-1], rows.index.shape[-1]
    size = max(1, OUTER_VALUES // (K * K))
    for i, w, s in zip(rows.index.split(size), rows.weight.split(size), r.split(size), strict=True):
        index = i.unsqueeze(-1) * m + i.unsqueeze(-2)
        outer = (w * s.unsqueeze(-1)).unsqueeze(-1) * w.unsqueeze(-2)
        A.view(-1).index_add_(0, index.flatten(), outer.flatten())


@dataclass(frozen=True)
class Statistics:
    """One output's state, centred by nothing: the sums of MATHS 2.2."""

    A: Tensor
    b: Tensor
    yy: Tensor
    ld: Tensor
    n: Tensor
