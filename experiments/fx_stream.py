"""Streaming surrogates on an exchange rate, one day at a time, in order of time and at random.

Run `python -m experiments.fx_stream`. Prints the scores at the end of the stream, means over seeds;
writes them, every day's scores and pictures with bands over seeds to the config's folder.
"""

import copy
import math
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd
import torch
from botorch.models.transforms import Normalize, Standardize
from torch import Tensor

from bo_stream import ExactGP
from bo_stream.scores import prequential, score
from experiments.common.baselines.registry import FAMILIES
from experiments.common.command import CONFIGS, command, configured, start
from experiments.common.kernels import standardised
from experiments.common.plots import draw_bands, in_words
from experiments.common.progress import Progress, say
from problems.tables import load_table

PICTURES = {
    "mean_loss": "running mean of the next day's loss (nats)",
    "running_rmse": "running RMSE of the next day (standard deviations)",
    "nll": "NLPD of days held out (nats)",
    "rmse": "RMSE of days held out (standard deviations)",
}
"""Columns drawn, and what they are; losses in deviations of the year's rates."""
SMOKE = {"table": "synthetic", "orders": ["random"], "seeds": [0, 1]}


def main(c: dict[str, Any], folder: Path) -> None:
    """Follow the rate with every surrogate, in every order and for every seed; draw the scores."""
    days = followed(c)
    days.to_csv(folder / "days.csv", index=False)
    last = days[days["step"] == days.groupby(["order", "seed", "method"])["step"].transform("max")]
    means = last.groupby(["order", "method"], sort=False)[[*PICTURES]].mean()
    means["seconds"] = days.groupby(["order", "method"], sort=False)["seconds"].mean()
    means.to_csv(folder / "means.csv")
    words = {name: in_words(name) for name in c["methods"]}
    for order, part in days.groupby("order", sort=False):
        about = "in order of time" if order == "time" else "in random order"
        rate = "Made-up rate" if c["table"] == "synthetic" else f"Exchange rate {c['table']}"
        for column, label in PICTURES.items():
            path, labels = folder / f"{order!s}_{column}.png", {"n": "days seen", column: label}
            scale, title = column == "rmse", f"{rate}, {about}"
            draw_bands([part], column, "n", ["method"], path, scale, labels, title, words=words)
    say("\n" + means.round(4).to_string())


@dataclass(frozen=True, eq=False)
class RateStream:
    """A rate by day, ``n x 1`` each, in the order it is seen, with days held out; raw units.

    The first ``initial`` days are for the first fit; ``bounds`` are the first and the last day, ``2
    x 1``; ``scale`` standardises outcomes over the whole year, as the WISKI study does.
    """

    X: Tensor
    Y: Tensor
    X_test: Tensor
    Y_test: Tensor
    initial: int
    bounds: Tensor
    scale: Standardize

    def pretrained(self) -> ExactGP:
        """An exact GP with default kernel and priors, fitted to the first days."""
        transform = Normalize(1, bounds=self.bounds)
        first = self.X[: self.initial], self.Y[: self.initial]
        model = ExactGP(*first, input_transform=transform, outcome_transform=self.scale)
        model.fit()
        return model


def stream(order: str, seed: int, c: dict[str, Any]) -> RateStream:
    """The seed draws the days held out and, in random order, the order."""
    X, Y = rates(c["table"])
    days = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
    count = int(c["held_out"] * len(X))
    test, seen = days[:count], days[count:]
    if order == "time":
        seen = seen.sort().values
    initial = math.ceil(c["initial"] * len(seen))
    bounds = torch.stack([X.amin(0), X.amax(0)])
    return RateStream(X[seen], Y[seen], X[test], Y[test], initial, bounds, standardised(Y))


def followed(c: dict[str, Any]) -> pd.DataFrame:
    """Every method's rows in every order and for every seed; prints the last ones."""
    tables, each = [], list(product(c["orders"], c["seeds"]))
    with Progress(len(each) * len(c["methods"]), "streams") as progress:
        for order, seed in each:
            data = stream(order, seed, c)
            first = data.pretrained()
            for name, method in c["methods"].items():
                scores = follow(name, data, first, method)
                tables.append(scores.assign(method=name, order=order, seed=seed))
                end = scores[[*PICTURES]].iloc[-1].round(3).to_dict()
                say(f"{order}, seed {seed}, {name}: {end}")
                progress(name)
    return pd.concat(tables, ignore_index=True)


def follow(name: str, data: RateStream, first: ExactGP, method: dict[str, Any]) -> pd.DataFrame:
    """A family's scores day by day, each taken before the day is observed.

    Args:
        name: Of the family.
        data: The stream.
        first: Whose hyperparameters it starts with.
        method: ``options`` of the family, and ``evaluations``: how many of its objective a fit
            takes after each observation; 0 for no fit.

    Returns:
        A row a day: ``n`` observed so far; ``loss`` (negative log predictive density, nats, of
        standardised outcomes) and ``square`` (squared error) of the day to come, their running
        means ``mean_loss`` and ``running_rmse``; ``nll`` and ``rmse`` on the days held out;
        ``seconds`` of observing and fitting.
    """
    X, Y, n = data.X, data.Y, data.initial
    modules = ("covar_module", "mean_module", "likelihood")
    model = FAMILIES[name](
        X[:n],
        Y[:n],
        bounds=data.bounds,
        **{module: copy.deepcopy(getattr(first, module)) for module in modules},
        input_transform=Normalize(1, bounds=data.bounds),
        outcome_transform=data.scale,
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

    unit = float(data.scale.stdvs)
    nats, rows = math.log(unit), []
    days = zip(X[n:].split(1), Y[n:].split(1), strict=True)
    for i, day in enumerate(prequential(model, days, learn)):
        held_out = score(model, data.X_test, data.Y_test, data.Y_test)
        row: dict[str, float] = {"step": i, "n": n + i + 1}
        row |= {"loss": -day.log_density - nats, "square": day.squared_error / unit**2}
        row |= {"rmse": held_out.rmse / unit, "nll": held_out.nlpd - nats, "seconds": seconds}
        rows.append(row | {"mean_loss": day.mean_loss - nats, "running_rmse": day.rmse / unit})
    return pd.DataFrame(rows)


def rates(name: str) -> tuple[Tensor, Tensor]:
    """Days and rates of a table; ``synthetic``: a wavy rate over 60 days."""
    if name != "synthetic":
        table = load_table(name)
        return table.X, table.Y
    generator = torch.Generator().manual_seed(0)
    X = torch.arange(60, dtype=torch.float64).unsqueeze(-1)
    noise = torch.randn(60, 1, generator=generator, dtype=torch.float64)
    return X, 0.5 + 0.02 * (X / 6.0).sin() + 0.002 * noise


app = command(configured(main, CONFIGS / "fx.toml", SMOKE), __doc__)

if __name__ == "__main__":
    start(app)
