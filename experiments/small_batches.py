"""Online SGPR fed a few points at a time: its size, what pruning saves, how hyperparameters drift.

Run `python -m experiments.small_batches`. Three parts, each a table:

- points arrive one to six at a time, hyperparameters held after a first fit. VIPS weighs each batch
  against what the model knows and stops growing, at whatever size of the batches; `Pruned` ends
  with about as many points;
- points chosen under a lengthscale that is much too short, and a refit that then finds the right
  one: VIPS keeps the points that are now superfluous, `Pruned` drops them, at the same error;
- refits on batches of six: they cost accuracy whatever holds hyperparameters back, and without
  priors the lengthscale drifts away.

Writes the tables and pictures to results/small_batches.
"""

import time
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import pandas as pd
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from bo_stream import OnlineSGPR
from bo_stream.growth import VIPS, GrowthPolicy, Pruned
from experiments.common.command import Out, Smoke, begin, command, start
from experiments.common.kernels import RAW, gaussian, scaled
from experiments.common.plots import draw_bands, draw_sizes
from experiments.common.progress import Progress, say
from experiments.growth.scenarios import Scenario, stream

POLICIES: dict[str, GrowthPolicy] = {"VIPS": VIPS(), "Pruned(VIPS)": Pruned(VIPS())}
NOISE = 0.2
SHORT, FIRST = 0.15, 60
"""A lengthscale much too short for the functions streamed, and the points taken in under it."""
LABELS = {
    "step": "batch (6 points each)",
    "rmse": "test RMSE (the function's units)",
    "lengthscale": "lengthscale (the inputs' units)",
    "noise": "noise variance (the function's units squared)",
}

Row = dict[str, float]


class Refits(NamedTuple):
    """When a stream refits, and how: points between refits (None: only the first batch is fitted),
    and whether hyperparameters have priors.
    """

    every: int | None
    priors: bool = True


REFITS = {
    "never": Refits(None),
    "every batch, no prior": Refits(6, priors=False),
    "every batch, priors": Refits(6),
    "every 30 points, priors": Refits(30),
}


def main(out: Out = None, smoke: Smoke = False) -> None:
    """Stream one function in small batches under several settings."""
    n, counts, seeds = (180, [6], [0]) if smoke else (600, [1, 2, 3, 6], [0, 1, 2])
    folder = begin("results/small_batches", out, smoke, "about 4 minutes on one core")
    torch.set_num_threads(1)
    total = 2 * len(seeds) * (len(counts) + 1) + len(seeds) * len(REFITS)
    with Progress(total, "streams") as progress:
        tables, drift = sizes(n, counts, seeds, progress), drifts(n, seeds, progress)
    about = {"pruning": "First points right", "mended": "First points under short lengthscales"}
    for (name, title), table in zip(about.items(), tables, strict=True):
        table.to_csv(folder / f"{name}.csv", index=False)
        draw_sizes(table, folder / f"{name}.png", title=lambda dim, of: f"batches of {of[4:]}, 2-D")
        medians = ends(table, ["scenario", "policy"], ["points", "rmse", "seconds"])
        say(f"{title}: after {n} points, medians over seeds\n{medians.round(3).to_string()}\n")
    title = "Refits in a stream of small batches"
    for y in ("rmse", "lengthscale", "noise"):
        draw_bands([drift], y, "step", ["refits"], folder / f"{y}.png", labels=LABELS, title=title)
    medians = ends(drift, ["refits"], ["points", "rmse", "lengthscale", "noise"])
    say(f"Refits on batches of 6, medians over seeds\n{medians.round(3).to_string()}")
    drift.to_csv(folder / "drift.csv", index=False)


def sizes(
    n: int, counts: Sequence[int], seeds: Sequence[int], progress: Progress
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows by batch of both policies, by size of the batches: first points right, and mended.

    The latter in batches of six, where ``counts`` has them.
    """
    right, wrong = [], []
    for seed, q, (name, policy) in product(seeds, counts, POLICIES.items()):
        data = stream("stationary", 2, q, n // q, NOISE, seed)
        facts = {"dim": 2, "scenario": f"q = {q}", "seed": seed, "policy": name}
        right += [facts | row for row in streamed(data, policy, REFITS["never"])]
        progress(f"{name}, batches of {q}, seed {seed}")
        if q == 6:
            wrong += [facts | row for row in mended(data, policy)]
            progress(f"{name}, mended, seed {seed}")
    return pd.DataFrame(right), pd.DataFrame(wrong)


def drifts(n: int, seeds: Sequence[int], progress: Progress) -> pd.DataFrame:
    """Rows by batch of six under each way of refitting, with pruning."""
    tables = []
    for seed, (name, refit) in product(seeds, REFITS.items()):
        data = stream("stationary", 2, 6, n // 6, NOISE, seed)
        run = pd.DataFrame(streamed(data, POLICIES["Pruned(VIPS)"], refit))
        tables.append(run.rename(columns={"batch": "step"}).assign(refits=name, seed=seed))
        progress(f"{name}, seed {seed}")
    return pd.concat(tables)


def ends(table: pd.DataFrame, by: list[str], columns: list[str]) -> pd.DataFrame:
    """Medians over seeds of what columns are at the end of a stream."""
    last = table.groupby([*by, "seed"], sort=False)[columns].last()
    return last.groupby(by, sort=False).median()


def streamed(data: Scenario, policy: GrowthPolicy, refits: Refits) -> list[Row]:
    """Size, error, hyperparameters and processor time after each batch.

    The first 30 points come at once, so that the first fit has something to learn from.
    """
    X, Y = (torch.cat(part) for part in zip(*data.batches, strict=True))
    start, q = time.process_time(), len(data.batches[0][0])
    step = q if refits.every is None else refits.every
    kw = _modules(X.shape[1], 1.0, refits.priors)
    model = OnlineSGPR(X[:30], Y[:30], growth=policy, **kw)
    model.fit()
    places = range(30, len(X) + 1, step)
    return _followed(model, data, (X, Y), places, start, refits.every is not None)


def mended(data: Scenario, policy: GrowthPolicy) -> list[Row]:
    """As `streamed`, where the first points are chosen under a lengthscale that is too short.

    The first 60 points are taken in unfitted; after the next 60 a fit chooses again from all of
    them. The rest comes in small batches, not fitted.
    """
    X, Y = (torch.cat(part) for part in zip(*data.batches, strict=True))
    start, q = time.process_time(), len(data.batches[0][0])
    kw = _modules(X.shape[1], SHORT, True)
    model = OnlineSGPR(X[:FIRST], Y[:FIRST], growth=policy, **kw)
    rows = _followed(model, data, (X, Y), [FIRST, 2 * FIRST], start, True)
    places = [2 * FIRST, *range(2 * FIRST + q, len(X) + 1, q)]
    return rows + _followed(model, data, (X, Y), places, start, False)[1:]


def _followed(
    model: OnlineSGPR,
    data: Scenario,
    rows: tuple[Tensor, Tensor],
    places: Sequence[int],
    start: float,
    refit: bool,
) -> list[Row]:
    """A row at each place of the stream, the model having seen the rows before the first."""
    (X, Y), found, seen = rows, [], places[0]
    for k in places:
        if k > seen:
            model.observe(X[seen:k], Y[seen:k], refit=refit)
        seen, seconds = k, time.process_time() - start
        error = model.posterior(data.X_test).mean - data.f_test
        lengthscale = model.covar_module.base_kernel.lengthscale
        row: Row = {"batch": k // len(data.batches[0][0]), "points": len(model.inducing_points)}
        row["rmse"] = float(error.square().mean().sqrt())
        row["lengthscale"] = float(lengthscale.detach().log().mean().exp())
        row["noise"] = float(model.likelihood.noise.detach())
        found.append(row | {"seconds": seconds})
    return found


def _modules(dim: int, lengthscale: float, priors: bool) -> dict[str, Any]:
    prior, noise_prior = LogNormalPrior(0.0, 0.7), LogNormalPrior(-3.0, 1.0)
    base = RBFKernel(ard_num_dims=dim, lengthscale_prior=prior if priors else None)
    kernel = scaled(base, lengthscale=lengthscale, outputscale_prior=prior if priors else None)
    likelihood = gaussian(noise=0.05, prior=noise_prior if priors else None)
    return RAW | {"covar_module": kernel, "likelihood": likelihood}


app = command(main, __doc__)

if __name__ == "__main__":
    start(app)
