"""Streams of an exchange rate, and a surrogate's scores along one of them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import pandas as pd
import torch
from botorch.models.transforms import Normalize, Standardize
from torch import Tensor

from bo_stream import ExactGP, surrogate
from bo_stream.scores import prequential, score
from experiments.common.kernels import standardised
from experiments.common.progress import Progress, say
from problems.tables import load_table

__all__ = ["Stream", "follow", "followed", "pretrained"]


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
        days = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
        count = int(c["held_out"] * len(X))
        test, seen = days[:count], days[count:]
        if order == "time":
            seen = seen.sort().values
        initial = math.ceil(c["initial"] * len(seen))
        bounds = torch.stack([X.amin(0), X.amax(0)])
        return cls(X[seen], Y[seen], X[test], Y[test], initial, bounds, standardised(Y))


def pretrained(stream: Stream, evaluations: int | None = None) -> ExactGP:
    """An exact GP with default kernel and priors, fitted to the stream's first days."""
    X, Y = stream.X[: stream.initial], stream.Y[: stream.initial]
    transform = Normalize(1, bounds=stream.bounds)
    model = ExactGP(X, Y, input_transform=transform, outcome_transform=stream.scale)
    model.fit(evaluations)
    return model


def followed(c: dict[str, Any], shown: list[str]) -> pd.DataFrame:
    """Every method's rows in every order and for every seed; prints the last ones, as ``shown``."""
    tables = []
    progress = Progress(len(c["orders"]) * len(c["seeds"]) * len(c["methods"]), "streams")
    for order in c["orders"]:
        for seed in c["seeds"]:
            stream = Stream.of(order, seed, c)
            first = pretrained(stream)
            for name, method in c["methods"].items():
                scores = follow(name, stream, first, method, lambda note: progress(note, done=0))
                tables.append(scores.assign(method=name, order=order, seed=seed))
                end = scores[shown].iloc[-1].round(3).to_dict()
                say(f"{order}, seed {seed}, {name}: {end}")
                progress()
    return pd.concat(tables, ignore_index=True)


def follow(
    name: str,
    stream: Stream,
    first: ExactGP,
    method: dict[str, Any],
    tell: Callable[[str], object],
) -> pd.DataFrame:
    """A family's scores day by day, each taken before the day is observed.

    Args:
        name: Of the family.
        stream: The data.
        first: Whose hyperparameters it starts with.
        method: ``options`` of the family, and ``evaluations``: how many of its objective a fit
            takes after each observation; 0 for no fit.
        tell: Called after each day, with its number.

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
    seconds = 0.0

    def learn(x: Tensor, y: Tensor) -> None:
        nonlocal seconds
        start = perf_counter()
        model.observe(x, y)
        if method["evaluations"]:
            model.fit(method["evaluations"])
        seconds = perf_counter() - start

    unit = float(stream.scale.stdvs)
    nats = math.log(unit)
    rows = []
    days = zip(X[n:].split(1), Y[n:].split(1), strict=True)
    for i, day in enumerate(prequential(model, days, learn)):
        held_out = score(model, stream.X_test, stream.Y_test, stream.Y_test)
        row: dict[str, float] = {"step": i, "n": n + i + 1}
        row |= {"loss": -day.log_density - nats, "square": day.squared_error / unit**2}
        row |= {"rmse": held_out.rmse / unit, "nll": held_out.nlpd - nats, "seconds": seconds}
        rows.append(row | {"mean_loss": day.mean_loss - nats, "running_rmse": day.rmse / unit})
        tell(f"{name}, day {i + 1} of {len(X) - n}")
    return pd.DataFrame(rows)


def _table(name: str) -> tuple[Tensor, Tensor]:
    table = load_table(name)
    return table.X, table.Y


def _synthetic() -> tuple[Tensor, Tensor]:
    """A wavy rate over 60 days."""
    generator = torch.Generator().manual_seed(0)
    X = torch.arange(60, dtype=torch.float64).unsqueeze(-1)
    noise = torch.randn(60, 1, generator=generator, dtype=torch.float64)
    return X, 0.5 + 0.02 * (X / 6.0).sin() + 0.002 * noise
