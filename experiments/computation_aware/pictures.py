"""A picture of budgets: distances of subspaces as actions are learned."""

from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt

from experiments.common.plots import draw_band, legend, save


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
