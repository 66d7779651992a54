"""What methods have reached at equal budgets: medians, mean ranks, differences in pairs."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

Unit = Literal["n", "cpu_seconds"]
BUDGETS: dict[Unit, str] = {"n": "n = {:,.0f}", "cpu_seconds": "{:g} s"}
"""Names of budgets in tables: of evaluations, and of the method's processor seconds."""
LEAST = 1e-5
"""Losses below this count as this in ranks and pairs: published optima have six digits or so."""
RESAMPLED = 2000
"""Times, for intervals."""


def at_budget(run: pd.DataFrame, unit: Unit, budget: float) -> pd.DataFrame:
    """The row of one run that says what it had reached within a budget; no row if nothing does.

    Of a budget of evaluations it is the last row up to it; a run that made fewer has none. A budget
    of seconds is a checkpoint, whose row was written at the next evaluation: the first row from
    there on has what was told by then. A run that ended before counts with its last row.
    """
    spent = run[unit].to_numpy()
    if unit == "n":
        return run.iloc[: (spent <= budget).sum() if spent[-1] >= budget else 0].tail(1)
    return run.iloc[: (spent < budget).sum() + 1].tail(1)


def losses(runs: Sequence[pd.DataFrame], unit: Unit, budget: float) -> pd.DataFrame:
    """Losses within a budget: a row for each task and seed, a column for each method."""
    keys = ["task", "seed", "method"]
    reached = pd.concat([at_budget(run, unit, budget) for run in runs], ignore_index=True)
    every = pd.concat([run.iloc[:1] for run in runs], ignore_index=True)[keys]
    table = every.merge(reached[[*keys, "loss"]], how="left", on=keys)
    wide = table.pivot(index=["task", "seed"], columns="method", values="loss")
    rows = list(dict.fromkeys(zip(table["task"], table["seed"], strict=True)))
    return wide.loc[rows, list(dict.fromkeys(table["method"]))]


def standings(runs: Sequence[pd.DataFrame], unit: Unit, budget: float) -> pd.DataFrame:
    """How methods stand within a budget: a row for each that has spent it, the best first.

    Columns: ``method``; ``seeds``, how many it has; one for each task, the median loss;
    ``mean rank`` within a task and seed, 1 the best, with the bounds ``low`` and ``high`` of its
    95 % bootstrap interval over tasks and seeds; ``n`` and ``processor s``, medians of what was
    spent. Ranks are among the methods that have all seeds; those of others are NaN.
    """
    wide = losses(runs, unit, budget).dropna(how="all")
    wide = wide.loc[:, wide.notna().groupby(level="task").any().all()]
    medians = wide.groupby(level="task", sort=False).median().T
    ranks: pd.DataFrame = wide.dropna(axis=1).clip(lower=LEAST).rank(axis=1)
    seeds = wide.notna().groupby(level="task").sum()
    table = medians.assign(**{"mean rank": ranks.mean()})
    if len(ranks):
        drawn = np.random.default_rng(0).integers(len(ranks), size=(RESAMPLED, len(ranks)))
        low, high = np.quantile(np.asarray(ranks)[drawn].mean(axis=1), [0.025, 0.975], axis=0)
        table = table.assign(low=pd.Series(low, ranks.columns), high=pd.Series(high, ranks.columns))
    table = table.assign(seeds=seeds.min()).join(_spent(runs, unit, budget))
    table = table.sort_values("mean rank")
    return table.rename_axis(None, axis=1).rename_axis("method").reset_index()


def paired(runs: Sequence[pd.DataFrame], unit: Unit, budget: float) -> pd.DataFrame:
    """The first method against each other within a budget, over the tasks and seeds both have.

    ``median`` is that of log10 of the first's loss over the other's, below 0 where the first is
    better, with the bounds ``low`` and ``high`` of its 95 % bootstrap interval; ``better``:
    the share of runs in which the first is better, ties counted half.
    """
    wide = losses(runs, unit, budget)
    rows: list[dict[str, Any]] = []
    if not len(wide.columns):
        return pd.DataFrame(rows)
    first = wide.columns[0]
    for other in wide.columns[1:]:
        both = wide[[first, other]].dropna().clip(lower=LEAST)
        if both.empty:
            continue
        ratio = np.log10(np.asarray(both[first] / both[other]))
        drawn = np.random.default_rng(0).integers(len(ratio), size=(RESAMPLED, len(ratio)))
        low, high = np.quantile(np.median(ratio[drawn], axis=1), [0.025, 0.975])
        better = float((ratio < 0.0).mean() + 0.5 * (ratio == 0.0).mean())
        rows.append(
            {"method": first, "against": other, "runs": len(ratio), "median": np.median(ratio)}
            | {"low": low, "high": high, "better": better}
        )
    return pd.DataFrame(rows)


def _spent(runs: Sequence[pd.DataFrame], unit: Unit, budget: float) -> pd.DataFrame:
    """Medians of the evaluations and seconds that methods had spent."""
    reached = pd.concat([at_budget(run, unit, budget) for run in runs])
    medians = reached.groupby("method")[["n", "cpu_seconds"]].median()
    return medians.rename(columns={"cpu_seconds": "processor s"})
