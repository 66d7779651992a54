"""Reading a user's frames of trials and outcomes, and writing trials as frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bo_stream.campaign.digits import told_apart
from bo_stream.campaign.ledger.trial_history import TrialHistory
from bo_stream.campaign.ledger.trials import Trial, is_same
from bo_stream.campaign.names import OWN, in_spelling
from bo_stream.campaign.outcomes.count_outcomes import CountOutcome
from bo_stream.campaign.outcomes.named_outcomes import NamedOutcomes
from bo_stream.campaign.space import Pool, Space
from bo_stream.campaign.space.inputs import CLOSE, Category, Input
from bo_stream.errors import InputError, StateError

__all__ = [
    "Columns",
    "Outcomes",
    "check_frame",
    "find_trials",
    "as_asked",
    "check_inputs",
    "given_ids",
    "names_trials",
    "shown_labels",
    "inputs_frame",
    "parse_ids",
    "read_corrections",
    "read_new_trials",
    "read_outcomes",
    "trials_frame",
]

ROUNDED = 5.1e-6
"""Largest relative difference of an input from the one that was asked for, as it is printed."""

Outcomes = tuple[list[tuple[Any, ...]], np.ndarray, list[int] | None]
"""Values for `bo_stream.campaign.ledger.events.told_event`, and inputs and places of new trials."""


@dataclass(frozen=True)
class Columns:
    """What the columns of a user's frames are.

    Attributes:
        space: The inputs.
        named: The outcomes, unless they are counts.
        counts: What the outcomes are, if they are counts.
    """

    space: Space
    named: NamedOutcomes
    counts: CountOutcome | None = None

    @property
    def outcomes(self) -> list[str]:
        """Columns of outcomes and noise variances, or of counts and sizes."""
        return self.named.known_columns if self.counts is None else self.counts.columns

    def spelled(self, frame: Any) -> pd.DataFrame:
        """A user's frame with the columns as they are named here.

        Raises:
            InputError: for what is not a frame with rows, or several columns of one name.
        """
        check_frame(frame)
        return in_spelling(frame, {*self.space.names, *self.outcomes, *OWN})


def check_frame(frame: Any) -> None:
    """Refuse what is not a frame with rows.

    Raises:
        InputError: naming what it is.
    """
    if not isinstance(frame, pd.DataFrame):
        raise InputError(
            "a DataFrame with one row per trial", type(frame).__name__, "Use the frame of ask()."
        )
    if not len(frame):
        raise InputError("at least one row", "none", "Leave the call out.")


def read_outcomes(
    frame: pd.DataFrame,
    columns: Columns,
    history: TrialHistory,
    ids: list[Any] | None,
    *,
    inputs_read: bool = False,
) -> Outcomes:
    """Outcomes in a frame that are not in the history yet.

    A row without id belongs to the running trial with exactly its inputs if there is one, and else
    is a new trial. Inputs of rows with ids are compared with the trials' unless they were read
    before.

    Args:
        frame: The frame.
        columns: What its columns are.
        history: All trials.
        ids: Trial ids of its rows; None if they have none.
        inputs_read: Whether the inputs of rows with ids were read before.

    Raises:
        InputError, NoiseError: for invalid columns, ids or values.
        StateError: for an outcome that contradicts one told before.
    """
    space, named, counts = columns.space, columns.named, columns.counts
    _check_columns(frame, space, columns.outcomes)
    told = named.rows(frame, history) if counts is None else _counted(frame, counts)
    if ids is None:
        inputs, places = _inputs(frame, space)
        found = _running_at(history, inputs, places)
        new = [i for i, id in enumerate(found) if id is None]
        _check_free(space, history, [] if places is None else [places[i] for i in new])
        values = [(id, *row) for id, row in zip(found, told, strict=True)]
        return values, inputs[new], None if places is None else [places[i] for i in new]
    trials = find_trials(ids, history)
    if not inputs_read:
        check_inputs(frame, space, trials)
    kept: list[tuple[Any, ...]] = []
    for trial, row in zip(trials, told, strict=True):
        if named.several:
            row = (named.new_parts(trial, row[0]),)
            kept += [(trial.id, *row)] if row[0] else []
        elif trial.status in ("running", "failed"):
            kept.append((trial.id, *row))
        elif not _same_outcome(trial, row):
            size = "" if counts is None else f" of {trial.size!r}"
            gone = ", and that was withdrawn" if trial.status == "withdrawn" else ""
            raise StateError(
                f"the outcome that trial {trial.id} was told before, {trial.y!r}{size}{gone}",
                f"{row[0]!r}{size and f' of {row[-1]!r}'}",
                "Correct it with amend(). Leave the row out, or tell it without a trial id as a "
                "new measurement.",
            )
    return kept, np.empty((0, space.dim)), None if not isinstance(space, Pool) else []


def read_corrections(
    frame: pd.DataFrame, columns: Columns, history: TrialHistory
) -> list[tuple[Any, ...]]:
    """Corrected outcomes in a frame; columns that are left out keep their values.

    Raises:
        InputError, NoiseError: for invalid columns, ids or values.
        StateError: for trials without an outcome.
    """
    _check_columns(frame, columns.space, columns.outcomes)
    ids = given_ids(frame)
    if ids is None or not any(column in frame for column in columns.outcomes):
        raise InputError(
            f"trial ids, and a column among {', '.join(columns.outcomes)}",
            f"columns {', '.join(map(str, frame.columns))}",
            "Give the ids in the index or in a column trial, with the corrected outcomes.",
        )
    trials = find_trials(ids, history)
    check_inputs(frame, columns.space, trials)
    counts = columns.counts
    if counts is None:
        return columns.named.corrections(frame, trials, history)
    without = [trial.id for trial in trials if trial.status in ("running", "failed")]
    if without:
        raise StateError("trials with an outcome", f"{without} without", "Tell these with tell().")
    for name, column in (("y", counts.column), ("size", counts.size)):
        if column is not None and column not in frame:
            frame = frame.assign(**{column: _column([getattr(t, name) for t in trials])})
    rows = zip(trials, _counted(frame, counts), strict=True)
    return [
        (trial.id, *row)
        for trial, row in rows
        if trial.status == "withdrawn" or not _same_outcome(trial, row)
    ]


def read_new_trials(
    frame: pd.DataFrame, space: Space, history: TrialHistory
) -> tuple[np.ndarray, list[int] | None]:
    """Inputs and places of the new trials in a frame.

    Raises:
        InputError: for invalid columns or values.
    """
    _check_columns(frame, space)
    inputs, places = _inputs(frame, space)
    _check_free(space, history, places or [])
    return inputs, places


def parse_ids(ids: Any, reason: Any) -> list[Any]:
    """One trial id or several as a list.

    Raises:
        InputError: without a reason in words.
    """
    wanted = [ids] if isinstance(ids, int | np.integer) else ids
    if not isinstance(wanted, Iterable) or not isinstance(reason, str) or not reason.strip():
        raise InputError(
            "trial ids and a reason in words", f"{ids!r}, {reason!r}", "Give the reason as text."
        )
    return list(wanted)


def find_trials(ids: Iterable[Any], history: TrialHistory) -> list[Trial]:
    """Trials by id.

    Raises:
        InputError: for unknown or repeated ids.
    """
    wanted = list(ids)
    whole = [not isinstance(id, bool) and isinstance(id, int | np.integer) for id in wanted]
    unknown = [
        id
        for id, ok in zip(wanted, whole, strict=True)
        if not ok or not 0 <= id < len(history.trials)
    ]
    if unknown:
        raise InputError(
            f"trial ids, 0 to {len(history.trials) - 1}" if history.trials else "no trial id yet",
            ", ".join(map(repr, unknown[:5])),
            "Use the index of ask()'s frame. Leave the id out for data that were not asked for: "
            "frame.reset_index(drop=True).",
        )
    if len(set(wanted)) < len(wanted):
        raise InputError("every trial once", f"{wanted}", "Leave out the duplicates.")
    return [history.trials[int(id)] for id in wanted]


def inputs_frame(trials: list[Trial], space: Space) -> pd.DataFrame:
    """Trials as `ask` returns them: inputs by name, with trial ids as the index."""
    index = pd.Index([trial.id for trial in trials], name="trial", dtype="int64")
    values = np.array([trial.inputs for trial in trials], dtype=np.float64)
    frame = space.labelled(values, index)
    if isinstance(space, Pool):
        places = [space.table.index[trial.place] for trial in trials]  # type: ignore[index]
        frame.insert(0, "place", pd.Series(places, index, dtype=space.table.index.dtype))
    return frame


def trials_frame(trials: list[Trial], columns: Columns) -> pd.DataFrame:
    """Trials with outcome, status and reason, one per row; ``y`` of counts is their rate."""
    frame = inputs_frame(trials, columns.space).assign(**columns.named.shown(trials))
    counts = columns.counts
    if counts is not None:
        k, n = frame.pop("y"), _column([t.size for t in trials])
        if counts.size is not None:
            frame[counts.size] = n
        frame[counts.column] = k
        frame["y"] = k / n
    frame["status"] = pd.Series([t.status for t in trials], frame.index, dtype="str")
    frame["ask"] = pd.array([t.ask for t in trials], dtype="Int64")
    frame["reason"] = pd.Series([t.reason for t in trials], frame.index, dtype="str")
    for label in ("note", "key"):
        texts = [getattr(t, label) for t in trials]
        if any(texts) and label not in frame:
            frame[label] = pd.Series(texts, frame.index, dtype="str")
    return frame


def _column(values: Iterable[float | None]) -> np.ndarray:
    """Values with NaN for None."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _check_columns(frame: Any, space: Space, columns: Sequence[str] = ("y", "yvar")) -> None:
    check_frame(frame)
    known = {*space.names, *OWN, *columns} - ({"y", "yvar"} - set(columns))
    extra = [str(c) for c in frame.columns if c not in known]
    if extra:
        raise InputError(
            f"columns among {', '.join([*space.names, *columns])}",
            f"also {', '.join(extra)}",
            "Drop them: frame.drop(columns=...).",
        )


def _inputs(frame: pd.DataFrame, space: Space) -> tuple[np.ndarray, list[int] | None]:
    """Inputs of a frame's rows, and their places in a pool."""
    if not isinstance(space, Pool):
        return space.values(frame), None
    places = space.places(frame)
    return space.place_values[places], places


def _counted(frame: pd.DataFrame, counts: CountOutcome) -> list[tuple[float, None, float]]:
    """The counts of a frame's rows and their sizes."""
    k, n = (values.tolist() for values in counts.values(frame))
    return [(one, None, of) for one, of in zip(k, n, strict=True)]


def given_ids(frame: pd.DataFrame) -> list[Any] | None:
    """Trial ids in a column or an index ``trial``, or in an index that is not a plain range.

    None if the frame has none.
    """
    if "trial" in frame:
        return frame["trial"].tolist()
    if names_trials(frame) or not isinstance(frame.index, pd.RangeIndex):
        return frame.index.tolist()
    return None


def names_trials(frame: pd.DataFrame) -> bool:
    """Whether a frame says which of its columns, or that its index, has trial ids.

    An index without this name may have been left over when rows were chosen.
    """
    return "trial" in frame or frame.index.name == "trial"


def _running_at(
    history: TrialHistory, inputs: np.ndarray, places: list[int] | None
) -> list[int | None]:
    """Ids of running trials at exactly these inputs, each used once."""

    def written(x: Iterable[float]) -> tuple[str, ...]:
        return tuple(f"{value:.12g}" for value in x)  # a file may drop the last digits

    waiting: dict[Any, list[int]] = {}
    for trial in history.with_status("running"):
        key = written(trial.inputs) if places is None else trial.place
        waiting.setdefault(key, []).append(trial.id)
    keys: list[Any] = [written(x) for x in inputs.tolist()] if places is None else list(places)
    return [waiting[key].pop(0) if waiting.get(key) else None for key in keys]


def _same_outcome(trial: Trial, row: Sequence[float | None]) -> bool:
    """Whether a trial was told this outcome."""
    return all(map(is_same, (trial.y, trial.yvar, trial.size), row))  # the size of counts only


def shown_labels(space: Space, name: str, *values: float) -> list[str]:
    """Values of an input as texts that differ where they do."""
    kind = space.kinds[space.names.index(name)]
    if isinstance(kind, Category):
        return list(map(str, kind.labels(np.array(values))))
    return told_apart(*values)


def as_asked(kind: Input, values: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Whether values of an input are those that were asked for, up to rounding."""
    slack = 0.0 if kind.log else CLOSE * (kind.ends[1] - kind.ends[0])
    near: np.ndarray = np.abs(values - asked) <= np.maximum(ROUNDED * np.abs(asked), slack)
    return near


def _check_free(space: Space, history: TrialHistory, places: list[int]) -> None:
    """Refuse places that were measured before, unless the pool allows repeats."""
    if not isinstance(space, Pool) or space.repeats:
        return
    taken = {trial.place for trial in history.trials if trial.status == "told"}
    again = [p for i, p in enumerate(places) if p in taken or p in places[:i]]
    if again:
        raise InputError(
            "places without an outcome",
            ", ".join(str(space.table.index[p]) for p in again[:5]),
            "Leave them out, or use Pool(..., repeats=True).",
        )


def check_inputs(frame: pd.DataFrame, space: Space, trials: list[Trial]) -> None:
    """Refuse inputs that differ from those of the trials.

    Raises:
        InputError: naming the first.
    """
    for i, name in enumerate(space.names):
        if name not in frame:
            continue
        values = space.read(frame, name)
        asked = np.array([trial.inputs[i] for trial in trials])
        off = ~as_asked(space.kinds[i], values, asked)
        if off.any():
            row = int(off.argmax())
            remedy = "Tell a measurement at other inputs without a trial id, and fail() the trial."
            if not names_trials(frame):
                remedy = (
                    "The frame's index was read as trial ids. Of data that were not asked for, "
                    "tell frame.reset_index(drop=True)."
                )
            before, got = shown_labels(space, name, asked[row], values[row])
            raise InputError(
                f"{name!r} = {before}, as trial {trials[row].id} was asked for", got, remedy
            )
    if isinstance(space, Pool) and "place" in frame:
        wrong = [t.id for t, p in zip(trials, space.places(frame), strict=True) if t.place != p]
        if wrong:
            raise InputError(
                "the places of the trials", f"other places for trials {wrong}", "Correct them."
            )
