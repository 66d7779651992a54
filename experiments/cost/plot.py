"""The picture of costs: seconds against n, a panel a part, a line a surrogate."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from experiments.common.plots import draw_band, legend, logarithmic_axis, plt, save
from experiments.common.words import in_words
from experiments.cost.measured import PARTS

__all__ = ["draw_costs"]


def draw_costs(table: pd.DataFrame, path: Path, title: str, points: int) -> None:
    """Draw medians over seeds, both axes logarithmic.

    Args:
        table: Columns ``surrogate``, ``n`` and those of `PARTS` with ``_seconds``; of one problem.
        path: PNG or any format of matplotlib; folders are made.
        title: Of the figure.
        points: At which the posterior is taken.
    """
    figure, panels = plt.subplots(2, 2, figsize=(12.5, 8), sharex=True, layout="constrained")
    for ax, (part, words) in zip(panels.flat, PARTS.items(), strict=True):
        seeds = []
        for k, (label, runs) in enumerate(table.groupby("surrogate", sort=False)):
            drawn = runs.assign(step=runs["n"])
            words_of = in_words(str(label))
            seeds.append(draw_band(ax, drawn, f"{part}_seconds", "n", words_of, k)[1])
        ax.set(title=words.format(points=points), ylabel="processor seconds")
        for which in "xy":
            logarithmic_axis(ax, which)
        ax.grid(True, alpha=0.25)
    for ax in panels[-1]:
        ax.set_xlabel("observations seen before")
    legend(panels.flat[1], seeds, beside=True)
    figure.suptitle(title)
    save(figure, path)
