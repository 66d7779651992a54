"""Tables of labelled points, in the unit cube."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from problems.tables import load_table

__all__ = ["TABLES", "Labelled", "made_up", "read"]

TABLES = ("banana", "svmguide1")


@dataclass(frozen=True, eq=False)
class Labelled:
    """Training and test rows: inputs in the unit cube, labels 0 and 1."""

    X: Tensor
    y: Tensor
    X_test: Tensor
    y_test: Tensor

    @property
    def bounds(self) -> Tensor:
        """The unit cube, ``2 x d``."""
        zeros = torch.zeros_like(self.X[0])
        return torch.stack([zeros, zeros + 1.0])


def read(name: str) -> Labelled:
    """A table with the source's own training rows; inputs scaled by the range of all rows."""
    table = load_table(name)
    low, high = table.X.amin(0), table.X.amax(0)
    X, y = (table.X - low) / (high - low), table.Y[:, 0].long()
    train = torch.ones(len(X), dtype=torch.bool) if table.train is None else table.train
    return Labelled(X[train], y[train], X[~train], y[~train])


def made_up(n: int = 90, seed: int = 0) -> Labelled:
    """A disc in a square, one label in twenty wrong."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(2 * n, 2, generator=generator, dtype=torch.float64)
    y = (X - 0.5).square().sum(-1) < 0.1
    y = y ^ (torch.rand(2 * n, generator=generator) < 0.05)
    return Labelled(X[:n], y[:n].long(), X[n:], y[n:].long())
