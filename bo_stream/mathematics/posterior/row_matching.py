"""Index of each point's exact match among other points."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["matching_rows"]


def matching_rows(X: Tensor, among: Tensor) -> Tensor:
    """Index of the exact match of each of ``n x d`` points among ``m x d`` others; -1 for none.

    O((n + m) log m): sums of the entries are matched first.
    """
    if not len(among):
        return torch.full((len(X),), -1, device=X.device)
    mix = torch.linspace(1.0, 2.0, X.shape[-1], dtype=X.dtype, device=X.device)
    keys, order = (among * mix).sum(-1).sort(stable=True)
    found = torch.searchsorted(keys, (X * mix).sum(-1)).clamp_max(len(among) - 1)
    place = order[found]
    return torch.where((among[place] == X).all(-1), place, -1)
