"""One method along one stream: every batch is scored before it is absorbed.

Rows have the columns that ``python -m experiments.report`` draws. ``update_seconds`` is the time of
absorbing a batch and bringing the posterior up to date, with refits by families that refit as they
observe. ``fit_seconds`` is the time of the fits that the configuration asks for, ``step_seconds``
the sum of both, ``wallclock_seconds`` its running sum, and ``cpu_seconds`` that of the same in
processor time, for a machine that does other things, too. ``predict_seconds`` is the time of
predicting the test rows, which is in none of the others, nor is scoring.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from experiments.common.data import TableSplit, rows_of, scores
from experiments.common.records import TimedRow
from experiments.common.study import ABOUT, quiet, without
from experiments.common.tables import write_table
from experiments.stream_regression.methods import Family, Pointwise, method
from experiments.stream_regression.rows import bounds_of, split_of

COLUMNS = (
    *("step", "n", "taken", "bytes", "fit_evaluations"),
    *(f"{part}_seconds" for part in ("update", "fit", "step", "wallclock", "cpu", "predict")),
    *("log_predictive", "stream_rmse", "stream_nlpd", "rmse", "nlpd", "coverage"),
)


@dataclass(frozen=True)
class RegressionSizes:
    """The most rows of the stream and rows held out, rows of the first batch and of later ones, the
    factors by which n grows from one fit (0: there is only the first) and from one scoring of the
    test rows to the next, and the most evaluations of the objective in a fit.
    """

    rows: int
    test: int
    first: int
    batch: int
    fit_every: float
    score_every: float
    evaluations: int


@dataclass(frozen=True)
class RegressionRun:
    """One method, table, order and seed, which says which rows are held out.

    The method's options may include ``rows`` (it learns from no more than so many, and is only
    scored on the rest of the stream) and ``forget`` (the factor by which the weight of earlier rows
    shrinks with every batch). ``label`` is its name in tables; ``files`` and ``title`` stand for
    the method and the table in names of files.
    """

    label: str
    files: str
    surrogate: dict[str, Any]
    table: dict[str, Any]
    order: str
    sizes: RegressionSizes
    seed: int
    title: str

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return f"{self.title}_{self.order}_{self.files}_{self.seed}".replace(" ", "-")

    def execute(self, folder: Path) -> None:
        """Go along the stream, after a throw-away step, so that no timing pays for imports."""
        s = self.sizes
        with quiet():
            split = split_of(*rows_of(self.table), self.order, s.rows, s.test, self.seed)
            brief = replace(s, evaluations=1, first=min(s.first, 30), batch=5)
            for _ in islice(self.followed(split, brief), 2):
                pass
            rows = list(self.followed(split, s))
        task: dict[str, Any] = {"name": self.title, "order": self.order}
        task |= {"inputs": split.X.shape[1], "rows": len(split.X), "test rows": len(split.X_test)}
        about: dict[str, Any] = {"label": self.label, "problem": task, "table": self.table}
        about |= {"surrogate": self.surrogate, "seed": self.seed, "config": asdict(s)}
        write_table(pd.DataFrame(rows), folder / f"{self.stem}.csv", about)

    def followed(self, split: TableSplit, sizes: RegressionSizes) -> Iterator[Mapping[str, Any]]:
        """A row of results for each batch."""
        options = without(self.surrogate, (*ABOUT, "rows"))
        own = method(self.surrogate["name"], options, bounds_of(split), self.seed)
        return _rows(own, split, sizes, self.surrogate.get("rows", len(split.X)))


def _rows(
    own: Family | Pointwise, split: TableSplit, sizes: RegressionSizes, most: int
) -> Iterator[Mapping[str, Any]]:
    """Rows of results, one for each batch; test rows are scored first, last, and as n grows."""
    row, spent, cpu = TimedRow(COLUMNS), 0.0, 0.0
    seen, taken, fitted, judged = 0, 0, 0, 0

    def learn(X: Tensor, Y: Tensor) -> None:
        nonlocal seen, taken, fitted
        room = min(len(X), most - taken)
        if room > 0:
            with row.timed("update_seconds"):
                own.absorb(X[:room], Y[:room])
            taken += room
            due = taken >= sizes.fit_every * fitted if sizes.fit_every else not fitted
            if due:
                with row.timed("fit_seconds"):
                    row["fit_evaluations"] = own.fit(sizes.evaluations)
                fitted = taken
        seen += len(X)

    first = min(sizes.first, len(split.X) - 1)
    learn(split.X[:first], split.Y[:first])
    parts = split.X[first:].split(sizes.batch), split.Y[first:].split(sizes.batch)
    stream = own.scored(zip(*parts, strict=True), learn)
    step = 0
    while True:
        seconds = row["update_seconds"] + row["fit_seconds"]
        spent, cpu = spent + seconds, cpu + row.spent_on(("update_seconds", "fit_seconds"))
        row |= {"step": step, "n": seen, "taken": taken, "bytes": own.bytes}
        row |= {"step_seconds": seconds, "wallclock_seconds": spent, "cpu_seconds": cpu}
        row["predict_seconds"] = math.nan
        if seen >= sizes.score_every * judged or seen == len(split.X):
            row["predict_seconds"], judged = 0.0, seen
            with torch.no_grad(), row.timed("predict_seconds"):
                predicted = own.predict(split.X_test)
            row |= scores(*predicted, split.Y_test[:, 0])
        yield dict(row)
        step, row = step + 1, TimedRow(COLUMNS)
        score = next(stream, None)
        if score is None:
            return
        row |= {"log_predictive": score.log_density, "stream_rmse": score.rmse}
        row |= {"stream_nlpd": score.mean_loss}
