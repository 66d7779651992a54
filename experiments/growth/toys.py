"""The toys of VIPS and OIPS: sizes and errors by batch, beside a grid, k-means and an exact GP.

Run `python -m experiments.growth.toys`. Writes a row a batch, a table of the ends and a picture to
the config's folder. Errors and densities are those of the function without noise [VIPS].
"""

import math
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from gpytorch.kernels import AdditiveKernel, ConstantKernel, Kernel, MaternKernel, RBFKernel
from numpy.random import RandomState
from scipy.cluster.vq import kmeans

from bo_stream import ExactGP, OnlineSGPR
from bo_stream.growth import FixedGrid, GrowthPolicy
from bo_stream.growth.policies import checked_policy
from bo_stream.scores import score
from experiments.common.command import CONFIGS, command, configured, start
from experiments.common.data import TableSplit
from experiments.common.kernels import RAW, gaussian, scaled
from experiments.common.plots import draw_sizes
from experiments.common.progress import Progress, say
from experiments.common.study import expanded, told_apart, without
from problems.tables import load_table

FIGURE_1 = ("growing domain", "uniform domain", "late outliers")
EXACT, GRID, MEANS = "exact GP", "grid", "k-means"
SMALLER = {
    "toy": [
        {
            "stream": ["uneven"],
            "seeds": [0],
            "batches": 4,
            "learned": False,
            "kernel": "",
            "lengthscale": 0.5,
            "outputscale": 1.0,
            "noise": 0.04,
            "policy": [{"name": "OIPS", "rho": 0.8}, {"name": "k-means", "times": 1.0}],
        },
    ]
}
Entry = dict[str, Any]
Numbers = np.ndarray[Any, np.dtype[np.float64]]


def main(c: Entry, folder: Path) -> None:
    """Stream every toy and seed under every policy."""
    each = [one for t in c["toy"] for one in product([t], t["stream"], t["seeds"])]
    rows = list[Entry]()
    with Progress(len(each), "streams") as progress:
        for toy, stream, seed in each:
            rows += compared(toy, stream, seed)
            progress(f"{stream}, seed {seed}")
    sizes = pd.DataFrame(rows)
    keys = ["scenario", "policy"]
    last = sizes.groupby([*keys, "seed"], sort=False).last().groupby(keys, sort=False)
    table = last[["points", "rmse", "nlpd"]].mean().assign(seeds=last.size())
    sizes.to_csv(folder / "sizes.csv", index=False)
    table.to_csv(folder / "table.csv")
    inducing = sizes[sizes["policy"] != EXACT]
    draw_sizes(inducing, folder / "sizes.png", title=lambda _, name: name)
    say("\nAt the end, means over seeds\n" + table.round(3).to_string())


def compared(toy: Entry, stream: str, seed: int) -> list[Entry]:
    """A row for each policy and batch. ``times`` is the size of a rival, in those of the first."""
    split, rows, size = drawn(stream, seed), list[Entry](), 0
    entries = [one for entry in toy["policy"] for one in expanded(entry)]
    for entry, label in zip(entries, told_apart(entries, "policies")[0], strict=True):
        options = without(entry, ["label"])
        growth: GrowthPolicy | None = None
        if "times" in options:
            m = max(1, round(options["times"] * size))
            growth = FixedGrid(known(options["name"], split.X.numpy(), m))
        elif options["name"] != EXACT:
            growth = checked_policy(options)
        kept = list(followed(split, toy, growth))
        size = size or kept[-1]["points"]
        facts = {"scenario": stream, "dim": split.X.shape[1], "policy": label, "seed": seed}
        rows += [facts | {"batch": i} | row for i, row in enumerate(kept)]
    return rows


def drawn(stream: str, seed: int) -> TableSplit:
    """Training rows in order, and test points with the function there, but for the magnetic path
    with its readings.
    """
    if stream == "magnetic path 1":
        path = load_table("magnetic_path1")
        Y, tenth = path.Y.norm(dim=-1, keepdim=True), torch.arange(len(path.X)) % 10 == 9
        return TableSplit(path.X[~tenth], Y[~tenth], path.X[tenth], Y[tenth])
    rng = RandomState(seed)
    test = np.linspace(0.0, 10.0, 500)
    if stream in FIGURE_1:
        x, y = list(_figure_1(rng))[FIGURE_1.index(stream)]
    elif stream == "four stages":
        x = 12.0 * rng.rand(1000)
        y = wave(x) + rng.randn(1000)
        x, y = x[x.argsort()], y[x.argsort()]
    else:
        x, test = (10.0 * rng.rand(n) ** (3 if stream == "uneven" else 1) for n in (1000, 500))
        x = np.sort(x) if stream == "time series" else x
        y = wave(x) + rng.normal(0.0, 0.2, len(x))
    columns = (torch.from_numpy(v).unsqueeze(-1) for v in (x, y, test, wave(test)))
    return TableSplit(*columns)


def _figure_1(rng: RandomState) -> Iterator[tuple[Numbers, Numbers]]:
    """The three streams, drawn in the order of the authors' program."""
    for stream in FIGURE_1:
        x = rng.uniform(0.0, 10.0, {"growing domain": 500, "uniform domain": 150}.get(stream, 0))
        if stream == "growing domain":
            x = np.sort(x)
        if stream == "late outliers":
            near, far = rng.uniform(4.5, 7.0, 1000), rng.standard_cauchy(300) + 6.0
            x = np.concatenate([near, far[(far > 0.0) & (far < 10.0)]])
        yield x, wave(x) + rng.normal(0.0, 0.2, len(x))


def wave(x: Numbers) -> Numbers:
    """The function of the VIPS authors' toys."""
    return np.asarray(np.sin(2.0 * x) + np.cos(5.0 * x))


def known(name: str, X: Numbers, m: int) -> torch.Tensor:
    """``m`` points, at most, of a rival that knows all inputs ``n x 1`` in advance: a grid over
    their range, or the means of clusters.
    """
    if name == GRID:
        return torch.linspace(X.min(), X.max(), m, dtype=torch.float64).unsqueeze(-1)
    return torch.from_numpy(kmeans(X, np.quantile(X, (np.arange(m) + 0.5) / m)[:, None])[0])


def followed(split: TableSplit, toy: Entry, growth: GrowthPolicy | None) -> Iterator[Entry]:
    """Size, errors and processor seconds of every batch; an exact GP is fitted at each anew."""
    parts = list(zip(split.X.chunk(toy["batches"]), split.Y.chunk(toy["batches"]), strict=True))
    model: ExactGP | OnlineSGPR
    for i, (X, Y) in enumerate(parts):
        began = time.process_time()
        if growth is None:
            seen = [torch.cat(part) for part in zip(*parts[: i + 1], strict=True)]
            model = ExactGP(*seen, **modules(toy))
        elif i == 0:
            model = OnlineSGPR(X, Y, growth=growth, **modules(toy))
        else:
            model.observe(X, Y, refit=None if toy["learned"] else False)
        if toy["learned"] and (i == 0 or growth is None):
            model.fit()
        seconds = time.process_time() - began
        found = score(model, split.X_test, split.Y_test, split.Y_test)
        points = len(model.inducing_points) if isinstance(model, OnlineSGPR) else math.nan
        yield {"points": points, "rmse": found.rmse, "nlpd": found.nlpd, "seconds": seconds}


def modules(toy: Entry) -> Entry:
    """Kernel, likelihood and transforms of a toy, new at each call."""
    at = {"lengthscale": toy["lengthscale"], "outputscale": toy["outputscale"]}
    kernel: Kernel = scaled(RBFKernel(), **at)
    if toy["kernel"] == "constant + Matern":
        constant = ConstantKernel().double()
        constant.constant = torch.tensor(500.0, dtype=torch.float64)
        kernel = AdditiveKernel(constant, scaled(MaternKernel(2.5), **at))
    return RAW | {"covar_module": kernel, "likelihood": gaussian(noise=toy["noise"])}


app = command(configured(main, CONFIGS / "toys.toml", SMALLER), __doc__)

if __name__ == "__main__":
    start(app)
