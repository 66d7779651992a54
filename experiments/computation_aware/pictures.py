"""Pictures of budgets: predictions along an axis, distances of subspaces as actions are learned."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt

from experiments.common.plots import draw_band, legend, save
from experiments.computation_aware.study import Curve


def draw_curves(every: Sequence[Curve], path: Path) -> None:
    """A panel a method: rows, mean, two deviations of observations; the first one's dashed."""
    size, first = (3.4 * len(every), 3.2), every[0]
    figure, panels = plt.subplots(1, len(every), figsize=size, sharey=True, layout="constrained")
    for k, (ax, one) in enumerate(zip(panels, every, strict=True)):
        ax.plot(one.X, one.Y, ".", color="0.8", markersize=3)
        for sign in (-2.0, 0.0, 2.0):
            edge = first.mean + sign * first.deviation
            ax.plot(first.at, edge, "--", color="0.3", linewidth=0.8)
        ax.plot(one.at, one.mean, color=f"C{k}")
        low, high = one.mean - 2.0 * one.deviation, one.mean + 2.0 * one.deviation
        ax.fill_between(one.at, low, high, color=f"C{k}", alpha=0.2, linewidth=0)
        ax.set(title=one.name, xlabel="x")
    panels[0].set_ylabel("y; dashed: the exact GP")
    save(figure, path)


def draw_distances(table: pd.DataFrame, path: Path) -> None:
    """Distance from the leading eigenvectors against evaluations; CG's as a horizontal line."""
    figure, ax = plt.subplots(figsize=(7.0, 4.2), layout="constrained")
    counts = []
    for k, (i, part) in enumerate(table.groupby("actions", sort=False)):
        learned = part[part["policy"] == "BlockSparse"].rename(columns={"evaluations": "step"})
        drawn = draw_band(ax, learned, "distance", "step", f"{i} learned actions", k)
        counts.append(drawn[1])
        by_cg = part.loc[part["policy"] != "BlockSparse", "distance"].median()
        ax.axhline(by_cg, color=drawn[0], linestyle=":", linewidth=1)
    about = "Grassmann distance from the leading eigenvectors"
    ax.set(xlabel="evaluations of the fit (dotted: actions of CG)", ylabel=about)
    legend(ax, counts)
    save(figure, path)
