"""Regret for a given budget, of observations or of the optimiser's seconds, read off runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import pandas as pd

__all__ = ["BUDGETS", "Reached", "at_budget", "budgets"]

Unit = Literal["n", "cpu_seconds"]

COUNTS = (50, 100, 200, 300, 500, 1000, 2000, 3000)
SECONDS = (3, 10, 30, 100, 300)

BUDGETS: dict[str, tuple[Unit, float]] = {
    **{f"n = {n}": ("n", n) for n in COUNTS},
    **{f"{s} s": ("cpu_seconds", s) for s in SECONDS},
}
"""Budgets at which regrets are compared, by their names in tables: of observations, and of seconds
of the optimiser's processor time.
"""


class Reached(NamedTuple):
    """What a run had reached when a budget was spent; NaN if it had not recommended anything by
    then.
    """

    regret: float
    """The last inference regret."""
    n: float
    """Observations."""
    cpu_seconds: float
    """Processor time of the optimiser."""


def at_budget(table: pd.DataFrame, unit: Unit, budget: float, within: bool = False) -> Reached:
    """How far one run had come with so many observations, or seconds of processor time.

    Args:
        table: Of the run, as `bo_stream.simulation.BOLoop` records it.
        unit: What the budget is of.
        budget: How much of it.
        within: Whether a run that ended before counts, with what it ended with.
    """
    course = table.assign(cpu_seconds=table["cpu_seconds"].cumsum())
    course, spent = course[course[unit] <= budget], course[unit].iloc[-1] >= budget
    known = course["inference_regret"].dropna()
    if known.empty or not (spent or within):
        return Reached(math.nan, math.nan, math.nan)
    last = course.iloc[-1]
    return Reached(float(known.iloc[-1]), float(last["n"]), float(last["cpu_seconds"]))


def budgets(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Medians over seeds of the inference regret at equal budgets, a row for each surrogate.

    There is a column for each of `BUDGETS` that any surrogate reached in all its runs. Where a
    surrogate did not, the value is NaN.

    Args:
        tables: One per run, with a column ``surrogate``.
    """
    lines: dict[str, list[dict[str, float]]] = {}
    for table in tables:
        line = {name: at_budget(table, *budget).regret for name, budget in BUDGETS.items()}
        lines.setdefault(str(table["surrogate"].iloc[0]), []).append(line)
    medians = {label: pd.DataFrame(own).median(skipna=False) for label, own in lines.items()}
    known = pd.DataFrame(medians).T.dropna(axis=1, how="all")
    return known.rename_axis("surrogate").reset_index()
