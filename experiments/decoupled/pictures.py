"""Pictures of decoupled GPs: learning by gradients, streams."""

from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt

from experiments.common.plots import draw_band, draw_bands, legend, logarithmic_axis, save
from experiments.decoupled.toy import STOCHASTIC

SCORES = {"nmse": "nMSE, mean over outputs", "nlpd": "NLPD (nats), mean over outputs"}
AGAINST = {"seconds": "processor time of learning (seconds)", "rows": "rows seen"}


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
