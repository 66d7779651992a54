"""Tables of labelled points, in the unit cube."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.common.command import BadParameter
from problems.tables import load_table

__all__ = ["MADE_UP", "Labelled", "labelled"]

MADE_UP = "made up"


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


def labelled(name: str) -> Labelled:
    """A table with the source's own training rows; inputs scaled by the range of all rows.

    Args:
        name: Of `problems.tables`, or ``made up``.
    """
    if name == MADE_UP:
        return _made_up()
    table = load_table(name)
    if table.train is None or table.Y.shape[1] != 1 or set(table.Y.unique().tolist()) != {0.0, 1.0}:
        raise BadParameter(
            f"table {name} has no labels 0 and 1 with training rows of its own; banana and "
            "svmguide1 have."
        )
    low, high = table.X.amin(0), table.X.amax(0)
    X, y, train = (table.X - low) / (high - low), table.Y[:, 0].long(), table.train
    return Labelled(X[train], y[train], X[~train], y[~train])


def _made_up(n: int = 90, seed: int = 0) -> Labelled:
    """A disc in a square, one label in twenty wrong."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(2 * n, 2, generator=generator, dtype=torch.float64)
    y = (X - 0.5).square().sum(-1) < 0.1
    y = y ^ (torch.rand(2 * n, generator=generator) < 0.05)
    return Labelled(X[:n], y[:n].long(), X[n:], y[n:].long())
