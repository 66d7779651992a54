"""Kronecker products of small matrices times large ones."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

__all__ = ["kron_left", "kron_right"]


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
