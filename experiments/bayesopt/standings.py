"""Who leads where: all problems of a study side by side, at equal budgets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from experiments.common.budgets import BUDGETS, at_budget

__all__ = ["standings"]

RESAMPLED = 2000
"""Times, for the intervals."""


def standings(parts: Mapping[str, Sequence[pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """How surrogates and peers stand on all problems: a table for each of `BUDGETS`.

    A table has a row for each that spent the budget in all its runs, the best first; within a
    budget of seconds, those that ended before count with what they ended with. Its columns:
    ``surrogate``; one for each problem, the median over seeds of the inference regret; ``led``, on
    how many problems that median is the least; ``mean rank`` within a problem and seed, 1 the
    best, with the bounds ``low`` and ``high`` of its 95 % bootstrap interval over problems and
    seeds; ``n`` and ``processor s``, the medians of what was spent. There is no table of a budget
    that none spent in all its runs, nor of one with nothing to compare.

    Args:
        parts: Tables of runs by problem, each with columns ``surrogate`` and ``seed``; the same
            surrogates and seeds for every problem.
    """
    told = {}
    for name, budget in BUDGETS.items():
        runs = pd.DataFrame(
            {
                "problem": problem,
                "seed": int(table["seed"].iloc[0]),
                "surrogate": str(table["surrogate"].iloc[0]),
                "went": not math.isnan(at_budget(table, *budget).regret),
                **at_budget(table, *budget, within=budget[0] == "cpu_seconds")._asdict(),
            }
            for problem, tables in parts.items()
            for table in tables
        )
        blocks = runs.pivot(index=["problem", "seed"], columns="surrogate", values="regret")
        blocks = blocks.dropna(axis=1)
        if blocks.shape[1] > 1 and runs.groupby("surrogate")["went"].all().any():
            spent = runs.groupby("surrogate")[["n", "cpu_seconds"]].median()
            told[name] = _standing(blocks, spent, list(parts))
    return told


def _standing(blocks: pd.DataFrame, spent: pd.DataFrame, problems: list[str]) -> pd.DataFrame:
    """The table of one budget, from regrets with a row for each problem and seed."""
    medians = blocks.groupby(level="problem").median().T[problems]
    ranks = blocks.rank(axis=1)
    drawn = np.random.default_rng(0).integers(len(ranks), size=(RESAMPLED, len(ranks)))
    low, high = np.quantile(ranks.to_numpy()[drawn].mean(axis=1), [0.025, 0.975], axis=0)
    columns = {
        "led": medians.eq(medians.min()).sum(axis=1),
        "mean rank": ranks.mean(),
        "low": pd.Series(low, ranks.columns),
        "high": pd.Series(high, ranks.columns),
        "n": spent["n"],
        "processor s": spent["cpu_seconds"],
    }
    table = medians.join(pd.DataFrame(columns)).sort_values("mean rank")
    return table.rename_axis(None, axis=1).reset_index()
