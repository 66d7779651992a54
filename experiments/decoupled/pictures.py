"""Pictures of decoupled GPs: laws along an axis, courses of learning, scores of streams."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from experiments.common.plots import draw_band, draw_bands, legend, logarithmic_axis, plt, save
from experiments.decoupled.toy import STOCHASTIC, Law

__all__ = ["draw_course", "draw_laws", "draw_scores"]

SCORES = {"nmse": "nMSE, mean over outputs", "nlpd": "NLPD (nats), mean over outputs"}
AGAINST = {"seconds": "processor time of learning (seconds)", "rows": "rows seen"}


def draw_laws(laws: Sequence[Law], path: Path) -> None:
    """A panel a method: rows, mean, two deviations of observations; the first law dashed in all.

    Args:
        laws: At least one.
        path: PNG or any format of matplotlib; folders are made.
    """
    figure, panels = plt.subplots(
        1,
        len(laws),
        figsize=(3.6 * len(laws), 3.4),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for k, (ax, law) in enumerate(zip(panels[0], laws, strict=True)):
        ax.plot(law.X, law.Y, ".", color="0.8", markersize=3)
        ax.plot(laws[0].at, laws[0].mean, "--", color="0.2", linewidth=1, label=laws[0].name)
        (line,) = ax.plot(law.at, law.mean, color=f"C{k}", label="mean")
        low, high = law.mean - 2.0 * law.deviation, law.mean + 2.0 * law.deviation
        ax.fill_between(law.at, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        ax.set(title=law.name, xlabel="x")
    panels[0, 0].set_ylabel("y; band: two deviations of observations")
    panels[0, 0].legend(fontsize=8)
    save(figure, path)


def draw_course(results: pd.DataFrame, path: Path) -> None:
    """How gradients approach the exact mean, with a band over seeds; the closed forms as points.

    Args:
        results: What `experiments.decoupled.toy.compared` returns.
        path: As in `draw_laws`.
    """
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
    """Both scores of one table against seconds and against rows, with bands over seeds.

    Args:
        by_seed: What `experiments.decoupled.report.means` returns, of one table.
        folder: Where the pictures go.
        table: Its name.
    """
    batches = by_seed.groupby("contender")["step"].transform("nunique")
    curves = by_seed[batches == by_seed["step"].nunique()]
    for score, about in SCORES.items():
        for x, along in AGAINST.items():
            path = folder / f"{table.replace(' ', '_')}_{score}_{x}.png"
            labels = {score: about, x: along}
            draw_bands(
                [curves],
                score,
                x,
                ["contender"],
                path,
                logarithmic=score == "nmse",
                labels=labels,
                title=table,
                logarithmic_x=x == "seconds",
            )
