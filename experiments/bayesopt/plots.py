"""The picture of a study of Bayesian optimisation: regret against time and observations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from experiments.common.plots import draw_band, legend, plt, save

__all__ = ["draw_regret"]

LEAST = 1e-3
"""Regrets below this are drawn here, since the axis is logarithmic."""

PANELS = {"wallclock_seconds": "wall-clock time (seconds)", "n": "number of observations"}


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
