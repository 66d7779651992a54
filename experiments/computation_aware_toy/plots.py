"""The toy's picture: posteriors side by side."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from experiments.common.plots import plt, save
from experiments.computation_aware_toy.posteriors import Bands

__all__ = ["draw_toy"]


def draw_toy(bands: Bands, grid: Tensor, X: Tensor, Y: Tensor, truth: Tensor, path: Path) -> None:
    """Posteriors side by side: mean, and two deviations of the latent and of the exact GP's.

    Args:
        bands: What is drawn, by title; on the grid.
        grid: Points, flat.
        X: Where there are data, flat.
        Y: The data, flat.
        truth: The noiseless function on the grid.
        path: PNG or any format of matplotlib; folders are made.
    """
    figure, axes = plt.subplots(
        1, len(bands), figsize=(4.0 * len(bands), 4.2), layout="constrained", sharey=True
    )
    for ax, (title, (mean, deviation, least)) in zip(axes, bands.items(), strict=True):
        ax.plot(X, Y, ".", color="0.4", markersize=3, label="data")
        ax.plot(grid, truth, color="0.2", linestyle=":", linewidth=1, label="function")
        (line,) = ax.plot(grid, mean, linewidth=1.2, label="posterior mean")
        colour, low, high = line.get_color(), mean - 2 * deviation, mean + 2 * deviation
        about = "two standard deviations"
        ax.fill_between(grid, low, high, color=colour, alpha=0.2, label=about)
        for sign, label in ((-2, None), (2, "the same of the exact GP")):
            ax.plot(grid, mean + sign * least, color=colour, linewidth=0.5, label=label)
        ax.set(title=title, xlabel="input (no unit)")
    axes[0].set_ylabel("outcome (no unit)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.suptitle(f"Four posteriors of the same {len(X)} data")
    save(figure, path)
