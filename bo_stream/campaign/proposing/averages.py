"""Averages of the outcomes about a point, which no surrogate has a part in."""

from __future__ import annotations

import torch
from torch import Tensor

from bo_stream.campaign.outcomes.observations import Observations

__all__ = ["best_cell", "not_lower"]

NEAREST = 150
"""Number of outcomes next to a point that are averaged."""

PER_SIDE, LEAST = 20, 20
"""Number of cells along each side of the space, and least number of outcomes in a cell."""

SIGMAS = 3.0
"""Standard errors from which on an average is significantly lower."""


def not_lower(x: Tensor, other: Tensor | None, data: Observations) -> Tensor:
    """A point, or the other one if the outcomes next to the first are significantly lower: O(n).

    Args:
        x: The point, ``d``.
        other: The other point, ``d``, if there is one.
        data: All outcomes.
    """
    if other is None or len(data.X) < NEAREST:
        return x

    def nearest(point: Tensor) -> Tensor:
        distances = (data.X - point).square().sum(-1)
        return data.Y[distances.topk(NEAREST, largest=False).indices]

    own, others = nearest(x), nearest(other)
    error = ((own.var() + others.var()) / NEAREST).sqrt()
    return other if bool(others.mean() - own.mean() > SIGMAS * error) else x


def best_cell(bounds: Tensor, data: Observations) -> Tensor | None:
    """The mean point of the cell of highest mean outcome, less three standard errors: O(n log n).

    None if no cell has enough outcomes.

    Args:
        bounds: The space, ``2 x d``.
        data: All outcomes.
    """
    low, width = bounds[0], bounds[1] - bounds[0]
    cells = ((data.X - low) / width * PER_SIDE).floor().long()
    _, cell = cells.unique(dim=0, return_inverse=True)
    y, zeros = data.Y[:, 0], data.Y.new_zeros(int(cell.max()) + 1)
    count = zeros.index_add(0, cell, torch.ones_like(y))
    mean = zeros.index_add(0, cell, y) / count
    squares = zeros.index_add(0, cell, (y - mean[cell]).square())
    error = (squares / (count - 1.0).clamp_min(1.0) / count).sqrt()
    bound = torch.where(count >= LEAST, mean - SIGMAS * error, -torch.inf)
    found = bound.argmax()
    return data.X[cell == found].mean(0) if bool(count[found] >= LEAST) else None
