"""Inducing points that cover what was seen, also where a stream moves on (ours).

Up to the cap, points enter by largest conditional variance. At the cap the choice is made again,
from old and new points together, once new ones are on average four times as little known as the
inducing point that those before it told most of: data that come sorted leave many points where they
began and would have none where they end. Where the stream stays, the choice does: what had been
learned at a point that goes is partly lost.
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
"""Mean conditional variance of a batch that makes the cap be filled anew, relative to the least
inside. At 1 nearly every single point of a stream would."""


@dataclass(frozen=True)
class Covering:
    """As many inducing points as allowed, of large conditional variance.

    Args:
        max_points: How many (fewer while fewer distinct points have been seen).

    O(N M) a point that enters; O((N + M) M^2) where the choice is made again.
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
