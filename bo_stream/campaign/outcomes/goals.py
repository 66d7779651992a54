"""Goals of a campaign; importing them imports neither torch nor pandas."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

__all__ = [
    "FAILURES",
    "GOALS",
    "SPELLINGS",
    "Failures",
    "Goal",
    "Goals",
    "read_reference",
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

FAILURES: tuple[str, ...] = get_args(Failures)


def spelled(goal: Any) -> Any:
    """A goal in the spelling of `GOALS`; anything else as it is."""
    return SPELLINGS.get(goal, goal) if isinstance(goal, str) else goal


def read_reference(reference: Any, goal: Any) -> dict[str, float] | None:
    """The reference point of a hypervolume by the columns of the goals; None for none.

    Raises:
        InputError: unless it has a finite number for each of several objectives.
    """
    if reference is None:
        return None
    from bo_stream.errors import InputError  # not at the top: it imports torch

    columns = list(goal) if isinstance(goal, Mapping) and len(goal) > 1 else []
    given = dict(reference) if isinstance(reference, Mapping) else {}
    numeric = (isinstance(x, int | float) and math.isfinite(x) for x in given.values())
    if not columns or set(given) != set(columns) or not all(numeric):
        raise InputError(
            f"a reference with a finite number for each of {', '.join(columns)}"
            if columns
            else "no reference for one objective",
            repr(reference),
            "Give the worst outcomes of interest, or leave it out.",
        )
    return {column: float(given[column]) for column in columns}
