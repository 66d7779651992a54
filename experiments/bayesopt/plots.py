"""Pictures of a study of Bayesian optimisation: regret against time and observations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from experiments.common.plots import draw_band, legend, logarithmic_axis, plt, save

__all__ = ["draw_each", "draw_regret"]

LEAST = 1e-3
"""Regrets below this are drawn here, since the axis is logarithmic."""

COLUMNS = 5
"""Of panels."""

PANELS = {"wallclock_seconds": "wall-clock time (seconds)", "n": "number of observations"}


def draw_regret(tables: Sequence[pd.DataFrame], path: Path, title: str) -> None:
    """Draw regret against wall-clock and, beside it, against observations.

    Solid, with a band: inference regret (of the posterior mean's maximiser). Dashed: simple regret
    (of the best observed point).

    Args:
        tables: One per run, as a `BOLoop` records them, with a column ``surrogate``.
        path: PNG or any format of matplotlib; folders are made.
        title: Of the figure.
    """
    table = pd.concat(list(tables), ignore_index=True)
    regrets = ["inference_regret", "simple_regret"]
    table[regrets] = table[regrets].clip(lower=LEAST)
    figure, panels = plt.subplots(1, 2, sharey=True, figsize=(11, 4.5), layout="constrained")
    for ax, (x, name) in zip(panels, PANELS.items(), strict=True):
        seeds = []
        for label, runs in table.groupby("surrogate", sort=False):
            recommended = runs.dropna(subset=["inference_regret"])
            about = f"{label}, recommended point"
            colour, count = draw_band(ax, recommended, "inference_regret", x, about)
            seeds.append(count)
            median = runs.groupby("step")[[x, "simple_regret"]].median()
            about = f"{label}, best point observed"
            ax.plot(median[x], median["simple_regret"], "--", color=colour, label=about)
        ax.set(xlabel=name, yscale="log")
        ax.grid(True, alpha=0.25)
    panels[0].set_ylabel("regret without noise (the objective's units)")
    legend(panels[1], seeds)
    figure.suptitle(title)
    save(figure, path)


def draw_each(tables: Sequence[pd.DataFrame], x: str, path: Path, title: str) -> None:
    """Draw inference regret in a panel for each surrogate, over the medians of all others.

    Args:
        tables: As for `draw_regret`.
        x: One of `PANELS`.
        path: PNG or any format of matplotlib; folders are made.
        title: Of the figure.
    """
    table = pd.concat(list(tables), ignore_index=True).dropna(subset=["inference_regret"])
    table["inference_regret"] = table["inference_regret"].clip(lower=LEAST)
    parts = list(table.groupby("surrogate", sort=False))
    rows = -(-len(parts) // COLUMNS)
    size = (2.6 * COLUMNS, 2.3 * rows + 0.8)
    figure, panels = plt.subplots(
        rows, COLUMNS, figsize=size, sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for ax in panels.flat[len(parts) :]:
        ax.set_axis_off()
    for ax in panels.flat[max(len(parts) - COLUMNS, 0) : len(parts)]:
        ax.tick_params(labelbottom=True)
    medians = [runs.groupby("step")[[x, "inference_regret"]].median() for _, runs in parts]
    seeds = 0
    for ax, (label, runs) in zip(panels.flat, parts, strict=False):
        for median in medians:
            ax.plot(median[x], median["inference_regret"], color="0.8", linewidth=0.7, zorder=1)
        seeds = max(seeds, draw_band(ax, runs, "inference_regret", x, str(label))[1])
        ax.set_title(str(label), fontsize=9)
    logarithmic_axis(panels[0, 0], "x")
    logarithmic_axis(panels[0, 0], "y")
    figure.supxlabel(PANELS[x], fontsize=10)
    figure.supylabel("regret of the recommended point, without noise", fontsize=10)
    about = f"median and range of {seeds} seeds" if seeds > 1 else "one seed, hence no bands"
    figure.suptitle(f"{title}\n{about}; grey: the others", fontsize=10)
    save(figure, path)
