"""One family along one stream of labels; the classes are not named beforehand.

Rows have the columns that ``bo-stream report`` draws: the seconds of absorbing a batch and of fits,
accuracy and log loss at the test rows, and ``stream_accuracy``, that of all batches so far, each
predicted before it was absorbed. There is no log loss before both classes were seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bo_stream import DirichletClassifier
from bo_stream.campaign.records import Row, environment, write_table
from experiments.common.kinds import built, quiet, without
from experiments.common.provenance import provenance
from experiments.common.sweep import Callback
from experiments.stream_classification.exact import exact_scores
from experiments.stream_classification.orders import ORDERS, at_random
from experiments.stream_classification.rows import Labelled, labelled

__all__ = ["AtOnce", "Exact", "Sizes", "Stream", "scores"]

COLUMNS = (
    *("step", "n", "bytes", "fit_evaluations"),
    *(f"{part}_seconds" for part in ("update", "fit", "step", "wallclock", "predict")),
    *("stream_accuracy", "accuracy", "log_loss"),
)


@dataclass(frozen=True)
class Sizes:
    """How streams go.

    Attributes:
        batch: Rows of each batch.
        fits: Shares of the stream after which hyperparameters are fitted.
        score_every: Factor by which n grows from one scoring of the test rows to the next.
    """

    batch: int
    fits: tuple[float, ...]
    score_every: float


@dataclass(frozen=True)
class Stream:
    """One family, table, order and seed.

    Attributes:
        surrogate: Name and options of the family.
        label: Name of the family in tables and pictures.
        files: Its part in names of files.
        table: Name.
        order: Of the labels.
        sizes: How the stream goes.
        seed: Of the order.
        steps: How much work it is: the number of training rows.
    """

    surrogate: dict[str, Any]
    label: str
    files: str
    table: str
    order: str
    sizes: Sizes
    seed: int
    steps: int

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        named = f"{self.table}_{self.files}_{self.order}_{self.seed}"
        return named.replace(" ", "-")

    def execute(self, folder: Path, progress: Callback) -> None:
        """Go along the stream, after a throw-away step, so that no timing pays for imports."""
        rows = []
        with quiet():
            data = labelled(self.table)
            self._built(data, torch.arange(5)).observe(data.X[5:6], data.y[5:6])
            for row in self._rows(data):
                rows.append(row)
                progress({**row, "step": row["n"]})
        about: dict[str, Any] = {"label": f"{self.label}, {self.order}", "problem": self.table}
        about |= {"surrogate": self.surrogate, "order": self.order, "seed": self.seed}
        about |= {"config": asdict(self.sizes), "environment": environment(), **provenance()}
        write_table(pd.DataFrame(rows), folder / f"{self.stem}.csv", about)

    def _built(self, data: Labelled, rows: Tensor) -> DirichletClassifier:
        options = built(without(self.surrogate)) | {"surrogate": self.surrogate["name"]}
        return DirichletClassifier(data.X[rows], data.y[rows], bounds=data.bounds, **options)

    def _rows(self, data: Labelled) -> Iterator[Mapping[str, Any]]:
        order, sizes = ORDERS[self.order](data.y, self.seed), self.sizes
        first, *rest = order.split(sizes.batch)
        row, spent, judged = Row(COLUMNS), 0.0, 0
        with row.timed("update_seconds"):
            model = self._built(data, first)
        due, right = [share * len(order) for share in sizes.fits], 0
        for step, part in enumerate([first, *rest]):
            if step:
                row = Row(COLUMNS)
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
    """The exact GP's sizes.

    Attributes:
        first: Rows on which hyperparameters are first fitted to convergence.
        maxiter: Steps of the fit to all rows after that.
        samples: Samples of the softmax.
    """

    first: int
    maxiter: int
    samples: int


@dataclass(frozen=True)
class Exact:
    """gpytorch's exact Dirichlet GP on all training rows of a table at once.

    Attributes:
        table: Name.
        sizes: Its settings.
        seed: Of the first rows and of the samples.
        steps: How much work it is, in rows of a stream.
    """

    table: str
    sizes: AtOnce
    seed: int
    steps: int
    label = "exact GP"
    order = "all at once"

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return f"{self.table}_exact-GP_{self.seed}".replace(" ", "-")

    def execute(self, folder: Path, progress: Callback) -> None:
        """Fit and predict, and write one row."""
        with quiet():
            data, row = labelled(self.table), Row(COLUMNS)
            few = at_random(data.y, self.seed)[: self.sizes.first]
            best, p, spent = exact_scores(
                data, few, self.sizes.maxiter, self.sizes.samples, self.seed
            )
            row |= {"step": 0, "n": len(data.y), **spent}
            row["step_seconds"] = row["wallclock_seconds"] = spent["fit_seconds"]
            row |= scores(best, p, data.y_test)
        progress(row)
        about: dict[str, Any] = {"label": f"{self.label}, {self.order}", "problem": self.table}
        about |= {"order": self.order, "seed": self.seed}
        about |= {"config": asdict(self.sizes), "environment": environment(), **provenance()}
        write_table(pd.DataFrame([row]), folder / f"{self.stem}.csv", about)


def scores(best: Tensor, p: Tensor, y: Tensor) -> dict[str, float]:
    """``accuracy``, the share of correct labels, and ``log_loss``.

    Args:
        best: ``n`` predicted labels.
        p: ``n x 2`` probabilities; for ``n x 1``, of a single class, the log loss is NaN.
        y: ``n`` labels.
    """
    accuracy = float((best == y).double().mean())
    if p.shape[1] < 2:
        return {"accuracy": accuracy, "log_loss": math.nan}
    right = p[torch.arange(len(y)), y]
    return {"accuracy": accuracy, "log_loss": float(-right.log().mean())}


def _best(model: DirichletClassifier, X: Tensor) -> Tensor:
    return torch.as_tensor(model.predict(X))


def _probabilities(model: DirichletClassifier, X: Tensor) -> Tensor:
    """Probabilities of classes 0 and 1 in this order, or of the only one seen."""
    return model.predict_proba(X)[:, [model.classes.index(k) for k in sorted(model.classes)]]
