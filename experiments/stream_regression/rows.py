"""Rows of a table as a stream: training rows in some order, test rows held out."""

from dataclasses import replace

import torch
from torch import Tensor

from experiments.common.data import TableSplit

ORDERS = ("shuffled", "sorted", "original")


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
