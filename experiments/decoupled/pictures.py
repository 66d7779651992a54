"""Pictures of decoupled GPs: predictions along an axis, learning by gradients, streams."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt

from experiments.common.plots import draw_band, draw_bands, legend, logarithmic_axis, save
from experiments.decoupled.toy import STOCHASTIC, Along

SCORES = {"nmse": "nMSE, mean over outputs", "nlpd": "NLPD (nats), mean over outputs"}
AGAINST = {"seconds": "processor time of learning (seconds)", "rows": "rows seen"}


def draw_along(every: Sequence[Along], path: Path) -> None:
    """A panel a method: rows, mean, two deviations of observations; the first one's dashed."""
    size, first = (3.6 * len(every), 3.4), every[0]
    figure, panels = plt.subplots(1, len(every), figsize=size, sharey=True, layout="constrained")
    for k, (ax, one) in enumerate(zip(panels, every, strict=True)):
        ax.plot(one.X, one.Y, ".", color="0.8", markersize=3)
        ax.plot(first.at, first.mean, "--", color="0.2", linewidth=1, label=first.name)
        (line,) = ax.plot(one.at, one.mean, color=f"C{k}", label="mean")
        low, high = one.mean - 2.0 * one.deviation, one.mean + 2.0 * one.deviation
        ax.fill_between(one.at, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        ax.set(title=one.name, xlabel="x")
    panels[0].set_ylabel("y; band: two deviations of observations")
    panels[0].legend(fontsize=8)
    save(figure, path)


def draw_learning(results: pd.DataFrame, path: Path) -> None:
    """How gradients approach the exact mean, with a band over seeds; the closed forms as points."""
    figure, ax = plt.subplots(figsize=(7.0, 4.5), layout="constrained")
    counts = []
    for k, (name, part) in enumerate(results.groupby("method", sort=False)):
        if name == STOCHASTIC:
            counts.append(draw_band(ax, part, "mean_error", "seconds", str(name), k)[1])
        else:
            at, low, high = (part["seconds"].median(), *part["mean_error"].agg(["min", "max"]))
            middle = part["mean_error"].median()
            bars = [[middle - low], [high - middle]]
            ax.errorbar([at], [middle], bars, fmt="s", capsize=3, label=str(name))
            counts.append(part["seed"].nunique())
    label = "RMS distance from the exact mean\n(deviations of the noise)"
    ax.set(xlabel=AGAINST["seconds"], ylabel=label, title="Noisy sinc, the same hyperparameters")
    for axis in ("x", "y"):
        logarithmic_axis(ax, axis)
    legend(ax, counts)
    save(figure, path)


def draw_scores(by_seed: pd.DataFrame, folder: Path, table: str) -> None:
    """Both scores of one table against seconds and against rows, with bands over seeds."""
    batches = by_seed.groupby("contender")["step"].transform("nunique")
    curves = by_seed[batches == by_seed["step"].nunique()]
    for score, about in SCORES.items():
        for x, along in AGAINST.items():
            path = folder / f"{table.replace(' ', '_')}_{score}_{x}.png"
            labels, scale, timed = {score: about, x: along}, score == "nmse", x == "seconds"
            draw_bands([curves], score, x, ["contender"], path, scale, labels, table, timed)
