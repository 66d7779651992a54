"""A campaign's model drawn: along each input through a point, and as maps of two inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bo_stream.campaign.campaign import Campaign
from bo_stream.campaign.space import Box, Pool, Space
from bo_stream.cli.reports.figures import Figure, plain
from bo_stream.cli.reports.inputs import bounds, is_log, label

__all__ = ["maps", "slices"]

FINE = 101
"""Points along a slice."""
GRID = 41
"""Points along each side of the map of a box."""
PLACES, DOTS = 20_000, 1000
"""Places of a pool that a map shows, and outcomes beside a slice, so that pages stay small."""
FULL = 0.25
"""Share of a regular grid that has to be filled for places to be drawn as its cells."""


def slices(
    campaign: Campaign, centre: pd.Series[Any], told: pd.DataFrame, outcome: str
) -> list[Figure]:
    """The prediction along each input, the others held where a trial has them.

    Args:
        campaign: With a surrogate.
        centre: The trial.
        told: Trials with outcomes.
        outcome: What is measured.
    """
    names = list(campaign.space.names)
    figures, near = [], told.tail(DOTS)
    dots = "all outcomes" if len(near) == len(told) else f"the last {DOTS} outcomes"
    for name, (low, high) in bounds(campaign.space).items():
        log = is_log(campaign.space, name)
        x = (np.geomspace if log else np.linspace)(low, high, FINE).clip(low, high)
        frame = pd.DataFrame({n: np.full(FINE, float(centre[n])) for n in names} | {name: x})
        said = campaign.predict(frame)
        mean, sd = said["mean"], said["sd"]
        line = {"type": "scatter", "mode": "lines", "x": plain(x)}
        none = {"width": 0}
        edge = {**line, "line": none, "hoverinfo": "skip", "name": ""}
        points = {"type": "scatter", "mode": "markers"}
        traces = [
            {**edge, "y": plain(mean - 2.0 * sd)},
            {**edge, "y": plain(mean + 2.0 * sd), "fill": "tonexty", "fillcolor": "@c0/0.2"},
            {**line, "y": plain(mean), "name": "mean", "line": {"color": "@c0", "width": 2}},
            _marks(
                points, plain(near[name]), plain(near["y"]), "outcome", "circle", "@soft/0.6", 5
            ),
            _marks(points, plain([centre[name]]), plain([centre["y"]]), "here", "star", "@c1", 13),
        ]
        words = ["mean", "standard deviation"]
        table = said.set_axis(words, axis=1).assign(**{name: x})[[name, *words]].iloc[::25]
        axis = {"title": label(campaign.space, name), **({"type": "log"} if log else {})}
        note = f"Mean and two standard deviations; dots: {dots}; star: the point itself."
        figures.append(Figure(f"Along {name}", traces, axis, {"title": outcome}, note, table))
    return figures


def maps(
    campaign: Campaign,
    centre: pd.Series[Any],
    told: pd.DataFrame,
    asked: pd.DataFrame,
    following: pd.DataFrame | str,
    outcome: str,
) -> list[Figure]:
    """Mean and standard deviation over two inputs; none for another number of inputs.

    Args:
        campaign: With a surrogate.
        centre: The trial that is marked.
        told: Trials with outcomes.
        asked: Trials under way.
        following: The next trial, or why there is none.
        outcome: What is measured.
    """
    space = campaign.space
    if space.dim != 2:
        return []
    first, second = space.names
    frame = _places(space)
    every = -(-len(frame) // PLACES)
    frame = frame.iloc[::every]
    said = campaign.predict(frame)
    cells = isinstance(space, Box) or (every == 1 and _regular(frame))
    points = {"type": "scatter", "mode": "markers"}
    marks = [
        _marks(points, plain(told[first]), plain(told[second]), "measured", "circle", "white", 6)
    ]
    marks[0]["marker"]["line"] = {"color": "black", "width": 1}
    if campaign.goal != "learn":
        here = plain([centre[first]]), plain([centre[second]])
        marks.append(_marks(points, *here, "best", "star", "white", 14))
        marks[-1]["marker"]["line"] = {"color": "black", "width": 1}
    if len(asked):
        going = plain(asked[first]), plain(asked[second])
        marks.append(_marks(points, *going, "under way", "diamond-open", "white", 10))
        marks[-1]["marker"]["line"] = {"color": "white", "width": 2}
    if not isinstance(following, str):
        x, y = plain(following[first]), plain(following[second])
        marks.append(_marks(points, x, y, "next", "diamond", "#ff5a5f", 11))
        marks[-1]["marker"]["line"] = {"color": "white", "width": 1.5}
    axes = (
        {"title": label(space, name), **({"type": "log"} if is_log(space, name) else {})}
        for name in (first, second)
    )
    x_axis, y_axis = axes
    best = "" if campaign.goal == "learn" else "star: the best; "
    note = f"White dots: measured; {best}open diamonds: under way; red diamond: the next trial."
    note += f" One in {every} places is drawn." if every > 1 else ""
    return [
        Figure(title, [_filled(frame, said[column], scale, cells), *marks], x_axis, y_axis, note)
        for column, title, scale in (
            ("mean", f"Predicted mean of {outcome}", "Viridis"),
            ("sd", "Standard deviation of the prediction", "Cividis"),
        )
    ]


def _filled(
    frame: pd.DataFrame, values: pd.Series[float], scale: str, cells: bool
) -> dict[str, Any]:
    """Values as cells or, where places are scattered, as squares."""
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
    """Where a map is drawn: the places of a pool, or a grid over a box."""
    if isinstance(space, Pool):
        return pd.DataFrame(space.place_values, columns=list(space.names))
    sides = [
        (np.geomspace if is_log(space, name) else np.linspace)(low, high, GRID).clip(low, high)
        for name, (low, high) in space.bounds.items()
    ]
    corners = np.stack(np.meshgrid(*sides, indexing="ij"), -1).reshape(-1, 2)
    return pd.DataFrame(corners, columns=list(space.names))


def _regular(frame: pd.DataFrame) -> bool:
    xs, ys = (frame[name].nunique() for name in frame)
    return len(frame) >= FULL * xs * ys and min(xs, ys) > 1


def _marks(
    trace: dict[str, Any], x: list[Any], y: list[Any], name: str, symbol: str, color: str, size: int
) -> dict[str, Any]:
    marker = {"symbol": symbol, "color": color, "size": size}
    return {**trace, "x": x, "y": y, "name": name, "marker": marker}
