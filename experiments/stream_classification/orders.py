"""Orders of labels: at random, class by class, and with a class that turns up late."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["ORDERS", "at_random"]


def at_random(y: Tensor, seed: int) -> Tensor:
    """All rows shuffled."""
    return torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))


def class_by_class(y: Tensor, seed: int) -> Tensor:
    """All of one class, then all of the other."""
    order = at_random(y, seed)
    return order[y[order].argsort(stable=True)]


def late(y: Tensor, seed: int) -> Tensor:
    """None of class 1 among the first quarter of the rows."""
    order = at_random(y, seed)
    zeros = order[y[order] == 0]
    first = zeros[: min(len(y) // 4, len(zeros))]
    rest = order[~torch.isin(order, first)]
    return torch.cat([first, rest])


ORDERS = {"random": at_random, "class by class": class_by_class, "one class late": late}
"""By name: the order of rows with labels ``y``, for a seed."""
