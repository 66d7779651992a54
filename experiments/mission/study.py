"""Every surrogate with every acquisition function, and campaigns on rasters, in one sweep."""

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from experiments.active_learning import study as active_learning
from experiments.active_learning.campaigns import LearningRun
from experiments.common.command import refuse_unknown
from experiments.common.plots import draw_band, legend, logarithmic_axis, save
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
    "processor s": "processor seconds",
}
"""Scores of a campaign at its end, and what they are called."""


def plan(c: dict[str, Any], smoke: bool = False) -> list[Any]:
    """The runs of both parts, of each seed together; see ``experiments/configs/mission.toml``.

    ``functions`` is a configuration of `experiments.comparison` whose methods are combined with
    each ``acquisition``; ``malaria`` one of `experiments.active_learning`.
    """
    refuse_unknown(c, ("title", "takes", "output", *PARTS), "the configuration")
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

    Of an acquisition function only those tasks and seeds count that all its methods have.
    """
    functions = [each for each in done if isinstance(each[0], ComparisonRun)]
    for rule in c["functions"]["acquisition"]:
        about = rule["label"]
        own = [each for each in functions if each[0].label.endswith(f", {about}")]
        if shared := in_common(own):
            to = folder / about.replace(" ", "-")
            to.mkdir(exist_ok=True)
            title = f"{c['functions']['title']}, {about}"
            say(f"\n{about}: {len(shared)} of {len(own)} runs are of tasks and seeds in common")
            bare = [(run, named(table, run, about)) for run, table in shared]
            comparison.report({"title": title, "pooled": True}, bare, to)
            steps = per_step([table for _, table in bare], c["functions"]["batch"])
            steps_table(steps).to_csv(to / "steps.csv", index=False)
            if len(steps):
                draw_steps(steps, to / "steps.png", title)
    campaigns = [each for each in done if isinstance(each[0], LearningRun)]
    if campaigns:
        active_learning.report(c["malaria"], campaigns, folder)
        found = learned(campaigns)
        found.to_csv(folder / "malaria.csv", index=False)
        say("\n" + found.to_string(index=False, float_format="{:.3g}".format))


def named(table: pd.DataFrame, run: ComparisonRun, rule: str) -> pd.DataFrame:
    """A run's table, its method called by the surrogate alone."""
    return table.assign(method=run.label.removesuffix(f", {rule}"))


def in_common(done: Done) -> list[tuple[ComparisonRun, pd.DataFrame]]:
    """Those of the tasks and seeds that all methods have."""
    had: dict[str, set[Any]] = {}
    for run, _ in done:
        had.setdefault(run.label, set()).add((run.task_label, run.seed))
    both = reduce(set.intersection, had.values()) if had else set[Any]()
    return [(run, table) for run, table in done if (run.task_label, run.seed) in both]


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
    counts = []
    for k, (method, part) in enumerate(steps.groupby("method", sort=False)):
        binned = part.assign(step=(WIDTH * np.log2(part["n"])).round())
        counts.append(draw_band(ax, binned, "seconds", "n", str(method), k)[1])
    ax.set(xlabel="observations", ylabel="processor seconds of a step", title=title)
    for which in "xy":
        logarithmic_axis(ax, which)
    legend(ax, counts, beside=True)
    save(figure, path)


def learned(done: Done) -> pd.DataFrame:
    """How campaigns ended, medians over the seeds that all of a raster have."""
    rows = []
    for run, table in done:
        last = table.iloc[-1]
        seconds = table["cpu_seconds"].sum()
        of = {"raster": run.cells, "surrogate": run.surrogate, "policy": run.policy}
        scores = {name: last[name] for name in ENDS if name in last}
        rows.append(of | {"seed": run.seed, "n": last["n"]} | scores | {"processor s": seconds})
    whole = pd.DataFrame(rows)
    parts = list(_seeds_in_common(whole))
    keys = ["raster", "surrogate", "policy"]
    grouped = pd.concat(parts).groupby(keys, sort=False)
    counts = grouped.size().rename("seeds")
    medians = grouped[["n", *ENDS]].median().rename(columns=ENDS)
    return pd.concat([counts, medians], axis=1).reset_index()


def _seeds_in_common(whole: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Of each raster the rows of seeds that all its surrogates and policies have, if any."""
    for _, part in whole.groupby("raster", sort=False):
        wide = part.pivot(index="seed", columns=["surrogate", "policy"], values="n")
        both = wide.dropna().index
        yield part[part["seed"].isin(both)] if len(both) else part
