"""Families along streams of labels, whose classes are not named beforehand, and an exact GP.

Rows have the columns that ``python -m experiments.report`` draws: the seconds of absorbing a batch
and of fits, accuracy and log loss at the test rows, and ``stream_accuracy``, that of all batches so
far, each predicted before it was absorbed. There is no log loss before both classes were seen.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bo_stream import DirichletClassifier
from experiments.common.command import BadParameter, refuse_unknown
from experiments.common.data import MADE_UP
from experiments.common.progress import say
from experiments.common.records import TimedRow
from experiments.common.study import (
    listed,
    quiet,
    refuse_options,
    surrogates,
    tables,
    takes_part,
    without,
)
from experiments.common.tables import with_stored, write_table
from experiments.stream_classification.exact import fitted, predicted
from experiments.stream_classification.labels import ORDERS, Labelled, at_random, labelled

OPTIONAL = ("stored",)
"""Keys that a configuration need not have."""
COLUMNS = (
    *("step", "n", "bytes", "fit_evaluations"),
    *(f"{part}_seconds" for part in ("update", "fit", "step", "wallclock", "predict")),
    *("stream_accuracy", "accuracy", "log_loss"),
)


@dataclass(frozen=True)
class LabelSizes:
    """Rows of a batch, shares of the stream after which hyperparameters are fitted, and the factor
    by which n grows from one scoring of the test rows to the next.
    """

    batch: int
    fits: tuple[float, ...]
    score_every: float


@dataclass(frozen=True)
class LabelStream:
    """One family, by its name and options, along one table in one order, which the seed draws.

    ``label`` and ``files`` are what the family is called in tables and in names of files, ``title``
    what the table is.
    """

    surrogate: dict[str, Any]
    label: str
    files: str
    table: dict[str, Any]
    title: str
    order: str
    sizes: LabelSizes
    seed: int

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return f"{self.title}_{self.files}_{self.order}_{self.seed}".replace(" ", "-")

    def execute(self, folder: Path) -> None:
        """Go along the stream, after a throw-away step, so that no timing pays for imports."""
        with quiet():
            data = labelled(self.table)
            self._built(data, torch.arange(5)).observe(data.X[5:6], data.y[5:6])
            rows = list(self._rows(data))
        _write(self, rows, folder, {"surrogate": self.surrogate})

    def _built(self, data: Labelled, rows: Tensor) -> DirichletClassifier:
        options = without(self.surrogate) | {"surrogate": self.surrogate["name"]}
        return DirichletClassifier(data.X[rows], data.y[rows], bounds=data.bounds, **options)

    def _rows(self, data: Labelled) -> Iterator[Mapping[str, Any]]:
        order, sizes = ORDERS[self.order](data.y, self.seed), self.sizes
        first, *rest = order.split(sizes.batch)
        row, spent, judged = TimedRow(COLUMNS), 0.0, 0
        with row.timed("update_seconds"):
            model = self._built(data, first)
        due, right = [share * len(order) for share in sizes.fits], 0
        for step, part in enumerate([first, *rest]):
            if step:
                row = TimedRow(COLUMNS)
                right += int((_best(model, data.X[part]) == data.y[part]).sum())
                row["stream_accuracy"] = right / (model.num_observed + len(part) - len(first))
                with row.timed("update_seconds"):
                    model.observe(data.X[part], data.y[part])
            while step and due and model.num_observed >= due[0]:
                with row.timed("fit_seconds"):
                    row["fit_evaluations"] += model.fit().evaluations
                due.pop(0)
            n, seconds = model.num_observed, row["update_seconds"] + row["fit_seconds"]
            spent += seconds
            row |= {"step": step, "n": n, "bytes": model.state_bytes, "step_seconds": seconds}
            row |= {"wallclock_seconds": spent, "predict_seconds": math.nan}
            if n >= sizes.score_every * judged or n == len(order):
                row["predict_seconds"], judged = 0.0, n
                with row.timed("predict_seconds"):
                    best, p = _best(model, data.X_test), _probabilities(model, data.X_test)
                row |= scores(best, p, data.y_test)
            yield dict(row)


@dataclass(frozen=True)
class AtOnce:
    """The exact GP's rows on which hyperparameters are first fitted, steps of the fit to all rows
    after that, and samples of the softmax.
    """

    first: int
    maxiter: int
    samples: int


@dataclass(frozen=True)
class Exact:
    """gpytorch's exact Dirichlet GP on all training rows of a table at once; ``seed`` is that of
    the first rows and of the samples.
    """

    table: dict[str, Any]
    title: str
    sizes: AtOnce
    seed: int
    label = "exact GP"
    order = "all at once"

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return f"{self.title}_exact-GP_{self.seed}".replace(" ", "-")

    def execute(self, folder: Path) -> None:
        """Fit and predict, and write one row."""
        data, row, s = labelled(self.table), TimedRow(COLUMNS), self.sizes
        with quiet():
            few = at_random(data.y, self.seed)[: s.first]
            with row.timed("fit_seconds"):
                model = fitted(data.X, data.y, few, s.maxiter)
            with row.timed("predict_seconds"):
                best, p = predicted(model, data.X_test, s.samples, self.seed)
        row |= {"step": 0, "n": len(data.y)} | scores(best, p, data.y_test)
        row["step_seconds"] = row["wallclock_seconds"] = row["fit_seconds"]
        _write(self, [row], folder, {})


def _write(
    run: LabelStream | Exact, rows: Sequence[Mapping[str, Any]], folder: Path, more: dict[str, Any]
) -> None:
    """The table of a run, and how it came about."""
    about: dict[str, Any] = {"label": f"{run.label}, {run.order}", "problem": run.title, **more}
    about |= {"table": run.table, "order": run.order, "seed": run.seed, "config": asdict(run.sizes)}
    write_table(pd.DataFrame(rows), folder / f"{run.stem}.csv", about)


def scores(best: Tensor, p: Tensor, y: Tensor) -> dict[str, float]:
    """``accuracy``, the share of correct labels, and ``log_loss``, of ``n`` labels.

    ``p`` are ``n x 2`` probabilities; for ``n x 1``, of a single class, the log loss is NaN.
    """
    accuracy = float((best == y).double().mean())
    if p.shape[1] < 2:
        return {"accuracy": accuracy, "log_loss": math.nan}
    right = p[torch.arange(len(y)), y]
    return {"accuracy": accuracy, "log_loss": float(-right.log().mean())}


def plan(c: dict[str, Any], smoke: bool = False) -> list[LabelStream | Exact]:
    """Every table, order, family and seed of a configuration, and the exact GP on each table.

    See ``experiments/configs/classes.toml``. A smoke run has a few rows that were made up instead
    of tables, and one seed.

    Raises:
        BadParameter: for what the configuration cannot mean, in one line.
    """
    orders = listed(c["order"])
    refuse_unknown(orders, ORDERS, "order")
    refuse_unknown(c["exact"], (field.name for field in fields(AtOnce)), "exact")
    for entry in c["surrogate"]:
        refuse_options(entry)
    sizes = LabelSizes(c["batch"], tuple(c["fits"]), c["score_every"])
    if sizes.batch < 1 or sizes.score_every <= 1.0 or sorted(sizes.fits) != list(sizes.fits):
        raise BadParameter("batch is at least 1, score_every above 1, and fits are in order.")
    read, seeds = tables([{"name": MADE_UP}] if smoke else c["table"]), c["seeds"]
    seeds = seeds[:1] if smoke else seeds
    places = [(table, title, labelled(table).X.shape[1]) for table, _, title in read]
    runs: list[LabelStream | Exact] = [
        LabelStream(entry, label, files, table, title, order, sizes, seed)
        for (table, title, dim), order, (entry, label, files), seed in product(
            places, orders, surrogates(c["surrogate"]), seeds
        )
        if takes_part(entry, dim)
    ]
    exact = AtOnce(**c["exact"])
    each = product(places, seeds)
    return runs + [Exact(table, title, exact, seed) for (table, title, _), seed in each]


def report(
    c: dict[str, Any], done: Sequence[tuple[LabelStream | Exact, pd.DataFrame]], folder: Path
) -> None:
    """Print medians over seeds and write them to ``accuracies.csv``, and what they are made from to
    ``ends.csv``. Runs that are ``stored`` there count as done.
    """
    lines = []
    for run, table in done:
        of = {"table": run.title, "order": run.order, "surrogate": run.label}
        end = table.iloc[-1]
        scored = {name: end[name] for name in ("accuracy", "log_loss", "bytes")}
        seconds = end["wallclock_seconds"] + end["predict_seconds"]
        lines.append(of | {"seed": run.seed} | scored | {"seconds": seconds})
    keys = ["table", "order", "surrogate"]
    last = with_stored(pd.DataFrame(lines), [*keys, "seed"], c)
    last.to_csv(folder / "ends.csv", index=False)
    ends = last.groupby(keys, sort=False)
    result = pd.concat([ends.size().rename("seeds"), ends.median().drop(columns="seed")], axis=1)
    result = result.reset_index()
    result.to_csv(folder / "accuracies.csv", index=False)
    say(f"\n{c['title']}: medians over seeds at the end\n")
    say(result.to_string(index=False, float_format="{:.4g}".format, na_rep="-"))
    say(f"\nPictures: python -m experiments.report {folder}")


def _best(model: DirichletClassifier, X: Tensor) -> Tensor:
    return torch.as_tensor(model.predict(X))


def _probabilities(model: DirichletClassifier, X: Tensor) -> Tensor:
    """Probabilities of classes 0 and 1 in this order, or of the only one seen."""
    return model.predict_proba(X)[:, [model.classes.index(k) for k in sorted(model.classes)]]
