"""Maps of a prevalence in percent."""

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from torch import Tensor

from experiments.active_learning.maps import rasterised
from experiments.common.plots import save


def draw_percent(
    lonlat: NDArray[np.float64],
    panels: Mapping[str, Tensor],
    sites: NDArray[np.float64],
    path: Path,
    caption: str,
    shared: bool = False,
) -> None:
    """Draw shares at cells ``n x 2`` (degrees), a panel for each name, with the sites.

    Panels have one ``shared`` scale or a scale each; the caption has the attribution.
    """
    (west, south), (east, north) = lonlat.min(0), lonlat.max(0)
    aspect = 1.0 / math.cos(math.radians((south + north) / 2.0))
    tall = aspect * (north - south) / (east - west)
    size = (9.0, min(7.0, 1.0 + 4.0 * tall))
    figure, axes = plt.subplots(1, len(panels), figsize=size, layout="constrained")
    top = 100.0 * float(next(iter(panels.values())).max()) if shared else None
    for ax, (name, values) in zip(axes, panels.items(), strict=True):
        image, edges = rasterised(lonlat, 100.0 * values.numpy()), (west, east, south, north)
        drawn = ax.imshow(image, extent=edges, aspect=aspect, vmin=0.0, vmax=top)
        ax.set(title=name, xlabel="longitude (degrees)", ylabel="latitude (degrees)")
        if not shared:
            figure.colorbar(drawn, ax=ax, shrink=0.8, label="prevalence (%)")
    axes[-1].scatter(*sites.T, s=5, c="tab:red", edgecolors="black", linewidths=0.3)
    if shared:
        figure.colorbar(drawn, ax=axes, shrink=0.8, label="prevalence (%)")
    figure.supxlabel(textwrap.fill(caption, 130), fontsize=7, x=0.01, ha="left")
    save(figure, path)
