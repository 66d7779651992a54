"""Costs in tables, and in a picture with a panel for each part and a line for each surrogate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.common.plots import draw_band, legend, logarithmic_axis, plt, save
from experiments.common.progress import say
from experiments.common.words import in_words
from experiments.cost.measured import PARTS, Cost

__all__ = ["draw_costs", "report"]


def report(c: dict[str, Any], done: Sequence[tuple[Cost, pd.DataFrame]], folder: Path) -> None:
    """Draw costs, print their medians in seconds and in c, and write ``cost.csv``.

    Args:
        c: The configuration.
        done: Runs with their tables.
        folder: Of the results.
    """
    tables = [
        table.assign(surrogate=run.label, inputs=run.inputs, seed=run.seed) for run, table in done
    ]
    whole = pd.concat(tables, ignore_index=True).drop(columns="step")
    whole.to_csv(folder / "cost.csv", index=False)
    points = done[0][0].sizes.points
    for inputs, part in whole.groupby("inputs"):
        title = f"{c['title']}: {c['function']}, {inputs} inputs"
        draw_costs(part, folder / f"cost_{inputs}_inputs.png", title, points)
    keys = ["inputs", "surrogate", "n"]
    for unit, words in (("seconds", "processor seconds"), ("c", "one Cholesky factorisation")):
        shown = whole.groupby(keys, sort=False)[[f"{part}_{unit}" for part in PARTS]].median()
        shown.columns = [part.format(points=points) for part in PARTS.values()]
        say(f"\nIn units of {words}\n")
        say(shown.reset_index().to_string(index=False, float_format="{:.3g}".format))
    say(f"\nWrote {folder}/")


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
