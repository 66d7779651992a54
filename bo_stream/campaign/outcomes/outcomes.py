"""Outcomes of a trial by name: objectives, and constraints on what is measured."""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd

from bo_stream.campaign.constraints import LinearConstraint
from bo_stream.campaign.history import Entry, Trial
from bo_stream.campaign.names import RESULTS
from bo_stream.campaign.outcomes.outcome import Completed, Outcome
from bo_stream.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from bo_stream.campaign.outcomes.count import Count

__all__ = ["SPELLINGS", "Failures", "Goal", "Goals", "OutcomeSet", "check_reference", "read_goal"]

Goal = Literal["maximise", "minimise", "maximize", "minimize", "learn"]
"""Maximise or minimise the outcome, or learn it over the whole space."""

SPELLINGS = {"maximize": "maximise", "minimize": "minimise"}
"""Other spellings of goals."""

Goals = Goal | Mapping[str, str]
"""A goal, or goals by the column of the outcome."""

Failures = Literal["ignored", "infeasible"]
"""Whether failed trials are infeasible; otherwise nothing is learned from them."""

EXAMPLE = 'For example {"yield": "maximise", "cost": "minimise"}.'


def read_goal(goal: Any) -> tuple[Any, str]:
    """A user's goal, and the column of the only objective.

    Several objectives stay a mapping.

    Raises:
        InputError: for a mapping of several columns, one of which is to be learned.
    """
    if not isinstance(goal, Mapping):
        return goal, "y"
    if len(goal) == 1:
        ((column, one),) = goal.items()
        return one, column
    if "learn" in goal.values():
        raise InputError("maximise or minimise for each of several outcomes", "learn", EXAMPLE)
    return goal, "y"


@dataclass(frozen=True)
class OutcomeSet:
    """The outcomes of a campaign: objectives, and others that constraints name.

    Attributes:
        goals: ``maximise``, ``minimise`` or ``learn`` by column: the objectives.
        measured: What is measured, the objectives first.
        constraints: Constraints on outcomes.
        completed: Whether trials are completed, where failures are infeasible.
        reference: Objectives that a hypervolume is measured from, by column; None: inferred.
    """

    goals: Mapping[str, str]
    measured: tuple[Outcome, ...]
    constraints: tuple[LinearConstraint, ...] = ()
    completed: Completed | None = None
    reference: Mapping[str, float] | None = None

    @classmethod
    def of(
        cls,
        goal: Any,
        column: str,
        limits: Iterable[LinearConstraint],
        inputs: Collection[str],
        failures: Failures = "ignored",
        reference: Mapping[str, float] | None = None,
        count: Count | None = None,
        variance: float | None = None,
    ) -> Self:
        """The outcomes that a campaign's settings name.

        Args:
            goal: The goal, or goals by column.
            column: Column of the only objective.
            limits: All linear constraints; those that name inputs alone are none on outcomes.
            inputs: Names of the inputs.
            failures: Whether failed trials are infeasible or ignored.
            reference: The reference point of several objectives, by column.
            count: The only objective, if it is a count.
            variance: Variance of the noise of every outcome, if it is known.

        Raises:
            InputError: for a constraint that names an input and an outcome.
            UnsupportedError: for constraints on outcomes, or infeasible failures, and ``learn`` or
                counts.
        """
        goals = goal if isinstance(goal, Mapping) else {column: goal}
        found = tuple(one for one in limits if not one.coefficients.keys() <= set(inputs))
        for one in found:
            mixed = sorted(one.coefficients.keys() & set(inputs))
            if mixed:
                other = next(name for name in one.coefficients if name not in inputs)
                raise InputError(
                    "inputs alone, or outcomes alone in an inequality",
                    f"{one.text!r} with the input {mixed[0]!r} and the outcome {other!r}",
                    "Record what has to be bounded as an outcome of its own.",
                )
        columns = list(
            dict.fromkeys([*goals, *(name for one in found for name in one.coefficients)])
        )
        completed = Completed() if failures == "infeasible" else None
        if (found or completed) and goal == "learn":
            raise UnsupportedError(
                "the goal maximise or minimise, with constraints on outcomes or infeasible "
                "failures",
                "the goal learn",
                "Leave them out: learn measures everywhere.",
            )
        if count and (columns != ["y"] or found or completed):
            raise UnsupportedError(
                "one outcome without constraints, for counts",
                ", ".join([*columns, *([completed.column] if completed else [])]),
                "Name the column of counts in outcome= alone, and leave failures out.",
            )
        measured: tuple[Outcome, ...] = tuple(
            Outcome(name, _sign(name, goals, found), variance) for name in columns
        )
        if count:
            goals, measured = {count.column: goal}, (count,)
        return cls(goals, measured, found, completed, reference)

    def warn_of_misspellings(self, inputs: Collection[str]) -> None:
        """Warn of outcomes in constraints that resemble an input, or an objective."""
        for name in self.columns[len(self.goals) :]:
            near = difflib.get_close_matches(name, [*inputs, *self.goals], 1, 0.8)
            if near:
                warnings.warn(
                    f"{name!r} in a constraint names no input, and is an outcome to be told. If "
                    f"{near[0]!r} is meant, correct it and choose another name for the campaign.",
                    stacklevel=4,
                )

    @property
    def columns(self) -> list[str]:
        """The column of every outcome that is measured."""
        return [one.column for one in self.measured]

    @property
    def known_columns(self) -> list[str]:
        """Columns of outcomes, and of their noise variances or sizes."""
        return [name for one in self.measured for name in one.known_columns]

    @property
    def results(self) -> list[str]:
        """Columns of predictions and recommendations."""
        others = [column for column in self.columns if [column] != list(self.goals)]
        parts = ("mean", "sd", "lower", "upper")
        return [*RESULTS, *(f"{column}_{part}" for column in others for part in parts)]

    @property
    def learned(self) -> tuple[Outcome, ...]:
        """What is learned: what is measured, and whether a trial is completed."""
        return self.measured if self.completed is None else (*self.measured, self.completed)

    @property
    def joint(self) -> bool:
        """Whether there is more to learn than one outcome without a constraint."""
        return len(self.learned) > 1 or bool(self.constraints)

    # -- what is learned, objectives to be maximised -----------------------------------------------

    @property
    def reference_point(self) -> list[float] | None:
        """The reference point; None if it is inferred."""
        if self.reference is None:
            return None
        return [one.sign * self.reference[one.column] for one in self.measured[: len(self.goals)]]

    def weights(self) -> list[tuple[list[float], float]]:
        """Of every constraint: coefficients of the signed outcomes in order, and the bound."""
        return [
            (
                [one.sign * limit.coefficients.get(one.column, 0.0) for one in self.measured],
                limit.bound,
            )
            for limit in self.constraints
        ]

    def values(self, trial: Trial) -> list[float]:
        """Outcomes of a trial; NaN where one is not known."""
        entries = [(one.sign, one.entry_of(trial)) for one in self.measured]
        return [sign * entry[0] if entry else math.nan for sign, entry in entries]

    def feasible(self, frame: pd.DataFrame) -> np.ndarray:
        """Whether rows of outcomes satisfy every constraint, ``n``."""
        held = [np.asarray(one.excess(frame) <= 0.0) for one in self.constraints]
        return np.logical_and.reduce([np.ones(len(frame), dtype=bool), *held])

    def signed(self, frame: pd.DataFrame) -> np.ndarray:
        """Objectives in rows of outcomes, ``n x k``."""
        objectives = self.measured[: len(self.goals)]
        return np.stack([one.sign * frame[one.column].to_numpy(float) for one in objectives], -1)

    # -- frames ----------------------------------------------------------------------------------

    def read(self, frame: pd.DataFrame, trials: Iterable[Trial]) -> Iterator[dict[str, Entry]]:
        """Entries of a frame's rows by column.

        Args:
            frame: A frame.
            trials: All trials before it.

        Raises:
            InputError, NoiseError: for invalid values, a row without any, or noise variances for
                some outcomes of a column only.
        """
        columns: dict[str, list[Entry | None]] = {}
        for one in [one for one in self.measured if one.column in frame] or self.measured[:1]:
            entries = (one.entry_of(trial) for trial in trials if trial.status != "withdrawn")
            earlier = next((entry for entry in entries if entry is not None), None)
            columns[one.column] = one.read(frame, earlier)
        rows = list(zip(*columns.values(), strict=True))
        empty = [str(label) for label, row in zip(frame.index, rows, strict=True) if not any(row)]
        if empty:
            raise InputError(
                f"an outcome in every row, in one of the columns {', '.join(self.columns)}",
                f"none in row {empty[0]}",
                "Fill it in, or leave out the row until there is one. If a trial gave none, use "
                "fail(ids, reason).",
            )
        for row in rows:
            yield {column: entry for column, entry in zip(columns, row, strict=True) if entry}


def _sign(column: str, goals: Mapping[str, str], limits: Iterable[LinearConstraint]) -> float:
    """Without a goal, better outcomes are those that a constraint asks for."""
    if column in goals:
        return -1.0 if goals[column] == "minimise" else 1.0
    return -1.0 if all(one.coefficients.get(column, 0.0) >= 0.0 for one in limits) else 1.0


def check_reference(reference: Mapping[str, float] | None, goal: Any) -> None:
    """Refuse a reference point that has not a number for each of several objectives.

    Raises:
        InputError: with the columns that it has to have.
    """
    columns = list(goal) if isinstance(goal, Mapping) else []
    if reference is not None and (not columns or set(reference) != set(columns)):
        several = f"a reference with a number for each of {', '.join(columns)}"
        raise InputError(
            several if columns else "no reference for one objective",
            repr(reference),
            "Give the worst outcomes of interest, or leave it out.",
        )
