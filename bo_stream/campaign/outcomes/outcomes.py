"""Outcomes of a trial by name: objectives, and constraints on what is measured."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from bo_stream.base.checks import largest_outcome
from bo_stream.campaign.constraints import LinearConstraint, parse_constraint
from bo_stream.campaign.history import Trial, TrialHistory, is_same
from bo_stream.campaign.names import RESERVED, RESULTS, constraint_in_spelling
from bo_stream.campaign.outcomes.goals import FAILURES, SPELLINGS, read_reference, spelled
from bo_stream.campaign.space import numbers
from bo_stream.errors import InputError, NoiseError, StateError, UnsupportedError

__all__ = [
    "LARGEST",
    "COMPLETED",
    "COMPLETION_NOISE",
    "OutcomeSet",
    "OutcomeParts",
    "noise_column",
    "on_inputs",
    "read_goal",
    "spelled_constraints",
]

LARGEST = largest_outcome()
"""The largest outcome, in size, that can be learned."""

OutcomeParts = Mapping[str, tuple[float, float | None]]
"""Outcomes of a trial that were told, with their noise variances, by column."""

DIRECTIONS = ("maximise", "minimise")
EXAMPLE = 'For example {"yield": "maximise", "cost": "minimise"}.'
OWN = tuple(name for name in RESERVED if name != "y")

COMPLETED = "completed"
"""Where failures are infeasible: an outcome that is 1 of told trials, and 0 of failed ones."""

COMPLETION_NOISE = 0.02
"""Variance of that, which a smooth function follows with some noise: less makes a process ring
beside its jump, and more hides a single failure."""


def noise_column(column: str) -> str:
    """The column with the noise variances of an outcome."""
    return "yvar" if column == "y" else f"{column}_var"


def on_inputs(text: Any, inputs: Collection[str]) -> bool:
    """Whether a constraint names inputs alone.

    Raises:
        InputError: if it cannot be understood.
    """
    return all(set(one.coefficients) <= set(inputs) for one in parse_constraint(text))


def spelled_constraints(
    constraints: Iterable[Any], inputs: Collection[str], goal: Any, column: str
) -> list[Any]:
    """Constraints of which the texts spell inputs and objectives as they are named.

    Args:
        constraints: Texts and callables.
        inputs: Names of the inputs.
        goal: The goal, or goals by column.
        column: Column of the only objective.
    """
    known = [*inputs, *(goal if isinstance(goal, Mapping) else [column])]
    return [constraint_in_spelling(one, known) for one in constraints]


def read_goal(goal: Any) -> tuple[Any, str]:
    """A user's goal in the spelling of `GOALS`, and the column of the only objective.

    Several objectives stay a mapping.

    Raises:
        InputError: for a mapping that is none of columns and goals.
    """
    if not isinstance(goal, Mapping):
        return spelled(goal), "y"
    goals = {column: spelled(one) for column, one in goal.items()}
    for column, one in goals.items():
        if not isinstance(column, str) or not column.strip() or column in OWN:
            raise InputError("columns of outcomes and their goals", repr(column), EXAMPLE)
        if one not in DIRECTIONS and (one != "learn" or len(goals) > 1):
            known = ", ".join((*DIRECTIONS, *SPELLINGS))
            raise InputError(f"a goal for {column!r}, one of {known}", repr(one), "Choose one.")
    if not goals:
        raise InputError("at least one outcome and its goal", "none", EXAMPLE)
    if len(goals) > 1:
        return goals, "y"
    ((column, one),) = goals.items()
    return one, column


@dataclass(frozen=True)
class OutcomeSet:
    """Outcomes in the columns of a user's frames.

    Attributes:
        goals: ``maximise``, ``minimise`` or ``learn`` by column: the objectives.
        constraints: Constraints on outcomes.
        completes: Whether failed trials are infeasible, which a further outcome tells.
        reference: Objectives that a hypervolume is measured from, by column; None: inferred.
    """

    goals: Mapping[str, str]
    constraints: tuple[LinearConstraint, ...] = ()
    completes: bool = False
    reference: Mapping[str, float] | None = None

    @classmethod
    def of(
        cls,
        goal: Any,
        column: str,
        constraints: Iterable[Any] | None,
        inputs: Collection[str],
        failures: Any = "ignored",
        reference: Any = None,
    ) -> Self:
        """The outcomes that a campaign's settings name.

        Args:
            goal: The goal, or goals by column.
            column: Column of the only objective.
            constraints: All constraints; those that name inputs alone are none on outcomes.
            inputs: Names of the inputs.
            failures: What failed trials are; one of `FAILURES`.
            reference: The reference point of several objectives, by column.

        Raises:
            InputError: for a constraint that names an input and an outcome, or equal outcomes.
            UnsupportedError: for constraints on outcomes, or infeasible failures, and ``learn``.
        """
        if failures not in FAILURES:
            known = ", ".join(FAILURES)
            raise InputError(f"failures, one of {known}", repr(failures), "Choose one.")
        goals = goal if isinstance(goal, Mapping) else {column: goal}
        texts = [c for c in constraints or () if c is not None and not callable(c)]
        found = tuple(
            one for text in texts if not on_inputs(text, inputs) for one in parse_constraint(text)
        )
        outcomes = cls(goals, found, failures == "infeasible", read_reference(reference, goal))
        for one in found:
            mixed = sorted(set(one.coefficients) & set(inputs))
            if mixed or one.equal:
                other = next(name for name in one.coefficients if name not in inputs)
                got = f"{one.text!r} with the {'input' if mixed else 'outcome'} "
                got += f"{mixed[0]!r} and the outcome {other!r}" if mixed else repr(other)
                raise InputError(
                    "inputs alone, or outcomes alone in an inequality",
                    got,
                    "Record what has to be bounded as an outcome of its own.",
                )
        if outcomes.completes and COMPLETED in {*outcomes.columns, *inputs}:
            raise InputError(
                "other names than 'completed' where failures are infeasible", "it", "Rename it."
            )
        for name in outcomes.columns:
            if name in inputs or name in OWN:
                raise InputError("outcomes with names of their own", repr(name), "Rename it.")
        if (found or outcomes.completes) and goal == "learn":
            raise UnsupportedError(
                "the goal maximise or minimise, with constraints on outcomes or infeasible "
                "failures",
                "the goal learn",
                "Leave them out: learn measures everywhere.",
            )
        return outcomes

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

    def refuse_counts(self) -> None:
        """Refuse what a campaign of counts cannot have.

        Raises:
            UnsupportedError: for names of outcomes, constraints on them, or infeasible failures.
        """
        if self.columns != ["y"] or self.joint:
            raise UnsupportedError(
                "one outcome without constraints, for counts",
                ", ".join(self.learned),
                "Name the column of counts in outcome= alone, and leave failures out.",
            )

    @property
    def columns(self) -> list[str]:
        """Objectives, then the other outcomes that constraints name."""
        named = [name for one in self.constraints for name in one.coefficients]
        return list(dict.fromkeys([*self.goals, *named]))

    @property
    def results(self) -> list[str]:
        """Columns of predictions and recommendations."""
        others = [column for column in self.columns if [column] != self.objectives]
        parts = ("mean", "sd", "lower", "upper")
        return [*RESULTS, *(f"{column}_{part}" for column in others for part in parts)]

    @property
    def learned(self) -> list[str]:
        """The columns, and the outcome that says whether a trial was completed."""
        return [*self.columns, *([COMPLETED] if self.completes else [])]

    @property
    def objectives(self) -> list[str]:
        """Columns of the objectives."""
        return list(self.goals)

    @property
    def reference_point(self) -> list[float] | None:
        """The reference point of objectives to be maximised; None if it is inferred."""
        given = self.reference
        return None if given is None else [self.sign(c) * given[c] for c in self.objectives]

    @property
    def several(self) -> bool:
        """Whether a trial may be told more than one outcome without a constraint."""
        return len(self.columns) > 1 or bool(self.constraints)

    @property
    def joint(self) -> bool:
        """Whether there is more to learn than one outcome without a constraint."""
        return self.several or self.completes

    def sign(self, column: str) -> float:
        """Factor of an outcome that makes larger ones better.

        Without a goal, better ones are those that a constraint asks for.
        """
        if column == COMPLETED and self.completes:
            return 1.0
        if column in self.goals:
            return -1.0 if self.goals[column] == "minimise" else 1.0
        limits = [one.coefficients.get(column, 0.0) for one in self.constraints]
        return -1.0 if all(weight >= 0.0 for weight in limits) else 1.0

    @property
    def signs(self) -> list[float]:
        """Factors of all columns."""
        return [self.sign(column) for column in self.columns]

    def weights(self) -> list[tuple[list[float], float]]:
        """Of every constraint: coefficients of the signed outcomes in order, and the bound."""
        signed = list(zip(self.columns, self.signs, strict=True))
        return [
            ([sign * one.coefficients.get(c, 0.0) for c, sign in signed], one.bound)
            for one in self.constraints
        ]

    def values(self, trial: Trial) -> list[float]:
        """Outcomes of a trial, to be maximised; NaN where one is not known."""
        known = [self.part(trial, column)[0] for column in self.columns]
        return list((np.array(known, dtype=np.float64) * self.signs).tolist())

    def feasible(self, frame: pd.DataFrame) -> np.ndarray:
        """Whether rows of outcomes satisfy every constraint, ``n``."""
        ok = np.ones(len(frame), dtype=bool)
        for one in self.constraints:
            ok &= np.asarray(one.excess(frame) <= 0.0)
        return ok

    def signed(self, frame: pd.DataFrame) -> np.ndarray:
        """Objectives in rows of outcomes, to be maximised, ``n x k``."""
        signs = self.signs[: len(self.goals)]
        return frame[self.objectives].to_numpy(np.float64) * np.array(signs)

    # -- frames ----------------------------------------------------------------------------------

    @property
    def known_columns(self) -> list[str]:
        """Columns of outcomes and of their noise variances."""
        return [*self.columns, *map(noise_column, self.columns)]

    def complete(self, parts: Mapping[str, Any]) -> bool:
        """Whether every outcome is among the parts."""
        return all(column in parts for column in self.columns)

    def rows(self, frame: pd.DataFrame, history: TrialHistory) -> list[tuple[Any, ...]]:
        """The outcomes of a frame's rows: their parts, or outcome and variance of the only one.

        Raises:
            InputError, NoiseError: for invalid values, a row without any, or noise variances for
                some outcomes of a column only.
        """
        rows: list[dict[str, tuple[float, float | None]]] = [{} for _ in range(len(frame))]
        if not any(column in frame for column in self.columns):
            numbers(frame, self.columns[0])  # refuses
        for column in self.columns:
            if column not in frame:
                continue
            given = frame[column].notna().to_numpy() if self.several else slice(None)
            places, part = np.arange(len(frame))[given], frame[given]
            noise = self._noise(part, column, history)
            values = numbers(part, column, LARGEST).tolist()
            for i, y, variance in zip(places, values, noise, strict=True):
                rows[i][column] = (y, variance)
        if not self.several:
            return [row[self.columns[0]] for row in rows]
        empty = [str(frame.index[i]) for i, row in enumerate(rows) if not row]
        if empty:
            raise InputError(
                f"an outcome in every row, in one of the columns {', '.join(self.columns)}",
                f"none in row {empty[0]}",
                "Leave the row out until there is one.",
            )
        return [(row,) for row in rows]

    def new_parts(self, trial: Trial, told: OutcomeParts) -> OutcomeParts:
        """The outcomes that a trial was not told before.

        Raises:
            StateError: for an outcome that contradicts one told before, and of withdrawn trials.
        """
        before = trial.parts or {}
        new = {column: part for column, part in told.items() if column not in before}
        for column in told.keys() & before.keys():
            if not all(map(is_same, before[column], told[column])):
                raise StateError(
                    f"{column!r} of trial {trial.id} as it was told before, {before[column][0]!r}",
                    f"{told[column][0]!r}",
                    "Correct it with amend(). Leave the value out, or tell it without a trial id "
                    "as a new measurement.",
                )
        if new and trial.status == "withdrawn":
            got = f"trial {trial.id}"
            raise StateError("trials that were not withdrawn", got, "Take it back with amend().")
        return new

    def corrections(
        self, frame: pd.DataFrame, trials: Sequence[Trial], history: TrialHistory
    ) -> list[tuple[Any, ...]]:
        """Ids and corrected outcomes of trials; columns that are left out keep their values.

        Raises:
            InputError, NoiseError: for invalid values.
            StateError: for outcomes that were not told yet.
        """
        for column in self.columns:
            values, variances = zip(*(self.part(trial, column) for trial in trials), strict=True)
            noise = noise_column(column)
            if column in frame and noise not in frame and None not in variances:
                frame = frame.assign(**{noise: np.array(variances)})
            elif noise in frame and column not in frame and None not in values:
                frame = frame.assign(**{column: np.array(values)})
        corrected: list[tuple[Any, ...]] = []
        for trial, row in zip(trials, self.rows(frame, history), strict=True):
            told = dict(row[0]) if self.several else {self.columns[0]: row}
            before = {column: self.part(trial, column) for column in told}
            if trial.status != "withdrawn":
                untold = [column for column, (y, _) in before.items() if y is None]
                if untold:
                    raise StateError(
                        f"outcomes of trial {trial.id} that were told",
                        f"{untold[0]!r}, which was not",
                        "Tell it with tell().",
                    )
                same = [c for c, part in told.items() if all(map(is_same, before[c], part))]
                told = {c: part for c, part in told.items() if c not in same}
            elif self.several:
                told = {**(trial.parts or {}), **told}
                if not self.complete(told):
                    raise StateError(
                        f"all outcomes of trial {trial.id}, which was withdrawn",
                        ", ".join(told),
                        "Give the others, too.",
                    )
            if told:
                corrected.append((trial.id, told) if self.several else (trial.id, *row))
        return corrected

    def shown(self, trials: Sequence[Trial]) -> dict[str, np.ndarray]:
        """Columns of outcomes, and of noise variances where any are known; NaN where none is."""
        made: dict[str, np.ndarray] = {}
        for column in self.columns:
            parts = [self.part(trial, column) for trial in trials]
            made[column] = np.array([y for y, _ in parts], dtype=np.float64)
            if any(variance is not None for _, variance in parts):
                made[noise_column(column)] = np.array([v for _, v in parts], dtype=np.float64)
        return made

    def part(self, trial: Trial, column: str) -> tuple[float | None, float | None]:
        """An outcome of a trial and its noise variance, as far as they are known."""
        if self.completes and column == COMPLETED:
            return float(trial.status == "told"), None
        if not self.several:
            return trial.y, trial.yvar
        return (trial.parts or {}).get(column, (None, None))

    def _noise(self, frame: pd.DataFrame, column: str, history: TrialHistory) -> list[float | None]:
        """Noise variances of an outcome; None where they are learned."""
        name = noise_column(column)
        learned = (t for t in history.trials if t.status != "withdrawn")
        given, earlier = name in frame, (self.part(t, column) for t in learned)
        known = next((variance is not None for y, variance in earlier if y is not None), given)
        if len(frame) and given != known:
            raise NoiseError(
                f"outcomes {'with' if known else 'without'} a column {name!r}, as before",
                f"{'one' if given else 'none'}",
                "Give noise variances for all outcomes of a column or for none of them.",
            )
        if not given:
            return [None] * len(frame)
        variances = numbers(frame, name, LARGEST**2)
        if (variances <= 0.0).any():
            raise NoiseError(
                f"positive noise variances in {name!r}", f"{variances.min():g}", "Give variances."
            )
        return list(variances.tolist())
