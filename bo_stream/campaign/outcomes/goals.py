"""Goals of a campaign; importing them imports neither torch nor pandas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

__all__ = [
    "GOALS",
    "SPELLINGS",
    "Failures",
    "Goal",
    "Goals",
    "spelled",
]

Goal = Literal["maximise", "minimise", "maximize", "minimize", "learn"]
"""Maximise or minimise the outcome, or learn it over the whole space."""

SPELLINGS = {"maximize": "maximise", "minimize": "minimise"}
"""Other spellings of goals."""

Goals = Goal | Mapping[str, str]
"""A goal, or goals by the column of the outcome."""

GOALS: tuple[str, ...] = tuple(goal for goal in get_args(Goal) if goal not in SPELLINGS)

Failures = Literal["ignored", "infeasible"]
"""Whether failed trials are infeasible; otherwise nothing is learned from them."""


def spelled(goal: Any) -> Any:
    """A goal in the spelling of `GOALS`; anything else as it is."""
    return SPELLINGS.get(goal, goal) if isinstance(goal, str) else goal
