"""Greedy choice by largest conditional variance: a partial Cholesky (MATHS 4.2, 4.3).

``r_i = k(x_i, x_i) - k_b(x_i)' K_bb^-1 k_b(x_i)`` is the variance at pool point i given the chosen
points. Adding a point costs O(N M) with N pool points. Ties, up to rounding, go to the lowest
index.
"""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.inducing import dense, diagonal, solve

__all__ = ["GreedyVariance", "greedy_pool"]

WHOLE_KERNEL = 4096
"""Pools up to this size have their kernel matrix computed once; larger ones row by row."""
TIE = 1e-12
"""Conditional variances closer than this share of the prior variance are ties."""


class GreedyVariance:
    """Conditional variances over a pool, updated as points are added.

    Args:
        kernel: The kernel.
        X: The pool, ``N x d``.
        jitter: Relative jitter on the pivots.
        Z: Points already chosen, ``M x d``, with ``L = chol(K(Z, Z) + jitter)``; None for none.
        K: ``K(X, X)`` if known.

    Attributes:
        size: Number of points: those chosen before and those added.
        A: Rows ``L_b^-1 K(Z_b, X)``, ``M x N``, a view of a buffer that doubles as needed.
        r: Conditional variances, ``N``.
        chosen: Pool indices added so far.
    """

    def __init__(
        self,
        kernel: Kernel,
        X: Tensor,
        jitter: float,
        Z: Tensor | None = None,
        L: Tensor | None = None,
        K: Tensor | None = None,
    ) -> None:
        self._kernel, self._X, self._jitter = kernel, X, jitter
        self._K = dense(kernel, X) if K is None and X.shape[0] <= WHOLE_KERNEL else K
        self._k = diagonal(kernel, X)
        self.chosen: list[int] = []
        self._free = torch.ones(X.shape[0], dtype=torch.bool, device=X.device)
        prior, self._rows, self.size = self._k, self._k.new_zeros(0, len(X)), 0
        if Z is not None and L is not None:
            self._rows, self.size = solve(L, dense(kernel, Z, X)), len(Z)
            prior = torch.cat([diagonal(kernel, Z), self._k])
        self.r = self._k - self._rows.square().sum(0)
        self._scale = float(prior.mean()) if len(prior) else 0.0

    @property
    def A(self) -> Tensor:
        """Rows so far, ``M x N``."""
        return self._rows[: self.size]

    def best(self) -> int | None:
        """The candidate of largest conditional variance; None if none exceeds 10 jitters."""
        if not bool(self._free.any()):
            return None
        r = self.r.masked_fill(~self._free, -torch.inf)
        top = r.max()
        j = int((r >= top - TIE * self._scale).nonzero()[0])
        return j if float(r[j]) > 10.0 * self._jitter * float(self._k[j]) else None

    def add(self, j: int) -> Tensor:
        """Add pool point j; returns its new row ``a`` (``N``)."""
        pivot = (self.r[j].clamp_min(0.0) + self._jitter * self._scale).sqrt()
        X, K = self._X, self._K
        k_j = K[j] if K is not None else dense(self._kernel, X[j : j + 1], X)[0]
        a = (k_j - self.A[:, j] @ self.A) / pivot
        if self.size == len(self._rows):
            room = max(16, self.size)
            self._rows = torch.cat([self._rows, a.new_zeros(room, len(a))])
        self._rows[self.size] = a
        self.size += 1
        self.r = self.r - a.square()
        self._free[j] = False
        self.chosen.append(j)
        return a


def greedy_pool(
    kernel: Kernel, pool: Tensor, jitter: float, count: int, trace: float = -1.0
) -> list[int]:
    """Indices chosen from a pool until there are ``count``, or the variances sum to ``trace``."""
    greedy = GreedyVariance(kernel, pool, jitter)
    while greedy.size < count and float(greedy.r.sum()) > trace:
        j = greedy.best()
        if j is None:
            break
        greedy.add(j)
    return greedy.chosen
