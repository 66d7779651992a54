"""Pictures: learning curves and calibration on tables, posteriors of the toy."""

from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt
from torch import Tensor

from experiments.common.data import TableSplit
from experiments.common.plots import save
from experiments.computation_aware.toy import Bands

SCORES = {"nll": "test NLL (nats)", "rmse": "test RMSE (standard deviations)"}


def draw_curves(curves: pd.DataFrame, path: Path) -> None:
    """Test nll and rmse against seconds, a column of panels a table, a line a method and seed."""
    names = list(dict.fromkeys(curves["table"]))
    size = (max(4.2 * len(names), 5.5), 6.5)
    figure, axes = plt.subplots(2, len(names), figsize=size, layout="constrained", squeeze=False)
    labels = list(dict.fromkeys(curves["contender"]))
    for (name, label, _), part in curves.groupby(["table", "contender", "seed"], sort=False):
        for ax, (column, about) in zip(axes[:, names.index(name)], SCORES.items(), strict=True):
            known = ax.get_legend_handles_labels()[1]
            ax.plot(
                part["seconds"],
                part[column],
                ".-",
                color=f"C{labels.index(label)}",
                label=None if label in known else label,
            )
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
    """
    levels = [float(name.split()[1]) for name in map(str, results) if name.startswith("coverage ")]
    columns = [f"coverage {level}" for level in levels]
    names = list(dict.fromkeys(results["table"]))
    size = (max(4.2 * len(names), 5.5), 4.6)
    figure, axes = plt.subplots(1, len(names), figsize=size, layout="constrained", squeeze=False)
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


def draw_toy(bands: Bands, grid: Tensor, split: TableSplit, truth: Tensor, path: Path) -> None:
    """Posteriors side by side: mean, and two deviations of the latent and of the exact GP's."""
    size = (4.0 * len(bands), 4.2)
    figure, axes = plt.subplots(1, len(bands), figsize=size, layout="constrained", sharey=True)
    x = grid[:, 0]
    for ax, (title, (mean, deviation, least)) in zip(axes, bands.items(), strict=True):
        ax.plot(split.X[:, 0], split.Y[:, 0], ".", color="0.4", markersize=3, label="data")
        ax.plot(x, truth, color="0.2", linestyle=":", linewidth=1, label="function")
        (line,) = ax.plot(x, mean, linewidth=1.2, label="posterior mean")
        colour, low, high = line.get_color(), mean - 2 * deviation, mean + 2 * deviation
        about = "two standard deviations"
        ax.fill_between(x, low, high, color=colour, alpha=0.2, label=about)
        for sign, label in ((-2, None), (2, "the same of the exact GP")):
            ax.plot(x, mean + sign * least, color=colour, linewidth=0.5, label=label)
        ax.set(title=title, xlabel="input (no unit)")
    axes[0].set_ylabel("outcome (no unit)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.suptitle(f"Four posteriors of the same {len(split.X)} data")
    save(figure, path)


def _seeds(table: pd.DataFrame, of_several: str) -> str:
    count = table["seed"].nunique()
    return "one seed, hence no bands" if count == 1 else f"{count} seeds, {of_several}"
