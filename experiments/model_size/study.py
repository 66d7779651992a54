"""Online SGPR on tables: one recipe for every stream, and the GP on all rows it is compared with.

What keeps the model from growing to nearly all points, measured on these tables: inputs in the
unit cube (heavy-tailed columns, merely standardised, leave outliers that greedy variance takes
first); and a lengthscale prior that scales with dimension.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from botorch.models.transforms import Normalize
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior

from bo_stream import ExactGP, OnlineSGPR
from bo_stream.growth import FixedSize
from bo_stream.growth.policies import checked_policy
from bo_stream.scores import score
from experiments.common.command import TAKES, BadParameter
from experiments.common.data import MADE_UP, TableSplit, rows_of
from experiments.common.kernels import gaussian, scaled, standardised
from experiments.common.plots import draw_sizes
from experiments.common.progress import say
from experiments.common.study import expanded, tables, told_apart, without
from experiments.common.tables import write_table

PICTURES = {
    "points": "number of inducing points",
    "seconds": "processor time of a batch (seconds)",
    "rmse": "test RMSE (standard deviations)",
    "nlpd": "test NLPD (nats)",
}
"""Columns drawn, and what they are."""

Reference = ExactGP | OnlineSGPR


@dataclass(frozen=True)
class SizeRun:
    """One split of a table, in the ``batches`` of its entry, under one growth policy.

    ``name`` and ``policy`` are what table and policy are called in tables, ``files`` what both are
    in names of files; ``c`` is the recipe.
    """

    table: dict[str, Any]
    name: str
    growth: dict[str, Any]
    policy: str
    files: str
    seed: int
    c: dict[str, Any]

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return f"{self.files}_{self.seed}"

    def execute(self, folder: Path) -> None:
        """Stream it; write a row a batch, and in the JSON how it compares in the end.

        The excess error is how much of the way back from the full GP's error to that of the mean a
        stream goes.
        """
        split = TableSplit.sorted(*rows_of(self.table), self.c["share"], self.seed)
        model, streamed = stream(split, self.table["batches"], self.growth, self.c)
        full, kind = reference(split, self.c)
        (rmse, nlpd), (rmse_full, nlpd_full) = errors(split, model), errors(split, full)
        rmse_mean = errors(split, None)[0]
        result = {
            "table": self.name,
            "policy": self.policy,
            "split": self.seed,
            "points": len(model.inducing_points),
            "rmse": rmse,
            "rmse_full": rmse_full,
            "rmse_mean": rmse_mean,
            "excess_%": 100.0 * (rmse - rmse_full) / (rmse_mean - rmse_full),
            "nlpd": nlpd,
            "nlpd_full": nlpd_full,
            "full": kind,
        }
        facts = {"dim": split.X.shape[1], "scenario": self.name, "seed": self.seed}
        facts |= {"policy": self.policy, "rmse_full": rmse_full, "nlpd_full": nlpd_full}
        frame = pd.DataFrame([facts | row for row in streamed])
        about = {"result": result, "dtype": str(split.X.dtype), "config": self.c}
        write_table(frame, folder / f"{self.stem}.csv", about)


def errors(split: TableSplit, model: Reference | None) -> tuple[float, float]:
    """Error and negative log density of the test rows, outcomes in units of their deviation.

    None stands for the mean of the training outcomes.
    """
    scale = float(split.Y.std())
    if model is None:
        return float((split.Y.mean(0) - split.Y_test).square().mean().sqrt()) / scale, math.nan
    raw = score(model, split.X_test, split.Y_test, split.Y_test)
    return raw.rmse / scale, raw.nlpd - math.log(scale)


def modules(split: TableSplit, c: dict[str, Any]) -> dict[str, Any]:
    """Kernel, likelihood and transforms of the recipe, new at each call."""
    d = split.X.shape[1]
    location, scale = c["lengthscale"]
    prior = LogNormalPrior(location + 0.5 * math.log(d), scale)
    base = RBFKernel(ard_num_dims=d, lengthscale_prior=prior)
    start = {"lengthscale": math.sqrt(d), "outputscale": 1.0}
    noise, noise_prior = math.exp(c["noise"][0]), LogNormalPrior(*c["noise"])
    box = torch.stack([split.X.amin(0), split.X.amax(0)])
    return {
        "covar_module": scaled(base, **start, outputscale_prior=LogNormalPrior(*c["outputscale"])),
        "likelihood": gaussian(noise=noise, prior=noise_prior, floor=1e-4),
        "input_transform": Normalize(d, bounds=box),
        "outcome_transform": standardised(split.Y),
    }


def stream(
    split: TableSplit, batches: int, growth: dict[str, Any], c: dict[str, Any]
) -> tuple[OnlineSGPR, list[dict[str, float]]]:
    """The surrogate after all batches, and a row for each.

    A row has the number of inducing points, the processor time of the batch, and ``rmse`` and
    ``nlpd`` of the test rows, whose scoring is outside of that time. Rows come sorted by the first
    input and test rows are from all over the table: until the last batch some lie where the stream
    has not been yet, and errors are large.
    """
    parts = list(zip(split.X.chunk(batches), split.Y.chunk(batches), strict=True))
    streamed = []
    start = time.process_time()
    model = OnlineSGPR(*parts[0], growth=growth, **modules(split, c))
    model.fit()
    for i, (X, Y) in enumerate(parts):
        if i:
            start = time.process_time()
            model.observe(X, Y)
        seconds = time.process_time() - start
        M, (rmse, nlpd) = len(model.inducing_points), errors(split, model)
        streamed.append({"batch": i, "points": M, "seconds": seconds, "rmse": rmse, "nlpd": nlpd})
    return model, streamed


def reference(split: TableSplit, c: dict[str, Any]) -> tuple[Reference, str]:
    """A GP fitted to all training rows at once, and its name."""
    r, kw = c["reference"], modules(split, c)
    model: Reference
    if len(split.X) <= r["exact"]:
        model, name = ExactGP(split.X, split.Y, **kw), "exact GP"
    else:
        model = OnlineSGPR(split.X, split.Y, growth=FixedSize(r["points"]), **kw)
        name = f"batch SGPR, {r['points']} points"
    model.fit(r["evaluations"])
    return model, name


def plan(c: dict[str, Any], smoke: bool = False) -> list[SizeRun]:
    """A run for each table, growth policy and split of a configuration.

    See ``experiments/configs/model_size.toml``. Lists stand for several targets or options.

    Raises:
        DataNotFound: if the data of any table is not there.
    """
    if smoke:
        c = c | {"table": [{"name": MADE_UP, "batches": 4}], "splits": [0]}
    read = tables(c["table"], ["batches"])
    for entry, name, _ in read:
        if len(rows_of(entry)[0]) < entry.get("batches", 0) or entry.get("batches", 0) < 1:
            raise BadParameter(f"table {name} needs batches, from 1 to the number of its rows.")
    growth = [one for entry in c["growth"] for one in expanded(entry)]
    labels, files = told_apart(growth, "growth policies")
    for entry in growth:
        checked_policy(without(entry, ["label"]))
    recipe = {k: v for k, v in c.items() if k not in ("table", "growth", "splits", "output", TAKES)}
    policies = list(zip(growth, labels, files, strict=True))
    return [
        SizeRun(entry, name, without(one, ["label"]), label, f"{title}_{file}", seed, recipe)
        for (entry, name, title), (one, label, file), seed in product(read, policies, c["splits"])
    ]


def report(c: dict[str, Any], done: Sequence[tuple[SizeRun, pd.DataFrame]], folder: Path) -> None:
    """Tables and pictures of the runs that are done."""
    about = [json.loads((folder / f"{run.stem}.json").read_text()) for run, _ in done]
    results = pd.DataFrame([each["result"] for each in about])
    batches = pd.concat([table for _, table in done], ignore_index=True)
    grouped = results.groupby(["table", "policy"], sort=False)
    means = grouped.mean(numeric_only=True).drop(columns="split")
    results.to_csv(folder / "splits.csv", index=False)
    means.to_csv(folder / "means.csv")
    batches.to_csv(folder / "batches.csv", index=False)
    full_errors = {y: batches[f"{y}_full"] for y in ("rmse", "nlpd")}
    at_once = batches.assign(policy="a GP on all rows at once", **full_errors)
    at_once = at_once.drop_duplicates(["scenario", "seed", "batch"])
    for y, label in PICTURES.items():
        shown = pd.concat([batches, at_once]) if y in full_errors else batches
        path, title = folder / f"{y}.png", lambda dim, name: f"{name}, {dim} inputs"
        draw_sizes(shown, path, y, label, title)
    say("\n" + results.round(4).to_string(index=False) + "\n\n" + means.round(4).to_string())
