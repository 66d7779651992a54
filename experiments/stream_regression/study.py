"""Every table, order, surrogate and seed as a run, and how streams ended."""

import inspect
from collections.abc import Sequence
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bo_stream.scores import paired_bootstrap
from experiments.common.baselines.registry import BASELINES, FAMILIES
from experiments.common.command import BadParameter, refuse_unknown
from experiments.common.data import MADE_UP, rows_of
from experiments.common.progress import say
from experiments.common.study import (
    ABOUT,
    listed,
    refuse_options,
    surrogates,
    tables,
    takes_part,
)
from experiments.common.tables import with_stored
from experiments.stream_regression.rows import ORDERS
from experiments.stream_regression.runs import RegressionRun, RegressionSizes

SMOKE = {"rows": 90, "test": 40, "first": 30, "batch": 20, "evaluations": 5}
LAST = {
    "n": "n",
    "rmse": "RMSE",
    "nlpd": "NLPD",
    "coverage": "coverage",
    "stream_nlpd": "stream NLPD",
    "cpu_seconds": "processor s",
    "bytes": "bytes",
}
TASK = ["table", "order"]
OPTIONAL = ("stored",)
"""Keys that a configuration need not have."""
COMPARED = {"rmse": "log RMSE", "nlpd": "NLPD"}
Done = Sequence[tuple[RegressionRun, pd.DataFrame]]


def plan(c: dict[str, Any], smoke: bool = False) -> list[RegressionRun]:
    """All runs of a configuration, each with a stem of its own.

    See ``experiments/configs/stream_tables.toml``. A smoke run has few rows that were made up
    instead of tables, and one seed.

    Raises:
        BadParameter: for what the configuration cannot mean, in one line.
    """
    read = tables(c["table"])
    for entry in c["surrogate"]:
        _check(entry)
    refuse_unknown(listed(c["order"]), ORDERS, "order")
    sizes = {field.name: c[field.name] for field in fields(RegressionSizes)} | (
        SMOKE if smoke else {}
    )
    for name, value in {"rows": 3, "test": 1, "first": 2, "batch": 1, "evaluations": 1}.items():
        if sizes[name] < value:
            raise BadParameter(f"{name} is {sizes[name]}; it has to be at least {value}.")
    if sizes["score_every"] <= 1.0 or (sizes["fit_every"] and sizes["fit_every"] <= 1.0):
        raise BadParameter("score_every and fit_every are factors above 1; fit_every may be 0.")
    read = tables([{"name": MADE_UP}]) if smoke else read
    places = [(entry, rows_of(entry)[0].shape[1], title) for entry, _, title in read]
    budgets = {"seconds": 0.0} if smoke else {}  # then a baseline takes one step a batch
    entries = [{**e, **budgets} if "seconds" in e else e for e in c["surrogate"]]
    seeds, methods = c["seeds"][:1] if smoke else c["seeds"], surrogates(entries)
    each = product(places, listed(c["order"]), methods, seeds)
    return [
        RegressionRun(label, files, entry, table, order, RegressionSizes(**sizes), seed, title)
        for (table, dim, title), order, (entry, label, files), seed in each
        if takes_part(entry, dim)
    ]


def report(c: dict[str, Any], done: Done, folder: Path) -> None:
    """Print medians at the end and differences by seed; write ``summary.csv``, ``paired.csv`` and
    what they are made from, ``ends.csv``. Runs that are ``stored`` there count as done.
    """
    last = with_stored(last_rows(done), [*TASK, "surrogate", "seed"], c)
    summary, pairs = ends(last), differences(last)
    last.to_csv(folder / "ends.csv", index=False)
    summary.to_csv(folder / "summary.csv", index=False)
    pairs.to_csv(folder / "paired.csv", index=False)
    say(f"\n{c['title']}: medians over seeds at the end\n")
    say(summary.to_string(index=False, float_format="{:.4g}".format, na_rep="-"))
    if len(pairs):
        say("\nDifferences from the best, by seed\n")
        say(pairs.to_string(index=False, float_format="{:.3f}".format, na_rep="-"))
    say(f"\nPictures: python -m experiments.report {folder}")


def ends(last: pd.DataFrame) -> pd.DataFrame:
    """Medians over seeds of `last_rows`, a row for each table, order and surrogate."""
    grouped = last.groupby([*TASK, "surrogate"], sort=False)
    counts, medians = grouped.size().rename("seeds"), grouped[list(LAST)].median()
    return pd.concat([counts, medians.rename(columns=LAST)], axis=1).reset_index()


def differences(last: pd.DataFrame) -> pd.DataFrame:
    """Scores of `last_rows` less those of the best surrogate, by seed; a row for each task, score
    and surrogate.

    The best surrogate is the one with the least median. Rows have medians of the differences, with
    bootstrap intervals (95 %) where there are three seeds.
    """
    last, rows = last.assign(rmse=np.log(last["rmse"])), []
    tasks = list(last.groupby(TASK, sort=False))
    for (task, part), (score, about) in product(tasks, COMPARED.items()):
        by_seed = part.pivot(index="seed", columns="surrogate", values=score)
        best = by_seed.median().idxmin()
        for label in part["surrogate"].drop_duplicates():
            both = by_seed[[label, best]].dropna()
            if label != best and len(both):
                d = paired_bootstrap(both[label], both[best])
                row: dict[str, Any] = dict(zip(TASK, task, strict=True))
                row |= {"pair": f"{label} - {best}", "of": about, "seeds": d.pairs}
                rows.append({**row, "median": d.median, "low": d.low, "high": d.high})
    return pd.DataFrame(rows)


def last_rows(done: Done) -> pd.DataFrame:
    """The last row of each run, with what it is of."""
    rows = []
    for run, table in done:
        of = {"table": run.title, "order": run.order, "surrogate": run.label, "seed": run.seed}
        rows.append(of | table.iloc[-1][list(LAST)].to_dict())
    return pd.DataFrame(rows)


def _check(entry: dict[str, Any]) -> None:
    name = entry.get("name")
    if name in BASELINES:
        known = set(inspect.signature(BASELINES[name]).parameters) - {"seed", "own"}
        refuse_unknown(entry, {*known, *ABOUT, "rows", "seconds"}, f"baseline {name}")
    elif name in FAMILIES:
        refuse_options(entry, ["rows", "forget"])
    else:
        raise BadParameter(f"no surrogate {name}; there are {', '.join([*FAMILIES, *BASELINES])}.")
