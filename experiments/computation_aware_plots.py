"""Pictures of the computation-aware studies: learning curves, calibration, the toy."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import pandas as pd
from torch import Tensor

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from experiments.plots import save

__all__ = ["draw_calibration", "draw_curves", "draw_toy"]


def draw_curves(curves: pd.DataFrame, path: Path) -> None:
    """Test nll and rmse against seconds, a column of panels a table, a line a contender and seed.

    Args:
        curves: Columns ``table, seed, contender, seconds, nll, rmse``.
        path: PNG or any format of matplotlib; folders are made.
    """
    names = list(dict.fromkeys(curves["table"]))
    figure, axes = plt.subplots(
        2, len(names), figsize=(4.2 * len(names), 6.5), layout="constrained", squeeze=False
    )
    labels = list(dict.fromkeys(curves["contender"]))
    for (name, label, _), part in curves.groupby(["table", "contender", "seed"], sort=False):
        for ax, column in zip(axes[:, names.index(name)], ("nll", "rmse"), strict=True):
            colour = f"C{labels.index(label)}"
            first = label not in ax.get_legend_handles_labels()[1]
            label_once = label if first else None
            ax.plot(part["seconds"], part[column], ".-", color=colour, label=label_once)
            ax.set(xscale="log", xlabel="processor seconds", ylabel=f"test {column}", title=name)
    last = curves.groupby(["table", "contender", "seed"])["nll"].last()
    for ax, name in zip(axes[0], names, strict=True):
        low, high = ax.get_ylim()
        ax.set_ylim(low, min(high, float(last[name].max()) + 1.0))  # a first guess may be far off
    axes[0, 0].legend(fontsize=8)
    save(figure, path)


def draw_calibration(results: pd.DataFrame, path: Path) -> None:
    """Coverage against nominal level, a panel a table, the median over seeds.

    Args:
        results: Columns ``table, contender`` and ``coverage L`` for each level.
        path: As in `draw_curves`.
    """
    levels = [float(name.split()[1]) for name in map(str, results) if name.startswith("coverage ")]
    columns = [f"coverage {level}" for level in levels]
    names = list(dict.fromkeys(results["table"]))
    figure, axes = plt.subplots(
        1, len(names), figsize=(4.2 * len(names), 4.0), layout="constrained", squeeze=False
    )
    for ax, name in zip(axes[0], names, strict=True):
        ax.plot([0.0, 1.0], [0.0, 1.0], color="0.7", linewidth=1)
        part = results[results["table"] == name]
        for label, runs in part.groupby("contender", sort=False):
            ax.plot(levels, runs[columns].median(), "o-", markersize=3, label=label)
        ax.set(xlabel="nominal", ylabel="coverage", title=name, xlim=(0.45, 1), ylim=(0.45, 1))
    axes[0, 0].legend(fontsize=8)
    save(figure, path)


def draw_toy(
    laws: dict[str, tuple[Tensor, Tensor, Tensor]],
    grid: Tensor,
    X: Tensor,
    Y: Tensor,
    truth: Tensor,
    path: Path,
) -> None:
    """Posteriors side by side: mean, and two deviations of the latent and of the exact GP's.

    Args:
        laws: For each title, mean, latent deviation and the exact GP's deviation under the same
            hyperparameters, each on the grid.
        grid: Points, flat.
        X: Where there are data, flat.
        Y: The data, flat.
        truth: The noiseless function on the grid.
        path: As in `draw_curves`.
    """
    figure, axes = plt.subplots(
        1, len(laws), figsize=(4.0 * len(laws), 3.4), layout="constrained", sharey=True
    )
    for ax, (title, (mean, deviation, least)) in zip(axes, laws.items(), strict=True):
        ax.plot(X, Y, ".", color="0.4", markersize=3)
        ax.plot(grid, truth, color="0.2", linestyle=":", linewidth=1)
        (line,) = ax.plot(grid, mean, linewidth=1.2)
        ax.fill_between(
            grid, mean - 2 * deviation, mean + 2 * deviation, color=line.get_color(), alpha=0.2
        )
        for sign in (-2, 2):
            ax.plot(grid, mean + sign * least, color=line.get_color(), linewidth=0.5)
        ax.set(title=title, xlabel="x")
    figure.suptitle("mean; two latent deviations (band) and the exact GP's (thin lines)")
    save(figure, path)
