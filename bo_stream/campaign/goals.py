"""Goals of a campaign; importing them imports neither torch nor pandas."""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["GOALS", "Goal"]

Goal = Literal["maximise", "minimise", "learn"]
"""Maximise or minimise the outcome, or learn it over the whole space."""

GOALS: tuple[Goal, ...] = get_args(Goal)
