"""Tables of labelled points, in the unit cube, and orders of their rows."""

from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.common.command import BadParameter
from problems.tables import load_table

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
    """A table of `problems.tables` with the source's own training rows, or one ``made up``; inputs
    scaled by the range of all rows.
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
