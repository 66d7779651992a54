"""Tables of labelled points, in the unit cube, and orders of their rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.common.command import BadParameter
from experiments.common.data import MADE_UP
from problems.tables import load_table

HELD_OUT = 0.25
"""Share of the rows for testing, of a table that does not say which."""


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


def labelled(table: Mapping[str, Any]) -> Labelled:
    """A table of a configuration: one of `problems.tables`, the path of a CSV, or ``made up``.

    Inputs are scaled by the range of all rows; constant ones go. Training rows are the source's
    own, or three in four, the same for every seed. The greater label is class 1.
    """
    if table["name"] == MADE_UP:
        return _made_up()
    read = load_table(table["name"], table.get("target"), inputs=table.get("inputs"))
    labels = read.Y.unique().tolist()
    if read.Y.shape[1] != 1 or len(labels) != 2:
        raise BadParameter(
            f"table {read.name} has labels {labels[:5]} in {', '.join(read.targets)}; the target "
            "has to be one column of two numbers."
        )
    X, y = read.X[:, read.X.std(0) > 0.0], (read.Y[:, 0] == max(labels)).long()
    train = read.train
    if train is None:
        train = torch.ones(len(y), dtype=torch.bool)
        train[at_random(y, 0)[: round(HELD_OUT * len(y))]] = False
    low, high = X.amin(0), X.amax(0)
    X = (X - low) / (high - low)
    return Labelled(X[train], y[train], X[~train], y[~train])


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


def _made_up(n: int = 90, seed: int = 0) -> Labelled:
    """A disc in a square, one label in twenty wrong."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(2 * n, 2, generator=generator, dtype=torch.float64)
    y = (X - 0.5).square().sum(-1) < 0.1
    y = y ^ (torch.rand(2 * n, generator=generator) < 0.05)
    return Labelled(X[:n], y[:n].long(), X[n:], y[n:].long())
