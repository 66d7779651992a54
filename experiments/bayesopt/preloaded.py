"""Seconds of a step against n: from how many points on a stream costs less than an exact GP.

A surrogate is built and fitted on the first 100 points and observes the others. A first step, which
is thrown away, pays for imports and for the fit to so many points at once; those after it are
measured, each with its fit, as in any loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from botorch.utils.sampling import draw_sobol_samples
from matplotlib import pyplot as plt

from bo_stream.campaign.records import write_table
from experiments.bayesopt import study
from experiments.bayesopt.runs import BayesoptRun
from experiments.common.plots import DASHES, MARKERS, logarithmic_axis, save
from experiments.common.progress import say
from experiments.common.study import quiet

FITTED = 100
"""Points that hyperparameters are first fitted to, however many there are."""
SMOKE = (20, 40)
"""Points observed first in a smoke run."""


@dataclass(frozen=True)
class Preloaded(BayesoptRun):
    """Steps of one surrogate that has observed n points first."""

    n: int = 0

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return f"{self.files}_{self.n}"

    def execute(self, folder: Path) -> None:
        """Take the steps; the table has those that were measured, with ``surrogate`` and ``given``,
        the points observed first.
        """
        with quiet():
            loop: Any = self.loop()
            problem, seed = loop.problem, self.config.seed
            X = draw_sobol_samples(problem.bounds, n=self.n, q=1, seed=seed).squeeze(-2)
            Y = problem(X)
            loop.start(X[:FITTED], Y[:FITTED])
            if self.n > FITTED:
                loop.preload(X[FITTED:], Y[FITTED:])
            for _ in range(1 + self.config.steps):  # the first is thrown away
                loop.step()
        measured = loop.table().tail(self.config.steps)
        table = measured.assign(surrogate=self.label, given=self.n)
        write_table(table, folder / f"{self.stem}.csv", asdict(self))


def plan(c: dict[str, Any], smoke: bool = False) -> list[Preloaded]:
    """Every surrogate with every number of points, the longest run first; few in a smoke run."""
    runs = study.plan({key: value for key, value in c.items() if key != "n"}, smoke)
    sizes = sorted(SMOKE if smoke else c["n"], reverse=True)
    return [Preloaded(**vars(run), n=n) for n in sizes for run in runs]


def report(c: dict[str, Any], done: Sequence[tuple[Preloaded, pd.DataFrame]], folder: Path) -> None:
    """Draw and print, and say in words what the numbers mean.

    Writes ``crossover.csv`` and ``step_vs_n.png`` beside the folder, which has the runs' own files,
    so that these do not count as runs of the study around it.
    """
    table = summary([table for _, table in done])
    table.to_csv(folder.parent / "crossover.csv", index=False)
    exact = next(run.label for run, _ in done if run.surrogate["name"] == "exact")
    draw(table, exact, folder.parent / "step_vs_n.png", c["title"])
    steps = done[0][0].config.steps
    say(f"\n{c['title']}, after n points; medians of {steps} steps\n")
    say(table.to_string(index=False, float_format="{:.3f}".format))
    say("\n" + "\n".join(sentences(table, exact)))


def summary(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Medians over the steps, a row for each surrogate and number of points, the least first."""
    every = pd.concat(list(tables), ignore_index=True)
    columns = {f"{part}_seconds": f"{part} s" for part in ("fit", "acquisition", "update")}
    columns = {"step_seconds": "s/step", **columns, "fit_evaluations": "fit evaluations"}
    medians = every.groupby(["given", "surrogate"], sort=False)[list(columns)].median()
    renamed = medians.reset_index().rename(columns={"given": "n", **columns})
    return renamed.sort_values("n", kind="stable", ignore_index=True)


def crossing(stream: pd.Series[float], exact: pd.Series[float]) -> float:
    """The n from which on a stream's step takes less time than the exact GP's.

    Both have seconds by n, ascending; between two sizes, times are interpolated linearly in
    logarithms. The least n if the stream's step takes less time at all of them; infinity if it
    takes more at the largest.
    """
    gains = np.log(exact.to_numpy() / stream.to_numpy())
    sizes = np.log(stream.index.to_numpy(dtype=float))
    behind = np.flatnonzero(gains <= 0)
    if not len(behind):
        return float(stream.index[0])
    k = behind[-1]
    if k == len(gains) - 1:
        return math.inf
    share = -gains[k] / (gains[k + 1] - gains[k])
    return float(np.exp(sizes[k] + share * (sizes[k + 1] - sizes[k])))


def sentences(table: pd.DataFrame, exact: str) -> list[str]:
    """What a table of `summary` means, in sentences; ``exact`` labels exact inference in it."""
    lines = []
    seconds = _by_size(table)
    least, most = seconds.index[0], seconds.index[-1]
    for label in seconds.columns.drop(exact):
        stream, other = seconds[label], seconds[exact]
        n = crossing(stream, other)
        if math.isinf(n):
            lines.append(
                f"Up to {most:,} points, a step takes less time on {exact} than on {label}."
            )
            continue
        here = f"From about {n:,.0f} points on" if n > least else f"From {least:,} points on"
        lines += [
            f"{here}, a step takes less time on {label} than on {exact}.",
            f"From {least:,} to {most:,} points, {label}'s step took"
            f" {stream[most] / stream[least]:.1f} times as long,"
            f" {exact}'s {other[most] / other[least]:.1f} times; at {most:,},"
            f" {label}'s took {stream[most]:.2g} s and {exact}'s {other[most]:.2g} s.",
        ]
        few = f"With fewer points, take {exact}: it is quicker, and approximates nothing."
        lines += [few] if n > least else []
        lines.append(
            f"{'Beyond, take' if n > least else 'Take'} {label} where the time of a step matters,"
            f" {exact} where it does not."
        )
    return [*lines, "For other inputs, noise and drift, see the table of surrogates in the README."]


def draw(table: pd.DataFrame, exact: str, path: Path, title: str) -> None:
    """Draw seconds of a step against n, both logarithmic, and mark where streams become cheaper;
    arguments as in `sentences`.
    """
    figure, ax = plt.subplots(figsize=(7.0, 4.5), layout="constrained")
    seconds = _by_size(table)
    for k, label in enumerate(seconds):
        look = {"linestyle": DASHES[k % len(DASHES)], "marker": MARKERS[k % len(MARKERS)]}
        (line,) = ax.plot(seconds.index, seconds[label], label=label, **look)
        n = math.inf if label == exact else crossing(seconds[label], seconds[exact])
        if seconds.index[0] < n < math.inf:
            about = f"{label} takes less time from about {n:,.0f} points on"
            ax.axvline(n, color=line.get_color(), linestyle=":", label=about)
    ax.set(xlabel="points observed first", ylabel="seconds a step", title=title)
    logarithmic_axis(ax, "x")
    logarithmic_axis(ax, "y")
    ax.grid(True, alpha=0.25)
    ax.legend(fontsize=8)
    save(figure, path)


def _by_size(table: pd.DataFrame) -> pd.DataFrame:
    """Seconds of a step, a column a surrogate, at the sizes that all have."""
    sizes = table.pivot(index="n", columns="surrogate", values="s/step").dropna().sort_index()
    return sizes[list(dict.fromkeys(table["surrogate"]))]
