"""Regret for a given budget, of observations or of the optimiser's seconds, read off a run."""

from __future__ import annotations

import math

import pandas as pd

__all__ = ["at_n", "at_seconds", "optimiser_seconds"]

OPTIMISER = ("fit_seconds", "acquisition_seconds", "update_seconds")
"""What an optimiser spends: neither evaluations nor judgements."""


def optimiser_seconds(table: pd.DataFrame) -> pd.Series:
    """Seconds that the optimiser has spent up to each row of a run's table."""
    return table[list(OPTIMISER)].sum(axis=1).cumsum()


def at_seconds(table: pd.DataFrame, seconds: float, regret: str = "inference_regret") -> float:
    """Regret after so many seconds of the optimiser's.

    Args:
        table: Of one run, as `bo_stream.loop.BOLoop` records it.
        seconds: The budget.
        regret: Column of the regret.

    Returns:
        The last one known within the budget; NaN where the run ended before it was spent, or had
        not recommended anything by then.
    """
    return _at(optimiser_seconds(table), seconds, table[regret])


def at_n(table: pd.DataFrame, n: int, regret: str = "inference_regret") -> float:
    """Regret after so many observations.

    Args:
        table: Of one run, as `bo_stream.loop.BOLoop` records it.
        n: The budget.
        regret: Column of the regret.

    Returns:
        The last one known within the budget; NaN where the run ended before it was spent, or had
        not recommended anything by then.
    """
    return _at(table["n"], n, table[regret])


def _at(spent: pd.Series, budget: float, regret: pd.Series) -> float:
    known = regret[spent <= budget].dropna()
    return math.nan if float(spent.iloc[-1]) < budget or known.empty else float(known.iloc[-1])
