"""Labels as they come: at random, class by class, and with a class that turns up late."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from bo_stream import DirichletClassifier
from experiments.classification.rows import Labelled

__all__ = ["ORDERS", "scores", "streamed"]

BATCH = 50
FITS = (1 / 8, 3 / 8, 1.0)
"""Shares of the stream after which hyperparameters are fitted."""


def at_random(y: Tensor) -> Tensor:
    """All rows shuffled."""
    return torch.randperm(len(y), generator=torch.Generator().manual_seed(0))


def class_by_class(y: Tensor) -> Tensor:
    """All of one class, then all of the other."""
    order = at_random(y)
    return order[y[order].argsort(stable=True)]


def late(y: Tensor) -> Tensor:
    """None of class 1 among the first quarter of the rows."""
    order = at_random(y)
    zeros = order[y[order] == 0]
    first = zeros[: min(len(y) // 4, len(zeros))]
    rest = order[~torch.isin(order, first)]
    return torch.cat([first, rest])


ORDERS = {"random": at_random, "class by class": class_by_class, "one class late": late}


def streamed(data: Labelled, order: str) -> dict[str, object]:
    """Scores at the end of a stream whose classes nobody names beforehand."""
    rows = ORDERS[order](data.y)
    start = time.process_time()
    first, *rest = rows.split(BATCH)
    model = DirichletClassifier(data.X[first], data.y[first], bounds=data.bounds)
    due = [share * len(rows) for share in FITS]
    for part in rest:
        model.observe(data.X[part], data.y[part])
        while due and model.num_observed >= due[0]:
            model.fit()
            due.pop(0)
    p = model.predict_proba(data.X_test)[:, [model.classes.index(k) for k in (0, 1)]]
    best = torch.as_tensor(model.predict(data.X_test))
    seconds = time.process_time() - start
    surrogate = type(model.model).__name__
    return {"surrogate": surrogate, **scores(best, p, data.y_test), "seconds": seconds}


def scores(best: Tensor, p: Tensor, y: Tensor) -> dict[str, float]:
    """Share of right labels, and mean negative logarithm of their probabilities."""
    right = p[torch.arange(len(y)), y]
    return {
        "accuracy": float((best == y).double().mean()),
        "log loss": float(-right.log().mean()),
    }
