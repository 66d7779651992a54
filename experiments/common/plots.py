"""Pictures of results: medians over seeds with bands, in panels that say what is drawn."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

DASHES: list[Any] = ["-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1))]
MARKERS = "os^Dv"
"""By curve, so that curves which coincide can all be seen."""
CROWD = 4
"""More curves than these leave no room for a legend among them."""
WORDS = {
    "exact": "exact GP",
    "wiski": "WISKI",
    "projected_wiski": "ProjectedWISKI",
    "hsgp": "HSGP",
    "node_wiski": "NodeWISKI",
    "cagp": "CaGP",
    "online_sgpr": "OnlineSGPR",
    "online_svgp": "OnlineSVGP",
    "svdgp": "SVDGP",
    "nipv": "integrated variance (NIPV)",
    "max_variance": "largest variance",
    "near_most_uncertain": "near the most uncertain cell",
    "random": "random cells",
    "raster": "readings as in the raster",
    "known noise": "readings with known noise",
    "ard": "a lengthscale for each axis",
    "isotropic": "one lengthscale",
}
"""Plain words for names in configurations and tables."""


def draw_bands(
    tables: Sequence[pd.DataFrame],
    y: str,
    x: str,
    names: Sequence[str],
    path: Path,
    logarithmic: bool = True,
    labels: Mapping[str, str] | None = None,
    title: str | None = None,
    logarithmic_x: bool = False,
    words: Mapping[str, str] | None = None,
) -> None:
    """Draw the median of ``y`` over seeds against ``x``, with the band from least to largest.

    Tables, one a run, have columns ``step``, by which seeds are matched, ``x``, ``y`` and the
    ``names`` that tell the curves apart; names with one value make the title, unless there is one.
    ``labels`` say what ``x`` and ``y`` are, ``words`` what the names' values are.
    """
    table = pd.concat(list(tables), ignore_index=True)
    varying = [name for name in names if table[name].nunique() > 1] or list(names[:1])
    curves = list(table.groupby(varying, sort=False))
    size = (10.5 if len(curves) > CROWD else 7.0), 4.5
    figure, ax = plt.subplots(figsize=size, layout="constrained")
    counts = [
        draw_band(ax, runs, y, x, _in_words(key, words), k)[1]
        for k, (key, runs) in enumerate(curves)
    ]
    fixed = _in_words((table[name].iloc[0] for name in names if name not in varying), words)
    about = {name: name.replace("_", " ") for name in (x, y)} | dict(labels or {})
    ax.set(xlabel=about[x], ylabel=about[y], title=title or fixed)
    if logarithmic:
        logarithmic_axis(ax, "y")
    if logarithmic_x:
        logarithmic_axis(ax, "x")
    elif x == "step":
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(ax, counts, beside=len(counts) > CROWD)
    save(figure, path)


def draw_sizes(
    table: pd.DataFrame,
    path: Path,
    y: str = "points",
    label: str = "number of inducing points",
    title: Callable[[Any, Any], str] = lambda dim, scenario: f"{scenario}, {dim}-D",
    x: str = "batch",
) -> None:
    """Draw inducing points (or ``y``, which ``label`` describes) by ``batch``, or ``y`` by
    ``points``, of which there is one a ``batch``.

    A panel for each ``dim`` and ``scenario``, a curve for each ``policy``, bands over ``seed``.
    """
    streams = list(table.groupby(["dim", "scenario"], sort=False))
    columns = min(3, len(streams))
    shape = -(-len(streams) // columns), columns
    size = max(4 * shape[1], 5.5), max(3 * shape[0], 4)
    figure, panels = plt.subplots(*shape, figsize=size, squeeze=False, layout="constrained")
    for ax in panels.flat[len(streams) :]:
        ax.set_axis_off()
    counts = []
    for ax, ((dim, name), part) in zip(panels.flat, streams, strict=False):
        for k, (policy, runs) in enumerate(part.groupby("policy", sort=False)):
            steps = runs.rename(columns={"batch": "step"})
            along = "step" if x == "batch" else x
            counts.append(draw_band(ax, steps, y, along, str(policy), k)[1])
        ax.set(title=title(dim, name), xlabel="number of inducing points" if x == "points" else x)
        ax.xaxis.get_major_locator().set_params(integer=True)
        if (part[y] >= 0).all():
            ax.set_ylim(0.0, 1.06 * float(part[y].max()))
    for line in panels:
        line[0].set_ylabel(label)
    legend(panels.flat[0], counts)
    save(figure, path)


def draw_band(
    ax: Axes, runs: pd.DataFrame, y: str, x: str, label: str, k: int | None = None
) -> tuple[Any, int]:
    """Draw median and band of the seeds of one curve; returns its colour and how many seeds.

    ``k`` numbers the curves of a panel and decides dash, width and markers; both sizes fall, so
    that a curve under another is seen. None: a plain line.
    """
    steps = runs.groupby("step")
    median = steps[[x, y]].median() if x != "step" else steps[[y]].median().reset_index()
    look: dict[str, Any] = {}
    if k is not None:
        every = max(1, len(median) // 6)
        look = {"linestyle": DASHES[k % len(DASHES)], "marker": MARKERS[k % len(MARKERS)]}
        look |= {"markevery": (k * every // 4 % every, every), "fillstyle": "none"}
        look |= {"markersize": max(3.0, 9.0 - 2.0 * k), "linewidth": max(1.0, 2.2 - 0.4 * k)}
    (line,) = ax.plot(median[x], median[y], label=label, **look)
    seeds = int(steps[y].count().max())
    if seeds > 1:
        low, high = steps[y].min(), steps[y].max()
        ax.fill_between(median[x], low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    return line.get_color(), seeds


def legend(ax: Axes, seeds: Iterable[int], beside: bool = False) -> None:
    """A legend that says what lines and bands are, given how many seeds each curve has."""
    least, most = min(seeds := list(seeds)), max(seeds)
    if most == 1:
        about = "one seed, hence no bands"
    elif least == most:
        about = f"median; band: range of {most} seeds"
    else:
        about = f"median; band: range of {least} to {most} seeds"
        about += ", none for one seed" if least == 1 else ""
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if beside else {}
    ax.legend(fontsize=8, title=about, title_fontsize=8, **place)


def logarithmic_axis(ax: Axes, which: str) -> None:
    """Make an axis logarithmic, with a few plain numbers along it; call it when all is drawn."""
    ax.set(**{f"{which}scale": "log"})
    axis = ax.xaxis if which == "x" else ax.yaxis
    low, high = axis.get_view_interval()
    if high < 10.0 * low:
        axis.set_major_locator(MaxNLocator(6))
    elif high < 1000.0 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def save(figure: Figure, path: Path) -> None:
    """Write a figure, making folders, and close it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def in_words(name: str) -> str:
    """A name of a surrogate, policy, observation model or kernel in words."""
    return WORDS.get(name, name.replace("_", " "))


def _in_words(key: Iterable[Any], words: Mapping[str, str] | None) -> str:
    return ", ".join((words or {}).get(str(part), str(part)) for part in key)
