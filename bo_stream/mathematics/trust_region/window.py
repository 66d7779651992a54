"""The window of a trust region: which of its points the local process is conditioned on.

MATHS 14.1 and 14.2. O(n d) in the n points of the region, and nothing else depends on n.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bo_stream.mathematics.trust_region.state import Evaluations, Geometry

__all__ = ["WINDOW", "clipped", "window_of"]

WINDOW = 512
"""Largest number of points in a window; the pending ones are in addition."""


def window_of(
    archive: Evaluations, newest: int, centre: Tensor, geometry: Geometry, size: float
) -> Evaluations:
    """The window of a region, its outcomes clipped, in the order of the archive.

    Up to 512 points all are in it. If more than that lie within ``L shape`` of the centre: the best
    quarter, the newest quarter, the rest at random from a stream that the number of points decides.
    Otherwise the nearest, and always the newest batch.

    Args:
        archive: The points of the region.
        newest: Size of the newest batch.
        centre: ``d``.
        geometry: Lengths.
        size: The region's L.
    """
    n = len(archive)
    if n <= WINDOW:
        return clipped(archive.at(slice(None)))
    away = archive.X - centre
    fresh = torch.zeros(n, dtype=torch.bool, device=away.device)
    fresh[n - min(newest, WINDOW) :] = True
    inside = (away.abs() <= size * geometry.shape).all(-1) | fresh
    if int(inside.sum()) <= WINDOW:
        distance = (away / geometry.lengthscales).square().sum(-1).masked_fill(fresh, -1.0)
        chosen = distance.topk(WINDOW, largest=False).indices
    else:
        places, quarter = inside.nonzero().squeeze(-1), WINDOW // 4
        best = places[archive.Y[places].topk(quarter).indices]
        taken = torch.cat([best, places[-quarter:]]).unique()
        others = places[~torch.isin(places, taken)]
        generator = torch.Generator().manual_seed(n)
        some = torch.randperm(len(others), generator=generator)[: WINDOW - len(taken)]
        chosen = torch.cat([taken, others[some.to(others.device)]])
    return clipped(archive.at(chosen.sort().values))


def clipped(rows: Evaluations) -> Evaluations:
    """The rows with outcomes of at least ``median - 2 (max - median)``."""
    if not len(rows):
        return rows
    middle = rows.Y.median()
    return Evaluations(rows.X, rows.Y.clamp(min=float(3.0 * middle - 2.0 * rows.Y.max())), rows.R)
