"""Pounds per dollar in 2007 as a stream, with a spectral mixture kernel.

Run `python -m experiments.currencies`. Days come ten at a time, in order, each fifth day is held
out. WISKI and the exact GP learn hyperparameters again after every batch, O-SVGP takes 100 steps
of Adam on each. A row a batch and method: errors at the held-out days so far, and at the next ten
days before they are seen; a picture of the last posteriors; tables in results/currencies.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from gpytorch.kernels import Kernel, RBFKernel, SpectralMixtureKernel
from matplotlib import pyplot as plt
from torch import Tensor

from bo_stream import WISKI, ExactGP
from bo_stream.base.streaming_gp import StreamingGP
from experiments.common.baselines.online_svgp import OnlineSVGP
from experiments.common.baselines.surrogates import observations
from experiments.common.command import Out, Smoke, begin, command, start
from experiments.common.data import scores
from experiments.common.kernels import gaussian, scaled
from experiments.common.plots import save
from experiments.common.progress import Progress, say
from problems.tables import load_table

DAYS, EVERY, MIXTURES, EVALUATIONS = 10, 5, 4, 60
"""Days of a batch; which day of so many is held out; components; evaluations of a fit, at most."""

Row = dict[str, Any]


def main(out: Out = None, smoke: Smoke = False) -> None:
    """Stream the days to every method."""
    folder = begin("results/currencies", out, smoke, "about 3 minutes on one core")
    torch.set_num_threads(1)
    X, Y = days(smoke)
    held, rows, ends = torch.arange(len(X)) % EVERY == EVERY - 1, [], {}
    with Progress(len(METHODS), "methods") as progress:
        for name, build in METHODS.items():
            ends[name], streamed = followed(build, X, Y, held)
            rows += [{"method": name} | row for row in streamed]
            progress(name)
    table = pd.DataFrame(rows)
    table.to_csv(folder / "batches.csv", index=False)
    ahead = table.groupby("method", sort=False)[["forecast_rmse", "forecast_nlpd"]].median()
    last = table.groupby("method", sort=False).last()[["n", "rmse", "nlpd", "coverage", "seconds"]]
    summary = last.join(ahead).reset_index()
    summary.to_csv(folder / "summary.csv", index=False)
    draw(ends, X, Y, held, folder / "days.png")
    say("\nHeld-out days at the end; the next ten days, median over batches; deviations and nats\n")
    say(summary.to_string(index=False, float_format="{:.3g}".format))


def days(smoke: bool) -> tuple[Tensor, Tensor]:
    """Days, from 0 to 1, and rates in their own deviations; made up in a smoke run."""
    if smoke:
        X = torch.linspace(0.0, 1.0, 60, dtype=torch.float64).unsqueeze(-1)
        return X, (12.0 * X).sin()
    table = load_table("fx2007")
    X = table.X - table.X.min()
    return X / X.max(), (table.Y - table.Y.mean()) / table.Y.std()


def mixture(Y: Tensor, X: Tensor) -> Kernel:
    """A spectral mixture started at the spectrum of the first batch."""
    kernel = SpectralMixtureKernel(num_mixtures=MIXTURES).double()
    kernel.initialize_from_data(X, Y[:, 0])
    return kernel


def smooth(Y: Tensor, X: Tensor) -> Kernel:
    """A squared exponential."""
    return scaled(RBFKernel().double(), lengthscale=0.1)


def built(
    family: Callable[..., StreamingGP], kernel: Callable[[Tensor, Tensor], Kernel], **options: Any
) -> Callable[[Tensor, Tensor], StreamingGP]:
    """A method: what makes a surrogate of the first days."""

    def build(X: Tensor, Y: Tensor) -> StreamingGP:
        torch.manual_seed(0)  # the start of a mixture is drawn
        bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        own = {"covar_module": kernel(Y, X), "likelihood": gaussian(noise=0.01, floor=1e-4)}
        return family(X, Y, bounds=bounds, outcome_transform=None, **own, **options)

    return build


METHODS = {
    "exact GP, spectral mixture": built(ExactGP, mixture),
    "WISKI, spectral mixture": built(WISKI, mixture, grid_size=256),
    "O-SVGP, spectral mixture": built(
        OnlineSVGP, mixture, num_inducing=64, steps=100, learn_hyperparameters=True
    ),
    "WISKI, squared exponential": built(WISKI, smooth, grid_size=256),
    "O-SVGP, squared exponential": built(
        OnlineSVGP, smooth, num_inducing=64, steps=100, learn_hyperparameters=True
    ),
}


def followed(
    build: Callable[[Tensor, Tensor], StreamingGP], X: Tensor, Y: Tensor, held: Tensor
) -> tuple[StreamingGP, list[Row]]:
    """The surrogate after the last batch, and a row a batch."""
    model, rows, seconds = build(X[:DAYS][~held[:DAYS]], Y[:DAYS][~held[:DAYS]]), [], 0.0
    for k in range(DAYS, len(X) + 1, DAYS):
        began, day = time.process_time(), torch.arange(len(X))
        batch = ~held & (day >= k - DAYS) & (day < k)
        if k > DAYS:
            model.observe(X[batch], Y[batch])
        if not isinstance(model, OnlineSVGP):  # it climbs by itself, and a fit sees one batch
            model.fit(EVALUATIONS)
        model.process()
        seconds += time.process_time() - began
        so_far = held & (day < k)
        at_held = scores(*observations(model, X[so_far]), Y[so_far, 0])
        row = {"n": model.num_observed, "seconds": seconds} | at_held
        if k < len(X):
            ahead = scores(*observations(model, X[k : k + DAYS]), Y[k : k + DAYS, 0])
            row |= {"forecast_rmse": ahead["rmse"], "forecast_nlpd": ahead["nlpd"]}
        rows.append(row)
    return model, rows


def draw(ends: dict[str, StreamingGP], X: Tensor, Y: Tensor, held: Tensor, path: Path) -> None:
    """A panel a method: days seen and held out, mean, two deviations of observations."""
    size = (3.4 * len(ends), 3.2)
    figure, panels = plt.subplots(1, len(ends), figsize=size, sharey=True, layout="constrained")
    at = torch.linspace(0.0, 1.0, 501, dtype=torch.float64)
    for k, (ax, (name, model)) in enumerate(zip(panels, ends.items(), strict=True)):
        mean, variance = observations(model, at.unsqueeze(-1))
        half = 2.0 * variance.sqrt()
        ax.plot(X[~held], Y[~held], ".", color="0.7", markersize=3)
        ax.plot(X[held], Y[held], "x", color="0.2", markersize=3)
        ax.plot(at, mean, color=f"C{k}", linewidth=1)
        ax.fill_between(at, mean - half, mean + half, color=f"C{k}", alpha=0.2, linewidth=0)
        ax.set(title=name, xlabel="days of 2007, from 0 to 1")
    panels[0].set_ylabel("pounds per dollar; x: held out")
    save(figure, path)


app = command(main)

if __name__ == "__main__":
    start(app)
