"""Data of a campaign for plots and pages: labels, values of inputs, the best so far, grids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bo_stream.campaign.outcomes.named_outcomes import noise_column
from bo_stream.campaign.space import Space
from bo_stream.campaign.space.inputs import Range

if TYPE_CHECKING:
    from bo_stream.campaign.campaign import Campaign

__all__ = [
    "along",
    "best_so_far",
    "fills_grid",
    "goal",
    "in_unit",
    "is_category",
    "is_log",
    "is_single",
    "label",
]

FULL = 0.25
"""Fraction of a regular grid that places have to fill to be drawn as its cells."""


def along(space: Space, name: str, most: int) -> pd.Series[Any]:
    """Values of an input from its smallest to its largest, as users see them.

    Args:
        space: The space.
        name: The input.
        most: Number of values of a continuous input, and the largest number of others.
    """
    kind = space.kinds[space.names.index(name)]
    if isinstance(kind, Range):
        spread = np.geomspace if kind.log else np.linspace
        return pd.Series(spread(kind.low, kind.high, most).clip(kind.low, kind.high))
    places = np.unique(np.linspace(0, len(kind.choices) - 1, most).astype(int))
    return pd.Series(kind.labels(kind.values(kind.choices[places])))


def is_log(space: Space, name: str) -> bool:
    """Whether an input is on a logarithmic scale."""
    return space.kinds[space.names.index(name)].log


def is_category(space: Space, name: str) -> bool:
    """Whether an input has labels in place of numbers."""
    return space.names.index(name) in space.categories


def label(space: Space, name: str) -> str:
    """Name of an input with its unit."""
    unit = space.units.get(name)
    return f"{name} ({unit})" if unit else name


def goal(campaign: Campaign) -> str:
    """The goal, or goals by outcome, and the constraints."""
    s = campaign.settings
    goals = s.named.goals.items()
    text = ", ".join(one if column == "y" else f"{one} {column}" for column, one in goals)
    limits = [constraint for constraint in s.constraints if constraint]
    return f"{text}, with {' and '.join(limits)}" if limits else text


def in_unit(campaign: Campaign, frame: pd.DataFrame) -> pd.DataFrame:
    """Trials or predictions in the unit of the outcome's label: a prevalence in percent.

    The only objective is then in the column ``y``, whatever its name.
    """
    if campaign.counts is None:
        column = campaign.settings.column
        return frame.rename(columns={column: "y", noise_column(column): "yvar"})
    shown = [name for name in ("y", "mean", "sd", "lower", "upper") if name in frame]
    return frame.assign(**{name: campaign.counts.factor * frame[name] for name in shown})


def best_so_far(campaign: Campaign, trials: pd.DataFrame) -> pd.Series[float]:
    """The best outcome up to every trial, of those that satisfy the constraints on outcomes.

    Args:
        campaign: A campaign with one objective.
        trials: Trials with outcomes, in the unit of the label.
    """
    column = campaign.settings.column
    feasible = campaign.settings.named.feasible(trials.rename(columns={"y": column}))
    outcomes = trials["y"].where(feasible)
    return outcomes.cummin() if campaign.goal == "minimise" else outcomes.cummax()


def is_single(campaign: Campaign) -> bool:
    """Whether a campaign optimises one objective."""
    return campaign.goal != "learn" and isinstance(campaign.goal, str)


def fills_grid(points: np.ndarray) -> bool:
    """Whether points ``n x 2`` are most of the nodes of a regular grid."""
    xs, ys = (len(np.unique(column)) for column in points.T)
    return len(points) >= FULL * xs * ys and min(xs, ys) > 1
