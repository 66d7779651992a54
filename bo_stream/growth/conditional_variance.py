"""Conditional variance: re-select until little variance is left [VIPS, Alg. 5].

The loop runs while the remaining trace of the pool is above the threshold (the paper prints
"below").
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel

from bo_stream.growth.policy import Selection, check_cap, check_positive, indices
from bo_stream.mathematics.inducing.greedy import greedy_pool
from bo_stream.mathematics.inducing.state import Batch, SGPRState

__all__ = ["ConditionalVariance"]


@dataclass(frozen=True)
class ConditionalVariance:
    """Choose greedily from ``[Z_o; X]`` until that pool's conditional variances sum to ``eta``.

    Args:
        eta: Remaining trace allowed, in units of the kernel (it scales with the outputscale).
        max_points: Largest number of inducing points, None for no cap.

    Old points are re-selected with the new ones and may be dropped. The sum is over the whole pool;
    a sum over the batch alone would forget regions no longer visited (MATHS 4.3). O((N + M) M) a
    point.
    """

    eta: float
    max_points: int | None = None

    def __post_init__(self) -> None:
        check_positive("eta", self.eta)
        check_cap(self.max_points)

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """The points chosen by a partial Cholesky factorisation of the pool."""
        cap = state.size + batch.size if self.max_points is None else self.max_points
        return from_pool(state, batch, kernel, cap, self.eta)


def from_pool(
    state: SGPRState, batch: Batch, kernel: Kernel, count: int, trace: float = -1.0
) -> Selection:
    """Greedy choice from ``[Z_o; X]``, split into old points and batch points."""
    pool = torch.cat([state.Z, batch.X])
    chosen = greedy_pool(kernel, pool, state.jitter, count, trace)
    kept = sorted(j for j in chosen if j < state.size)
    entered = [j - state.size for j in chosen if j >= state.size]
    return Selection(indices(kept, pool), indices(entered, pool))
