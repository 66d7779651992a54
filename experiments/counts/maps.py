"""Maps of a survey: the true prevalence, the mean, and the sites."""

import math
import textwrap
from pathlib import Path

from matplotlib import pyplot as plt
from torch import Tensor

from experiments.active_learning.maps import rasterised
from experiments.common.plots import save
from problems.malaria import Malaria


def draw_survey(cells: Malaria, truth: Tensor, mean: Tensor, sites: Tensor, path: Path) -> None:
    """Draw truth and mean in percent, with the sites, and the attribution."""
    lonlat = cells.lonlat().cpu().numpy()
    west, east, south, north = cells.extent
    aspect = 1.0 / math.cos(math.radians((south + north) / 2.0))
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 6.0), layout="constrained")
    top = 100.0 * float(truth.max())
    for ax, name, values in zip(axes, ("truth", "mean"), (truth, mean), strict=True):
        image = rasterised(lonlat, 100.0 * values.numpy())
        edges = (west, east, south, north)
        drawn = ax.imshow(image, extent=edges, aspect=aspect, vmin=0.0, vmax=top)
        ax.set(title=name, xlabel="longitude (degrees)", ylabel="latitude (degrees)")
    axes[1].scatter(*lonlat[sites.numpy()].T, s=5, c="tab:red", edgecolors="black", linewidths=0.3)
    figure.colorbar(drawn, ax=axes, shrink=0.8, label="prevalence (%)")
    caption = f"Logits of the raster are stretched. {cells.attribution}"
    figure.supxlabel(textwrap.fill(caption, 130), fontsize=7, x=0.01, ha="left")
    save(figure, path)
