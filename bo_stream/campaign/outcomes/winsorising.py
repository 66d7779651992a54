"""The least outcome that a surrogate learns: penalties do not hide what is worth knowing."""

from __future__ import annotations

import math

from torch import Tensor

__all__ = ["SPREADS", "least_learned"]

SPREADS = 20.0
"""Worse outcomes than so many spreads below the median are learned as if they were there."""

EARLY = 20
"""Number of first outcomes whose spread counts, too: later ones may all be near the optimum."""

FEWEST = 4


def least_learned(Y: Tensor) -> float:
    """The limit for outcomes to be maximised, ``n x 1``: O(n log n).

    The spread is twice the distance from the median to the upper quartile, so that less than half
    of the outcomes, the bad ones, do not move it: of the first 20 outcomes or of all, whichever is
    larger. The median is the lower of the two. Without a spread there is no limit.
    """
    if len(Y) < FEWEST:
        return -math.inf
    parts = [_centre_and_spread(part[:, 0]) for part in (Y[:EARLY], Y)]
    centre, spread = min(c for c, _ in parts), max(s for _, s in parts)
    limit = centre - SPREADS * spread
    return limit if spread > 0.0 and math.isfinite(limit) else -math.inf


def _centre_and_spread(values: Tensor) -> tuple[float, float]:
    ordered, last = values.sort().values, len(values) - 1
    centre = float(ordered[last // 2])
    return centre, 2.0 * (float(ordered[-(-3 * last // 4)]) - centre)
