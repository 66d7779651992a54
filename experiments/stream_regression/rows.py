"""Rows of a table as a stream: training rows in some order, test rows held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from experiments.common.command import BadParameter
from experiments.common.splits import TableSplit
from problems.tables import load_table

__all__ = ["MADE_UP", "ORDERS", "bounds_of", "rows_of", "split_of"]

MADE_UP = "made up"
ORDERS = ("shuffled", "sorted")


def rows_of(table: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Inputs ``n x d`` and outcomes ``n x 1``.

    Args:
        table: ``name`` of one of `problems.tables`, or ``made up``; ``inputs`` and ``targets``,
            names of columns, where others than the table's own are wanted.
    """
    if table["name"] == MADE_UP:
        return _made_up()
    columns = {key: table[key] for key in ("inputs", "targets") if key in table}
    read = load_table(table["name"], **columns)
    if read.Y.shape[1] != 1:
        raise BadParameter(
            f"table {table['name']} has several targets; give one of {', '.join(read.targets)} as "
            "targets."
        )
    return read.X, read.Y


def split_of(X: Tensor, Y: Tensor, order: str, train: int, test: int, seed: int) -> TableSplit:
    """Rows in units of the training rows' mean and deviation, at most so many.

    Args:
        X: ``n x d``.
        Y: ``n x 1``.
        order: ``shuffled``, by the seed, or ``sorted`` by the first input.
        train: Rows of the stream.
        test: Rows held out.
        seed: Of which rows are which.
    """
    split = TableSplit.standardised(X, Y, train, test, seed)
    if order == "shuffled":
        return split
    rows = split.X[:, 0].argsort(stable=True)
    return replace(split, X=split.X[rows], Y=split.Y[rows])


def bounds_of(split: TableSplit) -> Tensor:
    """The box around all rows, ``2 x d``, for surrogates that need to know it beforehand."""
    X = torch.cat([split.X, split.X_test])
    return torch.stack([X.amin(0), X.amax(0)])


def _made_up() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(400, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(400, 1, generator=generator, dtype=torch.float64)
    return X, (6.0 * X).sin().sum(-1, keepdim=True) + 0.2 * noise
