"""Figures of results: medians over seeds with bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["draw_bands", "draw_regret", "draw_sizes", "save"]

DASHES: list[Any] = ["-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1))]
MARKERS = "os^Dv"
"""By curve, so that curves which coincide can all be seen."""

LEAST = 1e-3
"""Regrets below this are drawn here, since the axis is logarithmic."""


def draw_bands(
    tables: Sequence[pd.DataFrame],
    y: str,
    x: str,
    names: Sequence[str],
    path: Path,
    logarithmic: bool = True,
    labels: Mapping[str, str] | None = None,
    title: str | None = None,
    logarithmic_x: bool = False,
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
        labels: What ``x`` and ``y`` are, with units; by default, the columns' names.
        title: By default, the names that all tables share.
        logarithmic_x: Whether the x axis is logarithmic too.
    """
    table = pd.concat(list(tables), ignore_index=True)
    varying = [name for name in names if table[name].nunique() > 1] or list(names[:1])
    figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for k, (key, runs) in enumerate(table.groupby(varying, sort=False)):
        _band(ax, runs, y, x, ", ".join(map(str, key)), k)
    fixed = [str(table[name].iloc[0]) for name in names if name not in varying]
    about = {name: name.replace("_", " ") for name in (x, y)} | dict(labels or {})
    ax.set(xlabel=about[x], ylabel=about[y], title=title or ", ".join(fixed))
    if logarithmic:
        ax.set_yscale("log")
    if logarithmic_x:
        ax.set_xscale("log")
    ax.legend(fontsize=8)
    save(figure, path)


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
    save(figure, path)


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
        for k, (policy, runs) in enumerate(part.groupby("policy", sort=False)):
            _band(ax, runs.rename(columns={"batch": "step"}), y, "step", str(policy), k)
        ax.set(title=f"{name}, {dim}-D", xlabel="batch")
        ax.xaxis.get_major_locator().set_params(integer=True)
        if (part[y] >= 0).all():
            ax.set_ylim(0.0, 1.06 * float(part[y].max()))
    for line in panels:
        line[0].set_ylabel(label)
    panels.flat[0].legend(fontsize=8)
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write a figure, making folders, and close it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _band(ax: Axes, runs: pd.DataFrame, y: str, x: str, label: str, k: int | None = None) -> Any:
    """Median and band of the seeds of one curve; returns its colour.

    ``k`` numbers the curves of a panel and decides dash, width and markers; both sizes fall, so
    that a curve under another is seen. None: a plain line.
    """
    steps = runs.groupby("step")
    median = steps[[x, y]].median() if x != "step" else steps[[y]].median().reset_index()
    look: dict[str, Any] = {}
    if k is not None:
        every = max(1, len(median) // 6)
        look = {"linestyle": DASHES[k % len(DASHES)], "marker": MARKERS[k % len(MARKERS)]}
        look |= {"markevery": (k * every // 4 % every, every), "fillstyle": "none"}
        look |= {"markersize": max(3.0, 9.0 - 2.0 * k), "linewidth": max(1.0, 2.2 - 0.4 * k)}
    (line,) = ax.plot(median[x], median[y], label=label, **look)
    low, high = steps[y].min(), steps[y].max()
    ax.fill_between(median[x], low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    return line.get_color()
