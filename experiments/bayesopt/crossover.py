"""Seconds of a step against n: from how many points on a stream costs less than an exact GP."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.bayesopt.given import Crossover
from experiments.common.command import end, swept
from experiments.common.plots import DASHES, MARKERS, logarithmic_axis, plt, save
from experiments.common.progress import say
from experiments.common.sweep import table as table_of

__all__ = ["crossing", "draw", "sentences", "show", "summary"]


def show(config: Path, folder: Path, smoke: bool = False, *options: Any) -> None:
    """Run, draw and print, and say in words what the numbers mean.

    Writes ``crossover.csv`` and ``step_vs_n.png``. The runs' own files go to the folder's subfolder
    ``crossover``, so that they do not count as runs of the study in the folder.

    Args:
        config: TOML with the keys of ``experiments/configs/crossover.toml``.
        folder: The results go here.
        smoke: Whether this is a smoke run.
        options: Those of `experiments.common.command.swept`: processes, and what to run again.
    """
    study = Crossover.read(config, smoke)
    say(f"\n{study.title}: every surrogate is given n points first.")
    runs = folder / "crossover"
    end(swept(study.runs, runs, smoke, *options), runs)
    table = summary([table_of(runs, run.stem) for run in study.runs])
    table.to_csv(folder / "crossover.csv", index=False)
    exact = next(run.label for run in study.runs if run.surrogate["name"] == "exact")
    draw(table, exact, folder / "step_vs_n.png", study.title)
    say(f"\n{study.title}, given n points first; medians of {study.runs[0].config.steps} steps\n")
    say(table.to_string(index=False, float_format="{:.3f}".format))
    say("")
    for line in sentences(table, exact):
        say(line)


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

    Between two sizes, times are interpolated linearly in logarithms.

    Args:
        stream: Seconds by n, ascending.
        exact: Seconds by the same n.

    Returns:
        The least n if the stream's step takes less time at all of them; infinity if it takes more
        at the largest.
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
    """What a table of `summary` means, in sentences.

    Args:
        table: Of `summary`.
        exact: The label of exact inference in it.
    """
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
    """Draw seconds of a step against n, both logarithmic, and mark where streams become cheaper.

    Args:
        table: Of `summary`.
        exact: The label of exact inference in it.
        path: PNG or any format of matplotlib; folders are made.
        title: Of the picture.
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
    ax.set(xlabel="points given first", ylabel="seconds a step", title=title)
    logarithmic_axis(ax, "x")
    logarithmic_axis(ax, "y")
    ax.grid(True, alpha=0.25)
    ax.legend(fontsize=8)
    save(figure, path)


def _by_size(table: pd.DataFrame) -> pd.DataFrame:
    """Seconds of a step, a column a surrogate, at the sizes that all have."""
    sizes = table.pivot(index="n", columns="surrogate", values="s/step").dropna().sort_index()
    return sizes[list(dict.fromkeys(table["surrogate"]))]
