"""Every surrogate with every acquisition function, and campaigns on rasters, in one sweep."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from experiments.active_learning import study as active_learning
from experiments.active_learning.campaigns import LearningRun
from experiments.common.command import refuse_unknown
from experiments.common.plots import draw_band, in_words, logarithmic_axis, save
from experiments.common.progress import say
from experiments.comparison import study as comparison
from experiments.comparison.study import ComparisonRun

Done = Sequence[tuple[Any, pd.DataFrame]]
PARTS = ("functions", "malaria")
BINS = (30, 100, 300, 1000)
"""Numbers of observations about which seconds of a step are taken, within a factor of 1.8."""
NEAR = 1.8
WIDTH = 2.0
"""Places of the picture for each doubling of n."""
ENDS = {
    "rmse": "error",
    "integrated_variance": "integrated variance",
    "coverage": "coverage",
    "processor_s": "processor seconds",
}
"""Scores of a campaign at its end, and what they are called."""
CAMPAIGN = ["raster", "surrogate", "policy"]


@dataclass(frozen=True)
class Marks:
    """What is asked of a run: its checkpoints."""

    budget: dict[str, Any]


def plan(c: dict[str, Any], smoke: bool = False) -> list[Any]:
    """The runs of both parts, of each seed together; see ``experiments/configs/mission.toml``.

    ``functions`` is a configuration of `experiments.comparison` whose methods are combined with
    each ``acquisition``; ``malaria`` one of `experiments.active_learning`.
    """
    refuse_unknown(c, ("title", "takes", "output", "stored", *PARTS), "the configuration")
    own = dict(c["functions"])
    rules = own.pop("acquisition")
    maps = c["malaria"]
    if smoke:
        rules, own["task"] = rules[:1], [{"name": "levy", "noise_std": "published"}]
        maps = maps | {"policies": maps["policies"][:1]}
    own["method"] = [
        {**one, "label": f"{one['label']}, {rule['label']}", "acquisition": rule["acquisition"]}
        for rule, one in product(rules, own["method"])
    ]
    runs = [*comparison.plan(own, smoke), *active_learning.plan(maps, smoke)]
    return sorted(runs, key=lambda run: run.seed)


def report(c: dict[str, Any], done: Done, folder: Path) -> None:
    """Tables and pictures of what is done, in a folder for each acquisition function.

    Runs that are stored, in the folder of that key, count as done. Of an acquisition function only
    those tasks and seeds count that all its methods have.
    """
    if any(run.brief for run, _ in done if isinstance(run, ComparisonRun)):
        c = c | {"stored": folder / "stored"}  # a smoke run stands by itself
    own = [with_rule(table) for run, table in done if isinstance(run, ComparisonRun)]
    functions = kept(own, ["rule", "method", "task", "seed"], "functions", c, folder)
    about = c["functions"]
    labels = [method["label"] for method in about["method"]]
    functions = functions.sort_values("method", key=lambda m: m.map(labels.index), kind="stable")
    marks = Marks({"marks": tuple(about["at"]), "mark_seconds": tuple(about["at_seconds"])})
    for rule, every in functions.groupby("rule", sort=False):
        shared = in_common(every.drop(columns="rule"), ["task", "seed"], ["method"])
        runs = [part for _, part in shared.groupby(["task", "seed", "method"], sort=False)]
        to, title = folder / str(rule).replace(" ", "-"), f"{about['title']}, {rule}"
        to.mkdir(exist_ok=True)
        comparison.report({"title": title, "pooled": True}, [(marks, run) for run in runs], to)
        steps = per_step(runs, about["batch"])
        steps_table(steps).to_csv(to / "steps.csv", index=False)
        if len(steps):
            draw_steps(steps, to / "steps.png", title)
    campaigns = [each for each in done if isinstance(each[0], LearningRun)]
    if campaigns:
        active_learning.report(c["malaria"], campaigns, folder)
    ends = [ended(run, table) for run, table in campaigns]
    last = kept(ends, [*CAMPAIGN, "seed"], "campaigns", c, folder)
    if len(last):
        order = {
            one.get("label", one["name"]): k for k, one in enumerate(c["malaria"]["surrogate"])
        }
        last = last.sort_values("surrogate", key=lambda each: each.map(order), kind="stable")
        found = learned(last)
        found.to_csv(folder / "malaria.csv", index=False)
        say("\n" + found.to_string(index=False, float_format="{:.3g}".format))


def kept(
    tables: Sequence[pd.DataFrame], keys: list[str], name: str, c: dict[str, Any], folder: Path
) -> pd.DataFrame:
    """All rows, of these tables and of stored runs that are not among them.

    They are written to a file for each seed, ``<name>_<seed>.csv``, which may be stored: copied to
    the configuration's ``stored``.
    """
    before = [pd.read_csv(path) for path in sorted(Path(c["stored"]).glob(f"{name}_*.csv"))]
    rows = pd.DataFrame(columns=keys)
    for part in [*tables, *before]:
        known = pd.MultiIndex.from_frame(rows[keys])
        new = part[~pd.MultiIndex.from_frame(part[keys]).isin(known)]
        rows = pd.concat([rows, new], ignore_index=True) if len(rows) else new
    for seed, part in rows.groupby("seed"):
        part.to_csv(folder / f"{name}_{seed}.csv", index=False)
    return rows


def with_rule(table: pd.DataFrame) -> pd.DataFrame:
    """A run's table, its method split into surrogate and acquisition function."""
    method, _, rule = str(table["method"].iloc[0]).rpartition(", ")
    return table.assign(method=method, rule=rule)


def in_common(table: pd.DataFrame, keys: list[str], among: list[str]) -> pd.DataFrame:
    """Rows whose keys are had by each of those that columns tell apart."""
    pairs = table[[*keys, *among]].drop_duplicates()
    counts = pairs.groupby(keys, sort=False).size()
    whole = counts[counts == len(pairs[among].drop_duplicates())].index
    return table.merge(whole.to_frame(index=False), on=keys)


def per_step(tables: Sequence[pd.DataFrame], q: int) -> pd.DataFrame:
    """Processor seconds of a step of q points, between one checkpoint and the next.

    Columns ``method``, ``task``, ``seed``, ``n`` (in the middle of both) and ``seconds``.
    """
    parts = []
    for table in tables:
        n, spent = table["n"].to_numpy(float), table["cpu_seconds"].to_numpy(float)
        points = np.diff(n)
        part = table[["method", "task", "seed"]].iloc[1:].copy()
        part["n"], part["seconds"] = n[:-1] + points / 2, np.diff(spent) * q / points.clip(1.0)
        parts.append(part[points >= q])  # checkpoints of seconds may be within a step
    return pd.concat(parts, ignore_index=True)


def steps_table(steps: pd.DataFrame) -> pd.DataFrame:
    """Median milliseconds of a step about numbers of observations, a row a method."""
    methods = dict.fromkeys(steps["method"])
    table = pd.DataFrame({"method": list(methods)})
    for n in BINS:
        near = steps[steps["n"].between(n / NEAR, n * NEAR)]
        medians = 1000.0 * near.groupby("method")["seconds"].median()
        table[f"n = {n:,}"] = [medians.get(method, np.nan) for method in methods]
    return table


def draw_steps(steps: pd.DataFrame, path: Path, title: str) -> None:
    """Draw medians of the seconds of a step against the number of observations."""
    figure, ax = plt.subplots(figsize=(8.5, 4.5), layout="constrained")
    for k, (method, part) in enumerate(steps.groupby("method", sort=False)):
        binned = part.assign(step=(WIDTH * np.log2(part["n"])).round())
        draw_band(ax, binned, "seconds", "n", str(method), k)
    ax.set(xlabel="observations", ylabel="processor seconds of a step", title=title)
    for which in "xy":
        logarithmic_axis(ax, which)
    about = {"title": "median and range over functions and seeds", "title_fontsize": 8}
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0), **about)
    save(figure, path)


def ended(run: LearningRun, table: pd.DataFrame) -> pd.DataFrame:
    """The last row of a campaign, with the seconds of all."""
    last = table.iloc[-1]
    about = dict(zip(CAMPAIGN, (run.cells, run.surrogate, run.policy), strict=True))
    scores = {"n": last["n"], **{name: last[name] for name in ENDS if name in last}}
    row = about | {"seed": run.seed} | scores | {"processor_s": table["cpu_seconds"].sum()}
    return pd.DataFrame([row])


def learned(last: pd.DataFrame) -> pd.DataFrame:
    """How campaigns ended, medians over the seeds that all of a raster have."""
    rasters = [part for _, part in last.groupby("raster", sort=False)]
    shared = pd.concat([in_common(part, ["seed"], CAMPAIGN[1:]) for part in rasters])
    grouped = shared.groupby(CAMPAIGN, sort=False)
    medians = grouped[["n", *ENDS]].median().rename(columns=ENDS)
    table = pd.concat([grouped.size().rename("seeds"), medians], axis=1).reset_index()
    return table.assign(**{key: table[key].map(in_words) for key in CAMPAIGN})
