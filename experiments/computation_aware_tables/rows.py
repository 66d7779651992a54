"""Rows of the tables that the study compares on, the cohort that it makes up among them."""

from __future__ import annotations

from experiments.common.cohort import cohort
from experiments.common.splits import TableSplit
from problems.tables import load_table

__all__ = ["split_of"]


def split_of(name: str, train: int, test: int, seed: int) -> TableSplit:
    """At most so many standardised rows of a table of `problems.tables`, or of ``cohort``."""
    if name == "cohort":
        X, Y = cohort()
    else:
        table = load_table(name)
        X, Y = table.X, table.Y
    return TableSplit.standardised(X, Y, train, test, seed)
