"""Data of a campaign for plots and pages: labels, bounds, the best so far, regular grids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bo_stream.campaign.space import Box, Space

if TYPE_CHECKING:
    from bo_stream.campaign.campaign import Campaign

__all__ = ["best_so_far", "bounds", "fills_grid", "in_unit", "is_log", "label"]

FULL = 0.25
"""Fraction of a regular grid that places have to fill to be drawn as its cells."""


def bounds(space: Space) -> Mapping[str, tuple[float, float]]:
    """Smallest and largest value of each input, in its unit."""
    if isinstance(space, Box):
        return space.bounds
    low, high = space.tensor_bounds.tolist()
    return dict(zip(space.names, zip(low, high, strict=True), strict=True))


def is_log(space: Space, name: str) -> bool:
    """Whether an input is on a logarithmic scale."""
    return isinstance(space, Box) and name in space.log


def label(space: Space, name: str) -> str:
    """Name of an input with its unit."""
    unit = space.units.get(name)
    return f"{name} ({unit})" if unit else name


def in_unit(campaign: Campaign, frame: pd.DataFrame) -> pd.DataFrame:
    """Trials or predictions in the unit of the outcome's label: a prevalence in percent."""
    if campaign.counts is None:
        return frame
    shown = [name for name in ("y", "mean", "sd", "lower", "upper") if name in frame]
    return frame.assign(**{name: campaign.counts.factor * frame[name] for name in shown})


def best_so_far(goal: str, outcomes: pd.Series[float]) -> pd.Series[float]:
    """The best outcome up to every trial."""
    return outcomes.cummin() if goal == "minimise" else outcomes.cummax()


def fills_grid(points: np.ndarray) -> bool:
    """Whether points ``n x 2`` are most of the nodes of a regular grid."""
    xs, ys = (len(np.unique(column)) for column in points.T)
    return len(points) >= FULL * xs * ys and min(xs, ys) > 1
