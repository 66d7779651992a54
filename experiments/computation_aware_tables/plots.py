"""Pictures of the study on tables: learning curves and calibration."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from experiments.common.plots import plt, save

__all__ = ["draw_calibration", "draw_curves"]

SCORES = {"nll": "test NLL (nats)", "rmse": "test RMSE (standard deviations)"}


def draw_curves(curves: pd.DataFrame, path: Path) -> None:
    """Test nll and rmse against seconds, a column of panels a table, a line a contender and seed.

    Args:
        curves: Columns ``table, seed, contender, seconds, nll, rmse``.
        path: PNG or any format of matplotlib; folders are made.
    """
    names = list(dict.fromkeys(curves["table"]))
    figure, axes = plt.subplots(
        2,
        len(names),
        figsize=(max(4.2 * len(names), 5.5), 6.5),
        layout="constrained",
        squeeze=False,
    )
    labels = list(dict.fromkeys(curves["contender"]))
    for (name, label, _), part in curves.groupby(["table", "contender", "seed"], sort=False):
        for ax, (column, about) in zip(axes[:, names.index(name)], SCORES.items(), strict=True):
            colour = f"C{labels.index(label)}"
            first = label not in ax.get_legend_handles_labels()[1]
            label_once = label if first else None
            ax.plot(part["seconds"], part[column], ".-", color=colour, label=label_once)
            ax.set(xscale="log", xlabel="processor time (seconds)", ylabel=about, title=name)
    last = curves.groupby(["table", "contender", "seed"])["nll"].last()
    for ax, name in zip(axes[0], names, strict=True):
        low, high = ax.get_ylim()
        ax.set_ylim(low, min(high, float(last[name].max()) + 1.0))  # a first guess may be far off
    axes[0, 0].legend(fontsize=8)
    figure.suptitle(f"Scores while learning; {_seeds(curves, 'a line each')}", fontsize=10)
    save(figure, path)


def draw_calibration(results: pd.DataFrame, path: Path) -> None:
    """Coverage against nominal level, a panel a table, the median over seeds.

    Both axes are the same and reach as far as the points.

    Args:
        results: Columns ``table, contender``, ``seed`` and ``coverage L`` for each level.
        path: As in `draw_curves`.
    """
    levels = [float(name.split()[1]) for name in map(str, results) if name.startswith("coverage ")]
    columns = [f"coverage {level}" for level in levels]
    names = list(dict.fromkeys(results["table"]))
    figure, axes = plt.subplots(
        1,
        len(names),
        figsize=(max(4.2 * len(names), 5.5), 4.6),
        layout="constrained",
        squeeze=False,
    )
    medians = results.groupby(["table", "contender"], sort=False)[columns].median()
    edges = min(min(levels), float(medians.to_numpy().min())) - 0.03, 1.03
    for ax, name in zip(axes[0], names, strict=True):
        ax.plot([0.0, 1.0], [0.0, 1.0], color="0.7", linewidth=1)
        for label, coverage in medians.loc[name].iterrows():
            ax.plot(levels, coverage, "o-", markersize=3, label=label)
        ax.set(title=name, xlim=edges, ylim=edges, aspect="equal")
        ax.set(xlabel="nominal level (share)", ylabel="coverage (share of test rows)")
    axes[0, 0].legend(fontsize=8)
    about = _seeds(results, "medians")
    figure.suptitle(f"Coverage of central intervals; {about}", fontsize=10)
    save(figure, path)


def _seeds(table: pd.DataFrame, of_several: str) -> str:
    count = table["seed"].nunique()
    return "one seed, hence no bands" if count == 1 else f"{count} seeds, {of_several}"
