"""Maps of a campaign: truth, mean, standard deviation, and the cells queried."""

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray

from bo_stream.scores import marginals
from experiments.common.loops import PoolLoop
from experiments.common.plots import in_words, save
from problems.malaria import Malaria

PANEL = 4.2
"""The longer side of a map, inches."""


def rasterised(lonlat: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values of cells, ``n``, as an image, north up, NaN where there is no cell; their centres are
    on a regular grid, ``n x 2`` degrees.
    """
    low = lonlat.min(0)
    gaps = [np.diff(np.unique(axis)) for axis in lonlat.T]
    steps = np.array([gap[gap > 1e-4].min() for gap in gaps])  # rounding in a file is no gap
    column, row = np.rint((lonlat - low) / steps).astype(int).T
    image = np.full((row.max() + 1, column.max() + 1), np.nan)
    image[row.max() - row, column] = values
    return image


def draw_maps(campaign: PoolLoop, cells: Malaria, path: Path, title: str = "") -> None:
    """Draw four maps of a campaign that was run, with units and attribution.

    A kilometre is as long eastward as northward in the middle of each map.
    """
    if campaign.model is None:
        raise ValueError("Expected a campaign that was run; got one that was not. Call run().")
    lonlat = cells.lonlat().cpu().numpy()
    mean, variance = marginals(campaign.model, cells.X)
    queried = lonlat[campaign.queried.cpu().numpy()]
    truth = cells.Y[:, 0].cpu().numpy()
    low, high = np.quantile(truth, [0.005, 0.995])
    scale = {"vmin": low, "vmax": high}
    shown = [
        ("truth", truth, scale),
        ("posterior mean", mean.cpu().numpy(), scale),
        ("posterior standard deviation", variance.sqrt().cpu().numpy(), {"vmin": 0.0}),
        (f"the {len(queried)} cells queried, on the truth", truth, {**scale, "alpha": 0.35}),
    ]
    west, east, south, north = cells.extent
    aspect = 1.0 / math.cos(math.radians((south + north) / 2.0))  # a degree east is shorter
    tall = aspect * (north - south) / (east - west)
    width, height = PANEL / max(tall, 1.0), PANEL * min(tall, 1.0)
    size = (2.0 * (max(width, PANEL / 2.0) + 1.6), 2.0 * (max(height, PANEL / 2.0) + 0.6) + 0.8)
    figure, axes = plt.subplots(2, 2, figsize=size, layout="constrained")
    for ax, (name, values, options) in zip(axes.flat, shown, strict=True):
        image = rasterised(lonlat, values)
        x = (east - west) / (image.shape[1] - 1) / 2.0  # to the edges of cells
        y = (north - south) / (image.shape[0] - 1) / 2.0
        edges = (west - x, east + x, south - y, north + y)
        drawn = ax.imshow(image, extent=edges, aspect=aspect, **options)
        bar = figure.colorbar(drawn, ax=ax, shrink=0.8)
        bar.set_label(textwrap.fill(cells.units, 44), fontsize=7)
        ax.set(title=name, xlabel="longitude (degrees)", ylabel="latitude (degrees)")
        ax.title.set_fontsize(10)
    axes[1, 1].scatter(*queried.T, s=6, c="tab:red", edgecolors="black", linewidths=0.3)
    letters = int(17.0 * size[0])  # that fit into a line of 7 points
    figure.suptitle(textwrap.fill(title, int(0.75 * letters)), fontsize=9)
    caption = textwrap.fill(cells.attribution, letters)
    figure.supxlabel(caption, fontsize=7, x=0.01, ha="left")
    save(figure, path)


def described(facts: Mapping[str, Any]) -> str:
    """The facts of a campaign in words, for the title of its maps."""
    parts = [in_words(facts[key]) for key in ("surrogate", "policy", "observation", "kernel")]
    place = str(facts["cells"]).replace("_", " ")
    return f"{place[:1].upper()}{place[1:]}: {'; '.join(parts)}; seed {facts['seed']}"
