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
from experiments.common.tables import with_stored, write_table

PICTURES = {
    "points": "number of inducing points",
    "seconds": "processor time of a batch (seconds)",
    "rmse": "test RMSE (standard deviations)",
    "nlpd": "test NLPD (nats)",
}
"""Columns drawn by batch, and what they are."""
EXCESS = {"excess_percent": "excess error (%)", "excess_nats": "excess NLPD (nats)"}
"""Columns drawn by the number of points, and what they are."""
OPTIONAL = ("stored",)
"""Keys that a configuration need not have."""
FULL = "a GP on all rows at once"

Reference = ExactGP | OnlineSGPR
Row = dict[str, float]


@dataclass(frozen=True)
class SizeRun:
    """One split of a table: in the ``batches`` of its entry under one growth policy or, without a
    policy, all rows at once, for a GP that all policies are compared with.

    ``name`` and ``policy`` are what table and policy are called in tables, ``files`` what both are
    in names of files; ``c`` is the recipe.
    """

    table: dict[str, Any]
    name: str
    growth: dict[str, Any] | None
    policy: str
    files: str
    seed: int
    c: dict[str, Any]

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return f"{self.files}_{self.seed}"

    def execute(self, folder: Path) -> None:
        """Write a row a batch, and in the JSON what is left in the end."""
        split = TableSplit.sorted(*rows_of(self.table), self.c["share"], self.seed)
        if self.growth is None:
            rows = [at_once(split, self.c)]
        else:
            rows = stream(split, self.table["batches"], self.growth, self.c)
        growth = self.growth or {"name": FULL}
        result = {"table": self.name, "policy": self.policy, "split": self.seed}
        result |= {key: rows[-1][key] for key in ("points", "rmse", "nlpd")}
        result |= {"rmse_mean": errors(split, None)[0], "seconds": sum(r["seconds"] for r in rows)}
        result["kind"] = growth["name"]
        result["setting"] = next((v for v in growth.values() if not isinstance(v, str)), None)
        facts = {"dim": split.X.shape[1], "scenario": self.name, "seed": self.seed}
        frame = pd.DataFrame([facts | {"policy": self.policy} | row for row in rows])
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


def stream(split: TableSplit, batches: int, growth: dict[str, Any], c: dict[str, Any]) -> list[Row]:
    """A row for each batch.

    It has the number of inducing points, the processor time of the batch, and ``rmse`` and
    ``nlpd`` of the test rows, whose scoring is outside of that time. Rows come sorted by the first
    input and test rows are from all over the table: until the last batch some lie where the stream
    has not been yet, and errors are large.
    """
    parts = list(zip(split.X.chunk(batches), split.Y.chunk(batches), strict=True))
    streamed = list[Row]()
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
    return streamed


def at_once(split: TableSplit, c: dict[str, Any]) -> Row:
    """A row, as of a stream, for a GP on all training rows at once.

    Its hyperparameters have the largest exact evidence of at most ``rows`` rows, evenly spread. It
    is exact for at most ``exact`` rows, else batch SGPR with ``points`` points.
    """
    start, r, kw = time.process_time(), c["reference"], modules(split, c)
    every = -(-len(split.X) // r["rows"])
    model: Reference = ExactGP(split.X[::every], split.Y[::every], **kw)
    model.fit(r["evaluations"])
    if every > 1:
        learned = ("covar_module", "likelihood", "mean_module")
        kw |= {name: getattr(model, name) for name in learned}
        if len(split.X) <= r["exact"]:
            model = ExactGP(split.X, split.Y, **kw)
        else:
            model = OnlineSGPR(split.X, split.Y, growth=FixedSize(r["points"]), **kw)
    seconds, (rmse, nlpd) = time.process_time() - start, errors(split, model)
    points = len(model.inducing_points) if isinstance(model, OnlineSGPR) else len(split.X)
    return {"batch": 0, "points": points, "seconds": seconds, "rmse": rmse, "nlpd": nlpd}


def plan(c: dict[str, Any], smoke: bool = False) -> list[SizeRun]:
    """A run for each table, growth policy and split of a configuration, and for each table and
    split a GP on all rows.

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
    recipe = {
        k: v
        for k, v in c.items()
        if k not in ("table", "growth", "splits", "output", TAKES, *OPTIONAL)
    }
    plain = [without(entry, ["label"]) for entry in growth]
    policies = list(zip([None, *plain], [FULL, *labels], ["all", *files], strict=True))
    return [
        SizeRun(entry, name, one, label, f"{title}_{file}", seed, recipe)
        for (entry, name, title), (one, label, file), seed in product(read, policies, c["splits"])
    ]


def beside(means: pd.DataFrame, own: str, excess: str, how: str) -> pd.DataFrame:
    """Tables beside each other, a row a policy: points and what is in excess, as text; ``own`` of
    the GP on all rows, and how many splits have that.
    """
    points, over = means["points"].map("{:.0f}".format), means[excess].map(f"{{:{how}}}".format)
    text = (points + ": " + over).unstack("policy")
    full = means.query("policy == @FULL").droplevel("policy")
    text[FULL], text["splits"] = full[own].map("{:.3f}".format), full["splits"].map(str)
    policies = [*means.index.unique("policy").difference([FULL], sort=False), FULL, "splits"]
    return text.reindex(means.index.unique("table"))[policies].astype(object).fillna("-").T


def report(c: dict[str, Any], done: Sequence[tuple[SizeRun, pd.DataFrame]], folder: Path) -> None:
    """Tables and pictures of the runs that are done.

    The excess error is how much of the way back from the full GP's error to that of the mean a
    stream goes, the excess NLPD the difference to the full GP's. Results that are ``stored``, in
    a file that an earlier report wrote, count as done.
    """
    about = [json.loads((folder / f"{run.stem}.json").read_text()) for run, _ in done]
    results = pd.DataFrame([each["result"] for each in about])
    results = with_stored(results, ["table", "policy", "split"], c)
    full = results[results["policy"] == FULL].set_index(["table", "split"])
    results = results.join(full[["rmse", "nlpd"]].add_suffix("_full"), on=["table", "split"])
    most = results["rmse_mean"] - results["rmse_full"]
    results["excess_percent"] = 100.0 * (results["rmse"] - results["rmse_full"]) / most
    results["excess_nats"] = results["nlpd"] - results["nlpd_full"]
    grouped = results.groupby(["table", "policy"], sort=False)
    means = grouped.mean(numeric_only=True).drop(columns="split")
    means.insert(0, "splits", grouped.size())
    results.to_csv(folder / "splits.csv", index=False)
    means.to_csv(folder / "means.csv")
    beside(means, "rmse", "excess_percent", "z.1f").to_csv(folder / "error.csv")
    beside(means, "nlpd", "excess_nats", "z.2f").to_csv(folder / "density.csv")
    say("\n" + results.round(4).to_string(index=False) + "\n\n" + means.round(4).to_string())
    rows = pd.concat([table for _, table in done], ignore_index=True)
    one = rows["policy"] == FULL
    batches, whole = rows[~one], rows[one].drop(columns="batch")
    if not len(batches):
        return
    batches.to_csv(folder / "batches.csv", index=False)
    places = batches[["scenario", "seed", "batch"]].drop_duplicates()
    for y, label in PICTURES.items():
        compared = y in ("rmse", "nlpd")
        shown = pd.concat([batches, whole.merge(places)]) if compared else batches
        path, title = folder / f"{y}.png", lambda dim, name: f"{name}, {dim} inputs"
        draw_sizes(shown, path, y, label, title)
    drawn = {"table": "scenario", "split": "seed", "setting": "batch"}
    swept = results[results["kind"] != FULL].drop(columns="policy").rename(columns=drawn)
    swept = swept.assign(policy=swept["kind"], dim=0).dropna(subset=[*EXCESS, "batch"])
    for y, label in EXCESS.items() if len(swept) else ():
        draw_sizes(swept, folder / f"{y}.png", y, label, lambda _, name: name, "points")
