"""Figures of the front of several objectives."""

from __future__ import annotations

from typing import Any

import pandas as pd

from bo_stream.campaign.campaign import Campaign
from bo_stream.cli.reports.figures import Figure, plain

__all__ = ["fronts"]


def fronts(campaign: Campaign) -> list[Figure]:
    """The first objective against each of the others; none before the first outcomes."""
    told = campaign.told()
    if not len(told):
        return []
    feasible = campaign.settings.named.feasible(told)
    parts = {
        "outcome": (told[feasible], "circle", "@c0", "markers"),
        "infeasible": (told[~feasible], "x", "@soft", "markers"),
        "front": (campaign.front(), "circle", "@c1", "lines+markers"),
    }
    first, *others = campaign.settings.named.objectives
    note = "Dots: outcomes; crosses: those that break a constraint; line: the front."
    return [
        Figure(
            f"{other} against {first}",
            [_points(name, *part, first, other) for name, part in parts.items() if len(part[0])],
            {"title": first},
            {"title": other},
            note,
        )
        for other in others
    ]


def _points(
    name: str, frame: pd.DataFrame, symbol: str, color: str, mode: str, first: str, other: str
) -> dict[str, Any]:
    look = {"marker": {"symbol": symbol, "color": color, "size": 7}, "line": {"color": color}}
    data = {"x": plain(frame[first]), "y": plain(frame[other])}
    return {"type": "scatter", "mode": mode, "name": name, **look, **data}
