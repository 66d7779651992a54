"""Rows of a table as a stream: training rows in some order, test rows held out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from experiments.common.command import BadParameter
from experiments.common.data import TableSplit, waves
from problems.tables import load_table

MADE_UP = "made up"
DRIFTING = "drifting"
ORDERS = ("shuffled", "sorted", "original")


def rows_of(table: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Inputs ``n x d`` and outcomes ``n x 1`` of a table.

    Its ``name`` is one of `problems.tables`, or ``made up``, or ``drifting``, a function that moves
    from row to row; ``inputs`` and ``targets`` name columns, if others than its own are wanted.
    """
    if table["name"] == MADE_UP:
        return waves(400, 2)
    if table["name"] == DRIFTING:
        return _drifting()
    columns = {key: table[key] for key in ("inputs", "targets") if key in table}
    read = load_table(table["name"], **columns)
    if read.Y.shape[1] != 1:
        raise BadParameter(
            f"table {table['name']} has several targets; give one of {', '.join(read.targets)} as "
            "targets."
        )
    return read.X, read.Y


def split_of(X: Tensor, Y: Tensor, order: str, train: int, test: int, seed: int) -> TableSplit:
    """At most so many rows in units of the training rows' mean and deviation.

    They come ``shuffled``, ``sorted`` by the first input, or in the ``original`` order of the
    table: then the rows held out are its last ones. Else the seed says which.
    """
    split = TableSplit.standardised(X, Y, train, test, None if order == "original" else seed)
    if order != "sorted":
        return split
    rows = split.X[:, 0].argsort(stable=True)
    return replace(split, X=split.X[rows], Y=split.Y[rows])


def bounds_of(split: TableSplit) -> Tensor:
    """The box around all rows, ``2 x d``, for surrogates that need to know it beforehand."""
    X = torch.cat([split.X, split.X_test])
    return torch.stack([X.amin(0), X.amax(0)])


def _drifting() -> tuple[Tensor, Tensor]:
    """Waves that run through the unit square, from a seed of their own."""
    generator = torch.Generator().manual_seed(1)
    X = torch.rand(5000, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(5000, 1, generator=generator, dtype=torch.float64)
    moved = 6.0 * X + torch.linspace(0.0, 12.0, 5000, dtype=torch.float64).unsqueeze(-1)
    return X, moved.sin().sum(-1, keepdim=True) + 0.2 * noise
