"""Pictures of a comparison: the loss against evaluations or seconds, a panel for each task."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from experiments.common.plots import DASHES, MARKERS, logarithmic_axis, save
from experiments.comparison.tables import LEAST, Unit

COLUMNS = 4
"""Of panels."""
PLACES = 80
"""Along the axis, where the runs of a method are put together."""
LINE = 0.045
"""Height of a line of text, as a share of that of a panel."""
AXES: dict[Unit, str] = {
    "n": "evaluations",
    "cpu_seconds": "processor seconds of the optimiser",
}


def draw(
    runs: Sequence[pd.DataFrame],
    unit: Unit,
    path: Path,
    title: str,
    least: float = 1e-6,
    label: str = "regret of the recommended point",
) -> None:
    """Draw medians and quartiles over the seeds of every method, by task, both axes logarithmic.

    A curve runs from where all seeds of its method have a recommendation to where the first of them
    ends. Losses below ``least`` are drawn there.
    """
    table = pd.concat(list(runs), ignore_index=True)
    tasks, methods = (list(dict.fromkeys(table[key])) for key in ("task", "method"))
    rows = -(-len(tasks) // COLUMNS)
    width = min(len(tasks), COLUMNS)
    figure, panels = plt.subplots(
        rows,
        width,
        figsize=(max(3.1 * width, 7.0), 2.6 * rows + 1.6),
        squeeze=False,
        layout="constrained",
    )
    for ax in panels.flat[len(tasks) :]:
        ax.set_axis_off()
    for ax, task in zip(panels.flat, tasks, strict=False):
        for k, method in enumerate(methods):
            chosen = table[(table["task"] == task) & (table["method"] == method)]
            if len(chosen):
                draw_curve(ax, chosen, unit, method, k, least)
        logarithmic_axis(ax, "x")
        logarithmic_axis(ax, "y")
        ax.grid(True, alpha=0.25)
        ax.set_title(task if len(tasks) > 1 else title, fontsize=10)
    figure.supxlabel(AXES[unit], fontsize=10)
    figure.supylabel(label, fontsize=10)
    lines, names = panels[0, 0].get_legend_handles_labels()
    about = f"{title}; " if len(tasks) > 1 else ""
    figure.legend(
        lines,
        names,
        loc="outside upper center",
        ncols=min(len(names), 4),
        fontsize=9,
        title=f"{about}median and quartiles of {table['seed'].nunique()} seeds",
        title_fontsize=10,
    )
    save(figure, path)


def draw_pooled(runs: Sequence[pd.DataFrame], unit: Unit, path: Path, title: str) -> None:
    """Draw all tasks together in one panel: medians and quartiles over the seeds of every method.

    Losses are divided by the median loss of their task after the initial design; of a seed, the
    geometric mean over the tasks is drawn.
    """
    table = pd.concat(list(runs), ignore_index=True)
    first = table.groupby(["task", "method", "seed"]).first().groupby("task")["loss"].median()
    scaled = table.assign(loss=table["loss"].clip(lower=LEAST) / table["task"].map(first))
    figure, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for k, method in enumerate(dict.fromkeys(table["method"])):
        chosen = scaled[scaled["method"] == method]
        draw_curve(ax, over_tasks(chosen, unit), unit, method, k, least=1e-6)
        end = chosen.groupby(["task", "seed"])["n"].last().median()
        ax.lines[-1].set_label(f"{method}: {end:,.0f} evaluations")
    logarithmic_axis(ax, "x")
    logarithmic_axis(ax, "y")
    name_ends(ax)
    ax.grid(True, alpha=0.25)
    ax.set(xlabel=AXES[unit], ylabel="regret, as a share of that after the design")
    about = f"geometric mean of {table['task'].nunique()} functions"
    ax.set_title(
        f"{title}\n{about}, median and quartiles of {table['seed'].nunique()} seeds", fontsize=10
    )
    save(figure, path)


def name_ends(ax: Axes) -> None:
    """Write the labels of lines at their ends, one above the other, on a logarithmic axis."""
    low, high = np.log10(ax.get_ylim())
    last = -np.inf
    for line in sorted(ax.lines, key=lambda line: np.asarray(line.get_ydata())[-1]):
        x, y = (np.asarray(values)[-1] for values in line.get_data())
        last = max(np.log10(y), last + LINE * (high - low))
        ax.annotate(
            str(line.get_label()),
            (x, 10.0**last),
            xytext=(6, 0),
            textcoords="offset points",
            color=line.get_color(),
            fontsize=9,
            va="center",
            annotation_clip=False,
        )


def over_tasks(runs: pd.DataFrame, unit: Unit) -> pd.DataFrame:
    """A run for each seed, whose loss is the geometric mean over the tasks, of one method."""
    every = [part.sort_values(unit) for _, part in runs.groupby(["task", "seed"])]
    low = max(float(part[unit].iloc[0]) for part in every)
    x = np.geomspace(max(low, 1e-3), min(float(part[unit].iloc[-1]) for part in every), PLACES)
    pooled = []
    for seed, part in runs.groupby("seed"):
        logs = [np.log(stairs(run.sort_values(unit), unit, x)) for _, run in part.groupby("task")]
        pooled.append(pd.DataFrame({unit: x, "loss": np.exp(np.mean(logs, axis=0)), "seed": seed}))
    return pd.concat(pooled, ignore_index=True)


def draw_curve(ax: Axes, runs: pd.DataFrame, unit: Unit, label: str, k: int, least: float) -> None:
    """Median and quartiles of one method; ``k`` decides its colour and dashes."""
    seeds = [part.sort_values(unit) for _, part in runs.groupby("seed")]
    low = max(float(part[unit].iloc[0]) for part in seeds)
    high = min(float(part[unit].iloc[-1]) for part in seeds)
    x = np.geomspace(max(low, 1e-3), max(high, low, 1e-3), PLACES)
    x[-1] = max(x[-1], high)
    values = np.stack([stairs(part, unit, x) for part in seeds]).clip(min=least)
    bottom, middle, top = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    every = len(x) // 5
    (line,) = ax.plot(
        x,
        middle,
        label=label,
        color=f"C{k}",
        linestyle=DASHES[k % len(DASHES)],
        marker=MARKERS[k % len(MARKERS)],
        markevery=(k * 3 % every, every),
        markersize=5,
        fillstyle="none",
        linewidth=2.0,
    )
    ax.fill_between(x, bottom, top, color=line.get_color(), alpha=0.18, linewidth=0)


def stairs(run: pd.DataFrame, unit: Unit, x: np.ndarray) -> np.ndarray:
    """The last loss of one run at each place of the axis; the first one before that."""
    last = np.searchsorted(run[unit].to_numpy(), x, side="right") - 1
    return np.asarray(run["loss"].to_numpy()[last.clip(min=0)])
