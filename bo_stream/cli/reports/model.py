"""Figures of a campaign's model: slices along each input, and maps over two inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bo_stream.campaign.campaign import Campaign
from bo_stream.campaign.space import Box, Pool, Space
from bo_stream.cli.reports.campaign_data import (
    along,
    fills_grid,
    in_unit,
    is_category,
    is_log,
    is_single,
    label,
)
from bo_stream.cli.reports.figures import Figure, plain

__all__ = ["maps", "slices"]

FINE = 101
"""Points along a slice."""
GRID = 41
"""Points along each side of the map of a box."""


def slices(
    campaign: Campaign, centre: pd.Series[Any], told: pd.DataFrame, outcome: str, most: int
) -> list[Figure]:
    """The prediction along each input, with the other inputs held at those of a trial.

    Args:
        campaign: A campaign with a surrogate.
        centre: The trial.
        told: Trials with outcomes.
        outcome: Name of the outcome.
        most: Maximum number of outcomes beside a slice.
    """
    names = list(campaign.space.names)
    figures, latest = [], told.tail(most)
    dots = "all outcomes" if len(latest) == len(told) else f"the last {most} outcomes"
    for name in names:
        x = along(campaign.space, name, FINE)
        frame = pd.DataFrame({n: [centre[n]] * len(x) for n in names} | {name: x})
        prediction = in_unit(campaign, campaign.predict(frame))
        mean, sd = prediction["mean"], prediction["sd"]
        band = prediction.get("lower", mean - 2.0 * sd), prediction.get("upper", mean + 2.0 * sd)
        mode = "markers" if is_category(campaign.space, name) else "lines"
        line = {"type": "scatter", "mode": mode, "x": plain(x)}
        edge = {**line, "line": {"width": 0}, "hoverinfo": "skip", "name": ""}
        traces = [
            {**edge, "y": plain(band[0])},
            {**edge, "y": plain(band[1]), "fill": "tonexty", "fillcolor": "@c0/0.2"},
            {**line, "y": plain(mean), "name": "mean", "line": {"color": "@c0", "width": 2}},
            _markers(latest[[name, "y"]], "outcome", "circle", "@soft/0.6", 5),
            _markers(centre[[name, "y"]].to_frame().T, "here", "star", "@c1", 13),
        ]
        table = prediction.rename(columns={"sd": "standard deviation"})
        table = table.assign(**{name: x})[[name, *table.columns]]
        within = "two standard deviations" if campaign.counts is None else "90 % interval"
        note = f"Mean and {within}; dots: {dots}; star: the trial itself."
        axes = _axis(campaign.space, name), {"title": outcome}
        figures.append(
            Figure(f"Along {name}", traces, *axes, note, table.iloc[:: max(1, len(x) // 4)])
        )
    return figures


def maps(
    campaign: Campaign,
    centre: pd.Series[Any],
    told: pd.DataFrame,
    running: pd.DataFrame,
    following: pd.DataFrame | str,
    outcome: str,
    most: int,
) -> list[Figure]:
    """Mean and standard deviation over two numeric inputs; none for other inputs.

    Args:
        campaign: A campaign with a surrogate.
        centre: The trial that is marked.
        told: Trials with outcomes.
        running: Running trials.
        following: The next trial, or why there is none.
        outcome: Name of the outcome.
        most: Maximum number of places on a map of a pool.
    """
    space = campaign.space
    if space.dim != 2 or space.categories:
        return []
    names = list(space.names)
    places = _places(space)
    every = -(-len(places) // most)
    places = places.iloc[::every]
    prediction = in_unit(campaign, campaign.predict(places))
    cells = isinstance(space, Box) or (every == 1 and fills_grid(places.to_numpy()))
    black, white = {"color": "black", "width": 1}, {"color": "white", "width": 2}
    marks = [_markers(told[names], "measured", "circle", "white", 6, black)]
    best = ""
    if is_single(campaign):
        best = "star: the best; "
        marks.append(_markers(centre[names].to_frame().T, "best", "star", "white", 14, black))
    if len(running):
        marks.append(_markers(running[names], "running", "diamond-open", "white", 10, white))
    if not isinstance(following, str):
        marks.append(_markers(following[names], "next", "diamond", "#ff5a5f", 11, white))
    note = f"White dots: measured; {best}open diamonds: running; red diamond: the next trial."
    note += f" One in {every} places is drawn." if every > 1 else ""
    x, y = (_axis(space, name) for name in names)
    return [
        Figure(title, [_filled(places, prediction[column], scale, cells), *marks], x, y, note)
        for column, title, scale in (
            ("mean", f"Predicted mean of {outcome}", "Viridis"),
            ("sd", "Standard deviation of the prediction", "Cividis"),
        )
    ]


def _axis(space: Space, name: str) -> dict[str, Any]:
    return {"title": label(space, name), **({"type": "log"} if is_log(space, name) else {})}


def _filled(
    frame: pd.DataFrame, values: pd.Series[float], scale: str, cells: bool
) -> dict[str, Any]:
    """Values as cells, or as squares if the places do not fill a grid."""
    x, y = (plain(frame[name]) for name in frame)
    bar = {"thickness": 12, "outlinewidth": 0}
    if cells:
        look = {"colorscale": scale, "colorbar": bar, "hoverongaps": False}
        return {"type": "heatmap", "name": "", "x": x, "y": y, "z": plain(values), **look}
    look = {"symbol": "square", "size": float(np.clip(120.0 / len(frame) ** 0.5, 4.0, 12.0))}
    paint = {"color": plain(values), "colorscale": scale, "colorbar": bar}
    marker = {"marker": {**look, **paint}}
    return {"type": "scatter", "mode": "markers", "name": "", "x": x, "y": y, **marker}


def _places(space: Space) -> pd.DataFrame:
    """The places of a pool, or a grid over a box."""
    if isinstance(space, Pool):
        return pd.DataFrame(space.place_values, columns=list(space.names))
    sides = [along(space, name, GRID) for name in space.names]
    corners = np.stack(np.meshgrid(*sides, indexing="ij"), -1).reshape(-1, 2)
    return pd.DataFrame(corners, columns=list(space.names))


def _markers(
    points: pd.DataFrame,
    name: str,
    symbol: str,
    color: str,
    size: int,
    line: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A trace of the points in a frame's two columns."""
    marker = {"symbol": symbol, "color": color, "size": size, **({"line": line} if line else {})}
    x, y = (plain(points[column]) for column in points)
    trace = {"type": "scatter", "mode": "markers", "name": name}
    return {**trace, "x": x, "y": y, "marker": marker}
