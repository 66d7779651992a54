"""How streams ended: a row for each surrogate, and its differences from the best, by seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bo_stream.scores import paired_bootstrap
from experiments.common.progress import say
from experiments.stream_regression.course import Course

__all__ = ["differences", "ends", "report"]

LAST = {
    "n": "n",
    "rmse": "RMSE",
    "nlpd": "NLPD",
    "coverage": "coverage",
    "stream_nlpd": "stream NLPD",
    "wallclock_seconds": "seconds",
    "bytes": "bytes",
}
Done = Sequence[tuple[Course, pd.DataFrame]]
TASK = ["table", "order"]
COMPARED = {"rmse": "log RMSE", "nlpd": "NLPD"}


def report(c: dict[str, Any], done: Done, folder: Path) -> None:
    """Print medians at the end and differences by seed; write ``summary.csv`` and ``paired.csv``.

    Args:
        c: The configuration.
        done: Runs with their tables, a row for each step.
        folder: Of the results.
    """
    summary, pairs = ends(done), differences(done)
    summary.to_csv(folder / "summary.csv", index=False)
    pairs.to_csv(folder / "paired.csv", index=False)
    say(f"\n{c['title']}: medians over seeds at the end\n")
    say(summary.to_string(index=False, float_format="{:.4g}".format, na_rep="-"))
    if len(pairs):
        say("\nDifferences from the best, by seed\n")
        say(pairs.to_string(index=False, float_format="{:.3f}".format, na_rep="-"))
    say(f"\nPictures: bo-stream report {folder}")


def ends(done: Done) -> pd.DataFrame:
    """Medians over seeds at the end, a row for each table, order and surrogate.

    Args:
        done: Runs with their tables, a row for each step.
    """
    last = _last(done)
    grouped = last.groupby([*TASK, "surrogate"], sort=False)
    counts, medians = grouped.size().rename("seeds"), grouped[list(LAST)].median()
    return pd.concat([counts, medians.rename(columns=LAST)], axis=1).reset_index()


def differences(done: Done) -> pd.DataFrame:
    """Scores less those of the best surrogate, by seed; a row for each task, score and surrogate.

    The best surrogate is the one with the least median. Rows have medians of the differences, with
    bootstrap intervals (95 %) where there are three seeds.
    """
    last, rows = _last(done), []
    last["rmse"] = np.log(last["rmse"])
    for (*task, score), part in _scored(last):
        by_seed = part.pivot(index="seed", columns="surrogate", values=score)
        best = by_seed.median().idxmin()
        for label in part["surrogate"].drop_duplicates():
            both = by_seed[[label, best]].dropna()
            if label != best and len(both):
                d = paired_bootstrap(both[label], both[best])
                row: dict[str, Any] = dict(zip(TASK, task, strict=True))
                row |= {"pair": f"{label} - {best}", "of": COMPARED[score], "seeds": d.pairs}
                rows.append({**row, "median": d.median, "low": d.low, "high": d.high})
    return pd.DataFrame(rows)


def _scored(last: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
    """Every task, with each score that is compared."""
    for (table, order), part in last.groupby(TASK, sort=False):
        for score in COMPARED:
            yield (str(table), str(order), score), part


def _last(done: Done) -> pd.DataFrame:
    """The last row of each run, with what it is of."""
    rows = []
    for run, table in done:
        of = {"table": run.title, "order": run.order, "surrogate": run.label, "seed": run.seed}
        rows.append(of | table.iloc[-1][list(LAST)].to_dict())
    return pd.DataFrame(rows)
