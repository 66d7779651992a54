"""Figures of results: medians over seeds with bands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import pandas as pd

matplotlib.use("Agg")
from matplotlib import pyplot as plt

__all__ = ["draw_bands"]


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
        steps = runs.groupby("step")
        median = steps[[x, y]].median() if x != "step" else steps[[y]].median().reset_index()
        (line,) = ax.plot(median[x], median[y], label=", ".join(map(str, key)))
        low, high = steps[y].min(), steps[y].max()
        ax.fill_between(median[x], low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    fixed = [str(table[name].iloc[0]) for name in names if name not in varying]
    ax.set(xlabel=x.replace("_", " "), ylabel=y.replace("_", " "), title=", ".join(fixed))
    if logarithmic:
        ax.set_yscale("log")
    ax.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
