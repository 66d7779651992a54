"""What optimisation runs reached: at the end, at equal budgets, in pairs, over all problems."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from bo_stream.scores import ends_in_common, paired_bootstrap

Unit = Literal["n", "cpu_seconds"]

BUDGETS: dict[str, tuple[Unit, float]] = {
    **{f"n = {n}": ("n", n) for n in (50, 100, 200, 300, 500, 1000, 2000, 3000)},
    **{f"{s} s": ("cpu_seconds", s) for s in (3, 10, 30, 100, 300)},
}
"""Budgets at which regrets are compared, by their names in tables: of observations, and of seconds
of the optimiser's processor time.
"""
LAST = 20
"""Steps at the end of a run over which times and regrets are taken."""
LEAST = 1e-6
"""Regrets below this are counted as this: their logarithms say nothing."""
RESAMPLED = 2000
"""Times, for intervals of ranks."""


def log_regret(run: pd.DataFrame) -> pd.Series:
    """Logarithm of the inference regret by step, where it is known."""
    known = run.dropna(subset=["inference_regret"]).set_index("step")
    return np.log(known["inference_regret"].clip(lower=LEAST))


def summary(tables: Sequence[pd.DataFrame], batch: int) -> pd.DataFrame:
    """One row per surrogate: sizes, median seconds of the last steps by part, median regrets.

    Regrets and times are medians over the seeds of each run's median over its last 20 steps: with
    noise, the regret of a single step says little.

    Each table of a run has a column ``surrogate``. The log predictive density is given per point,
    of which there are ``batch`` in a step.
    """
    rows = []
    for label, runs in _by_label(tables).items():
        ends = [run[run["step"] > 0].tail(LAST).median(numeric_only=True) for run in runs]
        median = pd.DataFrame(ends).median()
        row: dict[str, object] = {"surrogate": label, "seeds": len(runs)}
        row |= {"steps": _least(runs, "step"), "n": _least(runs, "n")}
        row["total s"] = sum(run["wallclock_seconds"].iloc[-1] for run in runs) / len(runs)
        row["s/step"] = median["step_seconds"]
        row |= {f"{part} s": median[f"{part}_seconds"] for part in ("fit", "acquisition", "update")}
        for name in ("fit_evaluations", "simple_regret", "inference_regret"):
            row[name.replace("_", " ")] = median[name]
        row["log density/point"] = median["log_predictive"] / batch
        rows.append(row | {"state MB": median["bytes"] / 1e6})
    return pd.DataFrame(rows)


def paired(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One row per pair of surrogates: the first's log inference regret less the second's.

    Medians over the seeds that both have, at the last step both reached and in the mean of the last
    tenth of the steps up to it, with a bootstrap interval (95 %) where there are three seeds.
    """
    rows = []
    runs = {(str(t["surrogate"].iloc[0]), int(t["seed"].iloc[0])): log_regret(t) for t in tables}
    labels, seeds = dict.fromkeys(k[0] for k in runs), dict.fromkeys(k[1] for k in runs)
    for a, b in combinations(labels, 2):
        both = [seed for seed in seeds if (a, seed) in runs and (b, seed) in runs]
        for name, tenth in (("last step", False), ("last tenth", True)):
            met = [ends_in_common(runs[a, seed], runs[b, seed], tenth) for seed in both]
            ends = [end for end in met if end]
            if ends:
                d = paired_bootstrap([end[0] for end in ends], [end[1] for end in ends])
                rows.append((f"{a} - {b}", name, d.pairs, d.median, d.low, d.high))
    return pd.DataFrame(rows, columns=["pair", "at", "seeds", "median", "low", "high"])


class Reached(NamedTuple):
    """What a run had reached when a budget was spent: its last inference regret, observations, and
    processor seconds of the optimiser; NaN if it had not recommended anything by then.
    """

    regret: float
    n: float
    cpu_seconds: float


def at_budget(table: pd.DataFrame, unit: Unit, budget: float, within: bool = False) -> Reached:
    """How far one run, a table of a `BOLoop`, had come with a budget of this unit.

    A run that ended before counts only if ``within``, with what it ended with.
    """
    steps = table.assign(cpu_seconds=table["cpu_seconds"].cumsum())
    steps, spent = steps[steps[unit] <= budget], steps[unit].iloc[-1] >= budget
    known = steps["inference_regret"].dropna()
    if known.empty or not (spent or within):
        return Reached(math.nan, math.nan, math.nan)
    last = steps.iloc[-1]
    return Reached(float(known.iloc[-1]), float(last["n"]), float(last["cpu_seconds"]))


def budgets(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Medians over seeds of the inference regret at equal budgets, a row for each surrogate.

    There is a column for each of `BUDGETS` that any surrogate reached in all its runs. Where a
    surrogate did not, the value is NaN.
    """
    medians = {}
    for label, runs in _by_label(tables).items():
        lines = [
            {name: at_budget(t, *budget).regret for name, budget in BUDGETS.items()} for t in runs
        ]
        medians[label] = pd.DataFrame(lines).median(skipna=False)
    known = pd.DataFrame(medians).T.dropna(axis=1, how="all")
    return known.rename_axis("surrogate").reset_index()


def standings(parts: Mapping[str, Sequence[pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """How surrogates and peers stand on all problems: a table for each of `BUDGETS`.

    A table has a row for each that spent the budget in all its runs, the best first; within a
    budget of seconds, those that ended before count with what they ended with. Its columns:
    ``surrogate``; one for each problem, the median over seeds of the inference regret; ``led``, on
    how many problems that median is the least; ``mean rank`` within a problem and seed, 1 the
    best, with the bounds ``low`` and ``high`` of its 95 % bootstrap interval over problems and
    seeds; ``n`` and ``processor s``, the medians of what was spent. There is no table of a budget
    that none spent in all its runs, nor of one with nothing to compare.

    ``parts`` are tables of runs by problem, with the same surrogates and seeds for every problem.
    """
    found = {}
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
            found[name] = _standing(blocks, spent, list(parts))
    return found


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


def _by_label(tables: Sequence[pd.DataFrame]) -> dict[str, list[pd.DataFrame]]:
    """Tables of runs by surrogate, in the order in which these come first."""
    runs: dict[str, list[pd.DataFrame]] = {}
    for table in tables:
        runs.setdefault(str(table["surrogate"].iloc[0]), []).append(table)
    return runs


def _least(runs: Sequence[pd.DataFrame], column: str) -> int:
    """The least of the last values of a column."""
    return int(min(run[column].iloc[-1] for run in runs))
