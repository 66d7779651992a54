"""Regret for a given budget, of observations or of the optimiser's seconds, read off runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

__all__ = ["COUNTS", "SECONDS", "at_n", "at_seconds", "budgets"]

COUNTS = (50, 100, 200, 300, 500, 1000, 2000, 3000)
"""Numbers of observations at which regrets are compared."""
SECONDS = (3, 10, 30, 100, 300)
"""Seconds of processor time at which regrets are compared."""


def budgets(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Medians over seeds of the inference regret at equal budgets, a row for each surrogate.

    There is a column for each of `COUNTS` and `SECONDS` that any surrogate reached in all its runs.
    Where a surrogate did not, the value is NaN.

    Args:
        tables: One per run, with a column ``surrogate``.
    """
    lines: dict[str, list[dict[str, float]]] = {}
    for table in tables:
        line = {f"n = {n}": at_n(table, n) for n in COUNTS}
        line |= {f"{s} s": at_seconds(table, s) for s in SECONDS}
        lines.setdefault(str(table["surrogate"].iloc[0]), []).append(line)
    medians = {label: pd.DataFrame(own).median(skipna=False) for label, own in lines.items()}
    known = pd.DataFrame(medians).T.dropna(axis=1, how="all")
    return known.rename_axis("surrogate").reset_index()


def at_seconds(table: pd.DataFrame, seconds: float) -> float:
    """The last inference regret within so many seconds of the optimiser's processor time.

    Args:
        table: Of one run, as `bo_stream.loop.BOLoop` records it.
        seconds: The budget.

    Returns:
        The regret; NaN if the run ended before the budget was spent, or had not recommended
        anything by then.
    """
    return _at(table["cpu_seconds"].cumsum(), seconds, table["inference_regret"])


def at_n(table: pd.DataFrame, n: int) -> float:
    """The last inference regret within so many observations.

    Args:
        table: Of one run, as `bo_stream.loop.BOLoop` records it.
        n: The budget.

    Returns:
        As `at_seconds`.
    """
    return _at(table["n"], n, table["inference_regret"])


def _at(spent: pd.Series, budget: float, regret: pd.Series) -> float:
    known = regret[spent <= budget].dropna()
    return math.nan if float(spent.iloc[-1]) < budget or known.empty else float(known.iloc[-1])
