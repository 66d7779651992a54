"""Streams of an exchange rate, and a surrogate's scores along one of them."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import pandas as pd
import torch
from botorch.models.transforms import Normalize, Standardize
from torch import Tensor

from bo_stream import ExactGP, surrogate
from bo_stream.core.streaming import StreamingGP
from bo_stream.scores import score
from problems.tables import load_table

__all__ = ["Stream", "follow", "pretrained"]


@dataclass(frozen=True, eq=False)
class Stream:
    """A rate by day, in the order it is seen, with days held out; raw units.

    Attributes:
        X, Y: The days seen, ``n x 1`` each; the first ``initial`` of them for the first fit.
        X_test, Y_test: The days held out.
        initial: How many days the first fit has.
        bounds: First and last day, ``2 x 1``.
        scale: Standardises outcomes over the whole year, as the WISKI study does.
    """

    X: Tensor
    Y: Tensor
    X_test: Tensor
    Y_test: Tensor
    initial: int
    bounds: Tensor
    scale: Standardize

    @classmethod
    def of(cls, order: str, seed: int, c: dict[str, Any]) -> Stream:
        """The seed draws the days held out and, in random order, the order."""
        X, Y = _synthetic() if c["table"] == "synthetic" else _table(c["table"])
        scale = Standardize(1)
        scale(Y)
        days = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
        count = int(c["held_out"] * len(X))
        test, seen = days[:count], days[count:]
        if order == "time":
            seen = seen.sort().values
        initial = math.ceil(c["initial"] * len(seen))
        bounds = torch.stack([X.amin(0), X.amax(0)])
        return cls(X[seen], Y[seen], X[test], Y[test], initial, bounds, scale.eval())


def pretrained(stream: Stream, evaluations: int | None = None) -> ExactGP:
    """An exact GP with default kernel and priors, fitted to the stream's first days."""
    X, Y = stream.X[: stream.initial], stream.Y[: stream.initial]
    transform = Normalize(1, bounds=stream.bounds)
    model = ExactGP(X, Y, input_transform=transform, outcome_transform=stream.scale)
    model.fit(evaluations)
    return model


def follow(name: str, stream: Stream, first: ExactGP, method: dict[str, Any]) -> pd.DataFrame:
    """A family's scores day by day, each taken before the day is observed.

    Args:
        name: Of the family.
        stream: The data.
        first: Whose hyperparameters it starts with.
        method: ``options`` of the family, and ``evaluations``: how many of its objective a fit
            takes after each observation; 0 for no fit.

    Returns:
        A row a day: ``n`` observed so far; ``loss`` (negative log predictive density, nats, of
        standardised outcomes) and ``square`` (squared error) of the day to come, their running
        means ``mean_loss`` and ``running_rmse``; ``nll`` and ``rmse`` on the days held out;
        ``seconds`` of observing and fitting.
    """
    X, Y, n = stream.X, stream.Y, stream.initial
    model = surrogate(
        name,
        X[:n],
        Y[:n],
        bounds=stream.bounds,
        covar_module=copy.deepcopy(first.covar_module),
        mean_module=copy.deepcopy(first.mean_module),
        likelihood=copy.deepcopy(first.likelihood),
        input_transform=Normalize(1, bounds=stream.bounds),
        outcome_transform=stream.scale,
        **method["options"],
    )
    unit = float(stream.scale.stdvs)
    rows = []
    for i in range(n, len(X)):
        x, y = X[i : i + 1], Y[i : i + 1]
        square = float((model.posterior(x).mean - y).square()) / unit**2
        loss = -float(model.log_predictive(x, y)) - math.log(unit)
        start = perf_counter()
        _learn(model, x, y, method["evaluations"])
        seconds = perf_counter() - start
        held_out = score(model, stream.X_test, stream.Y_test, stream.Y_test)
        rmse, nll = held_out.rmse / unit, held_out.nlpd - math.log(unit)
        rows.append((i - n, i + 1, loss, square, rmse, nll, seconds))
    table = pd.DataFrame(rows, columns=["step", "n", "loss", "square", "rmse", "nll", "seconds"])
    running = table[["loss", "square"]].expanding().mean()
    return table.assign(mean_loss=running["loss"], running_rmse=running["square"] ** 0.5)


def _learn(model: StreamingGP, x: Tensor, y: Tensor, evaluations: int) -> None:
    model.observe(x, y)
    if evaluations:
        model.fit(evaluations)


def _table(name: str) -> tuple[Tensor, Tensor]:
    table = load_table(name)
    return table.X, table.Y


def _synthetic() -> tuple[Tensor, Tensor]:
    """A wavy rate over 60 days."""
    generator = torch.Generator().manual_seed(0)
    X = torch.arange(60, dtype=torch.float64).unsqueeze(-1)
    noise = torch.randn(60, 1, generator=generator, dtype=torch.float64)
    return X, 0.5 + 0.02 * (X / 6.0).sin() + 0.002 * noise
