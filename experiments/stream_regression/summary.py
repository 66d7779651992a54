"""Where streams ended: a line a surrogate, and its differences from the best, seed by seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bo_stream.scores import paired_bootstrap
from experiments.stream_regression.course import Course

__all__ = ["differences", "ends"]

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


def ends(done: Done) -> pd.DataFrame:
    """A row a table, order and surrogate: medians over seeds at the end.

    Args:
        done: Runs with their tables, a row a step.
    """
    last = _last(done)
    grouped = last.groupby([*TASK, "surrogate"], sort=False)
    counts, medians = grouped.size().rename("seeds"), grouped[list(LAST)].median()
    return pd.concat([counts, medians.rename(columns=LAST)], axis=1).reset_index()


def differences(done: Done) -> pd.DataFrame:
    """A row a task, score and surrogate: its score less that of the best there, by seed.

    The best is that of the least median. Medians of differences, with a bootstrap interval (95 %)
    where there are three seeds.
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
