"""Figures of results: medians over seeds with bands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

__all__ = ["draw_bands", "draw_regret", "draw_sizes"]

LEAST = 1e-3
"""Regrets below this are drawn here, since the axis is logarithmic."""


def draw_bands(
    tables: Sequence[pd.DataFrame],
    y: str,
    x: str,
    names: Sequence[str],
    path: Path,
    logarithmic: bool = True,
) -> None:
    """Draw the median of ``y`` over seeds against ``x``, with the band from least to largest.

    Seeds are matched by ``step``; where ``x`` is a time, its median over seeds is drawn.

    Args:
        tables: One per run, with columns ``step``, ``x``, ``y`` and the names.
        y: Column drawn.
        x: Column it is drawn against.
        names: Columns that tell the curves apart; those with one value are left out of the legend.
        path: PNG or any format of matplotlib; folders are made.
        logarithmic: Whether the y axis is.
    """
    table = pd.concat(list(tables), ignore_index=True)
    varying = [name for name in names if table[name].nunique() > 1] or list(names[:1])
    figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for key, runs in table.groupby(varying, sort=False):
        _band(ax, runs, y, x, ", ".join(map(str, key)))
    fixed = [str(table[name].iloc[0]) for name in names if name not in varying]
    ax.set(xlabel=x.replace("_", " "), ylabel=y.replace("_", " "), title=", ".join(fixed))
    if logarithmic:
        ax.set_yscale("log")
    ax.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_regret(tables: Sequence[pd.DataFrame], path: Path, title: str) -> None:
    """Draw regret against wall-clock and, beside it, against observations.

    Solid, with a band: inference regret (of the posterior mean's maximiser). Dashed: simple regret
    (of the best observed point).

    Args:
        tables: One per run, as `bo_stream.loop.BOLoop` records them, with a column ``surrogate``.
        path: PNG or any format of matplotlib; folders are made.
        title: Of the figure.
    """
    table = pd.concat(list(tables), ignore_index=True)
    regrets = ["inference_regret", "simple_regret"]
    table[regrets] = table[regrets].clip(lower=LEAST)
    figure, panels = plt.subplots(1, 2, sharey=True, figsize=(11, 4.5), layout="constrained")
    axes = {"wallclock_seconds": "wall-clock seconds", "n": "observations"}
    for ax, (x, name) in zip(panels, axes.items(), strict=True):
        for label, runs in table.groupby("surrogate", sort=False):
            recommended = runs.dropna(subset=["inference_regret"])
            colour = _band(ax, recommended, "inference_regret", x, f"{label}, recommended")
            median = runs.groupby("step")[[x, "simple_regret"]].median()
            ax.plot(
                median[x], median["simple_regret"], "--", color=colour, label=f"{label}, observed"
            )
        ax.set(xlabel=name, yscale="log")
        ax.grid(True, alpha=0.25)
    panels[0].set_ylabel("regret, noiseless")
    panels[1].legend(fontsize=8)
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_sizes(
    table: pd.DataFrame, path: Path, y: str = "points", label: str = "inducing points"
) -> None:
    """Draw inducing points (or another column) by batch, a panel for each dimension and scenario.

    Lines are medians over seeds, bands reach from least to largest.

    Args:
        table: Columns ``dim``, ``scenario``, ``seed``, ``policy``, ``batch`` and ``y``.
        path: PNG or any format of matplotlib; folders are made.
        y: Column drawn; its axis starts at zero where no value is below.
        label: What it is.
    """
    streams = list(table.groupby(["dim", "scenario"], sort=False))
    columns = min(3, len(streams))
    shape = -(-len(streams) // columns), columns
    figure, panels = plt.subplots(
        *shape, figsize=(4 * shape[1], 3 * shape[0]), squeeze=False, layout="constrained"
    )
    for ax in panels.flat[len(streams) :]:
        ax.set_axis_off()
    for ax, ((dim, name), part) in zip(panels.flat, streams, strict=False):
        for policy, runs in part.groupby("policy", sort=False):
            _band(ax, runs.rename(columns={"batch": "step"}), y, "step", str(policy))
        ax.set(title=f"{name}, {dim}-D", xlabel="batch")
        ax.xaxis.get_major_locator().set_params(integer=True)
        if (part[y] >= 0).all():
            ax.set_ylim(bottom=0.0)
    for line in panels:
        line[0].set_ylabel(label)
    panels.flat[0].legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _band(ax: Axes, runs: pd.DataFrame, y: str, x: str, label: str) -> Any:
    """Median and band of the seeds of one curve; returns its colour."""
    steps = runs.groupby("step")
    median = steps[[x, y]].median() if x != "step" else steps[[y]].median().reset_index()
    (line,) = ax.plot(median[x], median[y], label=label)
    low, high = steps[y].min(), steps[y].max()
    ax.fill_between(median[x], low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    return line.get_color()
