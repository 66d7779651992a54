"""`map`: what a campaign expects at the places of a pool with two coordinates."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bo_stream.cli.arguments import CampaignName, Where
from bo_stream.cli.toml_document import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from bo_stream.campaign.space import Pool
    from bo_stream.cli.load_campaign import Opened

__all__ = ["map_places"]

FULL = 0.25
"""Share of a regular grid that has to be filled for places to be drawn as its cells."""


def map_places(
    where: Where,
    name: CampaignName = None,
    out: Annotated[Path, typer.Option(help="PNG, PDF or SVG.")] = Path("map.png"),
    csv: Annotated[
        Path | None, typer.Option(help="Write mean and sd of every place here, too.")
    ] = None,
) -> None:
    """Draw predictions over a pool with two coordinates.

    That is the mean of the outcome and its standard deviation. Places that were measured, and those
    to be measured next, are marked.
    """
    import matplotlib

    matplotlib.use("Agg")
    from bo_stream.campaign.space import Pool
    from bo_stream.cli.load_campaign import found

    opened = found(where, name)
    space = opened.campaign.space
    if not isinstance(space, Pool) or space.dim != 2:
        kind = "a pool" if isinstance(space, Pool) else "a box"
        raise ConfigError(
            f"Expected a pool of places with two coordinates; got {kind} with {space.dim} inputs: "
            f"{', '.join(space.names)}. Use bo-stream plot."
        )
    said = opened.campaign.predict(space.table)
    _draw(opened, space, said, out)
    print(f"Written to {out}.")
    if csv is not None:
        frame = space.table[list(space.names)].join(said).rename_axis("place")
        frame.to_csv(csv)
        print(f"{len(frame)} places written to {csv}.")


def _draw(opened: Opened, space: Pool, said: pd.DataFrame, out: Path) -> None:
    from matplotlib import pyplot as plt

    from bo_stream.cli.formatting import label

    campaign = opened.campaign
    trials = campaign.trials()
    x, y = space.names
    figure, axes = plt.subplots(1, 2, figsize=(11.0, 4.8), layout="constrained")
    titles = {"mean": "predicted mean", "sd": "standard deviation of the prediction"}
    for ax, (column, title) in zip(axes, titles.items(), strict=True):
        drawn = _places(ax, space, said[column])
        figure.colorbar(drawn, ax=ax, shrink=0.85, label=opened.outcome)
        ax.set(title=title, xlabel=label(campaign, x), ylabel=label(campaign, y))
        ax.set_aspect(_aspect(space))
        for status, look, word in (
            ("told", {"marker": "o", "color": "black", "edgecolors": "white", "s": 20}, "measured"),
            ("running", {"marker": "D", "facecolors": "none", "edgecolors": "red"}, "next"),
        ):
            part = trials[trials["status"] == status]
            if len(part):
                ax.scatter(part[x], part[y], label=word, **look)
        for id, row in trials[trials["status"] == "running"].iterrows():
            ax.annotate(f"{id}", (row[x], row[y]), (4, 4), textcoords="offset points", color="red")
    marks = axes[0].get_legend_handles_labels()
    figure.legend(*marks, loc="outside lower center", ncols=2, fontsize=8)
    figure.suptitle(f"{campaign.name}: {len(space.table)} places")
    figure.savefig(out, dpi=110)
    plt.close(figure)


def _places(ax: Any, space: Pool, values: pd.Series[float]) -> Any:
    """Cells where places are those of a regular grid, or nearly all of them; else dots."""
    import numpy as np

    corners = [np.unique(column, return_inverse=True) for column in space.place_values.T]
    (xs, i), (ys, j) = corners
    if len(values) >= FULL * len(xs) * len(ys) and min(len(xs), len(ys)) > 1:
        image = np.full((len(ys), len(xs)), np.nan)
        image[j, i] = values
        return ax.pcolormesh(xs, ys, image, shading="nearest")
    size = max(8.0, 20_000.0 / len(values))
    return ax.scatter(*space.place_values.T, c=values, s=min(size, 120.0), marker="s")


def _aspect(space: Pool) -> float | str:
    """As in nature where both coordinates have one unit; a degree of longitude is shorter."""
    first, second = (space.units.get(name) for name in space.names)
    if first is None or first != second:
        return "auto"
    if "deg" in first or "°" in first:
        middle = math.radians(float(space.place_values[:, 1].mean()))
        return 1.0 / max(math.cos(middle), 0.1)
    return "equal"
