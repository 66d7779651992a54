"""Inducing points that cover the data, also if the stream moves through the inputs (ours).

Up to the cap, points enter by largest conditional variance. At the cap all points are chosen again,
from old and new ones, once the mean conditional variance of a batch exceeds four times the smallest
pivot of the inducing points. So sorted data do not leave all points where they began. While the
stream stays in one region the points stay, because a dropped point loses part of what was learned
at it.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpytorch.kernels import Kernel

from bo_stream.growth.conditional_variance import from_pool
from bo_stream.growth.policy import Selection, all_old, check_count, indices
from bo_stream.mathematics.inducing.greedy import GreedyVariance
from bo_stream.mathematics.inducing.state import Batch, SGPRState

__all__ = ["Covering"]

WORTH = 4.0
"""Mean conditional variance of a batch, relative to the smallest pivot, above which all points are
chosen again."""


@dataclass(frozen=True)
class Covering:
    """As many inducing points as allowed, of large conditional variance.

    Args:
        max_points: Number of points (fewer while fewer distinct points have been seen).

    O(N M) for each new point; O((N + M) M^2) if all are chosen again.
    """

    max_points: int

    def __post_init__(self) -> None:
        check_count("max_points", self.max_points)

    def select(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Selection:
        """All old points while there is room, and batch points by conditional variance."""
        greedy = GreedyVariance(kernel, batch.X, state.jitter, state.Z, state.L)
        while greedy.size < self.max_points and (j := greedy.best()) is not None:
            greedy.add(j)
        if greedy.best() is not None and greedy.size >= self.max_points and state.size:
            least = state.L.diagonal().square().min()
            if bool(greedy.r.mean() > WORTH * least):
                return from_pool(state, batch, kernel, self.max_points)
        kept = all_old(state)
        return Selection(kept, indices(greedy.chosen, kept))
