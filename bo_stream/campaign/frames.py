"""Trials as frames of pandas, and frames of outcomes as the events of telling them."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_scalar

from bo_stream.campaign.history import (
    Event,
    Trial,
    TrialHistory,
    amended_event,
    is_same,
    told_event,
)
from bo_stream.campaign.names import OWN, in_spelling
from bo_stream.campaign.outcomes.count import Count
from bo_stream.campaign.outcomes.outcomes import OutcomeSet
from bo_stream.campaign.space import Pool, Space
from bo_stream.campaign.space.columns import told_apart
from bo_stream.campaign.space.inputs import CLOSE, Category, Input
from bo_stream.errors import InputError, StateError

__all__ = [
    "Columns",
    "far_outcomes",
    "find_trials",
    "inputs_frame",
    "parse_ids",
    "read_amended",
    "read_new_trials",
    "read_told",
    "trials_frame",
]

ROUNDED = 5.1e-6
"""Largest relative difference of an input from the one that was asked for, as it is printed."""


@dataclass(frozen=True)
class Columns:
    """What the columns of a user's frames are.

    Attributes:
        space: The inputs.
        named: The outcomes, unless they are counts.
        counts: What the outcomes are, if they are counts.
    """

    space: Space
    named: OutcomeSet
    counts: Count | None = None

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

    def rows(self, frame: pd.DataFrame, history: TrialHistory) -> list[tuple[Any, ...]]:
        """What the rows of a frame tell: outcomes, variances and sizes; or outcomes by column."""
        if self.counts is None:
            return self.named.rows(frame, history)
        k, n = (values.tolist() for values in self.counts.values(frame))
        return [(one, None, of) for one, of in zip(k, n, strict=True)]


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
    rows = zip(trials, columns.rows(frame, history), strict=True)
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


LABELS = ("key", "note", "notes")
"""Columns that describe a row, unless they are inputs or outcomes."""

FAR, FEWEST = 200.0, 8
"""Interquartile ranges from the median from which on an outcome is far from the others, and the
number of outcomes from which on that is judged."""

SAMPLED = 500
"""Number of outcomes that quartiles are taken from."""

MIXED_UP = 0.1
"""Share of an input's range from which on a difference is taken for a mix-up of rows."""


def read_told(frame: pd.DataFrame, columns: Columns, history: TrialHistory) -> Event | None:
    """The event of telling the rows of a frame; None if they are all known.

    Rows whose id is empty are measurements of one's own. One of these whose ``key`` was told before
    is that measurement. Inputs that differ from those that a trial was asked for are what was done.

    Raises:
        InputError, NoiseError, BoundsError: for invalid columns, ids or values.
        StateError: for an outcome that contradicts one told before.
    """
    space = columns.space
    labels, frame = _labels(_with_counts(columns.spelled(frame), columns.counts), columns)
    if not len(frame):
        return None
    _check_columns(frame, space, columns.outcomes)
    ids = _row_ids(frame, labels.get("key"), history)
    asked = [i for i, id in enumerate(ids) if id is not None]
    own = [i for i, id in enumerate(ids) if id is None]
    values: list[tuple[Any, ...]] = []
    inputs = np.empty((0, space.dim))
    places: list[int] | None = [] if isinstance(space, Pool) else None
    done: list[tuple[int, list[float]]] = []
    if asked:
        part = frame.iloc[asked] if own else frame
        trials = find_trials([ids[i] for i in asked], history)
        if isinstance(space, Pool) or not names_trials(frame):
            check_inputs(part, space, trials)
        done = _done(part, space, trials)
        values = _new_outcomes(trials, columns.rows(part, history), columns)
    if own:
        part = frame.iloc[own]
        told = columns.rows(part, history)
        inputs, places = _inputs(part, space)
        found = _running_at(history, inputs, places)
        values += [(id, *row) for id, row in zip(found, told, strict=True)]
        new = [i for i, id in enumerate(found) if id is None]
        inputs, places = inputs[new], None if places is None else [places[i] for i in new]
        _check_free(space, history, places or [])
        following = iter(history.next_ids(len(new)))
        for i, id in zip(own, found, strict=True):
            ids[i] = next(following) if id is None else id
    event = told_event(history, values, inputs, places)
    for name, texts in labels.items():
        rows = [(int(id), text) for id, text in zip(ids, texts, strict=True) if text]
        if new_rows := [list(row) for row in rows if row[1] != _label(history, row[0], name)]:
            event[f"{name}s"] = new_rows
    now = {row[0] for row in values}
    if moved := [[id, x] for id, x in done if id in now]:
        event["done"] = moved
    return event if values or "notes" in event else None


def read_amended(frame: pd.DataFrame, columns: Columns, history: TrialHistory) -> Event | None:
    """The event of correcting the outcomes, or the notes, of a frame; None if nothing differs.

    Raises:
        InputError, NoiseError: for invalid columns, ids or values.
        StateError: for trials without an outcome.
    """
    labels, frame = _labels(columns.spelled(frame), columns)
    values = read_corrections(frame, columns, history)
    event = amended_event(history, values)
    texts = labels.get("note", [])
    ids = [int(id) for id in _row_ids(frame, None, history)] if texts else []
    told = zip(ids, texts, strict=True)
    notes = [[id, text] for id, text in told if text and text != history.trials[id].note]
    if notes:
        event["notes"] = notes
    return event if values or notes else None


def far_outcomes(history: TrialHistory, ids: Iterable[int] | None = None) -> list[int]:
    """Ids of outcomes that are hundreds of interquartile ranges away from the others.

    Args:
        history: All trials. Quartiles are those of at most a thousand outcomes.
        ids: Those to judge; all by default.
    """
    trials, batches, ends = history.trials, history.told.batches, history.told.ends
    kept = []
    for place in range(0, history.num_told, max(1, history.num_told // SAMPLED)):
        batch = bisect_right(ends, place)
        y = trials[batches[batch][place - ends[batch]]].y
        if y is None:  # of several outcomes
            return []
        kept.append(y)
    if len(kept) < FEWEST:
        return []
    first, middle, third = quantiles(kept, n=4, method="inclusive")
    if not third > first:
        return []
    judged = [id for batch in batches for id in batch] if ids is None else ids
    values = ((id, trials[id].y) for id in judged)
    return [id for id, y in values if y is not None and abs(y - middle) > FAR * (third - first)]


def _new_outcomes(
    trials: list[Trial], told: list[tuple[Any, ...]], columns: Columns
) -> list[tuple[Any, ...]]:
    """Ids and outcomes of trials that were not told them before.

    Raises:
        StateError: for an outcome that contradicts one told before.
    """
    kept: list[tuple[Any, ...]] = []
    for trial, row in zip(trials, told, strict=True):
        if columns.named.several:
            parts = columns.named.new_parts(trial, row[0])
            kept += [(trial.id, parts)] if parts else []
        elif trial.status in ("running", "failed"):
            kept.append((trial.id, *row))
        elif not _same_outcome(trial, row):
            size = "" if columns.counts is None else f" of {trial.size!r}"
            gone = ", and that was withdrawn" if trial.status == "withdrawn" else ""
            raise StateError(
                f"the outcome that trial {trial.id} was told before, {trial.y!r}{size}{gone}",
                f"{row[0]!r}{size and f' of {row[-1]!r}'}",
                "Correct it with amend(). Leave the row out, or tell it without a trial id as a "
                "new measurement.",
            )
    return kept


def _with_counts(frame: pd.DataFrame, counts: Count | None) -> pd.DataFrame:
    """The rows that have a count; a warning names the others."""
    if counts is None or counts.column not in frame:
        return frame
    left = counts.without_count(frame)
    for what, rows in left.items():
        if rows.any():
            named = ", ".join(map(str, frame.index[rows]))
            warnings.warn(f"Rows {what}, which are left out: {named}.", stacklevel=6)
    return frame[~np.logical_or.reduce(list(left.values()))]


def _label(history: TrialHistory, id: int, name: str) -> str | None:
    """The note or key of a trial, if it is known."""
    found = getattr(history.trials[id], name) if id < len(history.trials) else None
    return found if found is None else str(found)


def _labels(frame: Any, columns: Columns) -> tuple[dict[str, list[str]], Any]:
    """Keys and notes of rows as texts, empty where there are none; and the frame without them."""
    taken = {*columns.space.names, *columns.outcomes}
    labels: dict[str, list[str]] = {}
    for column in LABELS:
        if column in frame and column not in taken:
            texts = [
                "" if is_scalar(cell) and pd.isna(cell) else str(cell).strip()
                for cell in frame[column]
            ]
            labels["key" if column == "key" else "note"] = texts
            frame = frame.drop(columns=column)
    return labels, frame


def _row_ids(frame: Any, keys: list[str] | None, history: TrialHistory) -> list[Any]:
    """The trial id of every row; None for a measurement of one's own whose key is new."""
    given = given_ids(frame)
    ids = [None] * len(frame) if given is None else [_id(id) for id in given]
    if keys is None:
        return ids
    known = {trial.key: trial.id for trial in history.trials if trial.key is not None}
    own = [key for id, key in zip(ids, keys, strict=True) if id is None and key]
    twice = sorted({key for key in own if own.count(key) > 1})
    if twice:
        raise InputError("every key once", ", ".join(twice[:5]), "Leave out the duplicates.")
    return [known.get(key) if id is None else id for id, key in zip(ids, keys, strict=True)]


def _id(given: Any) -> Any:
    """A trial id as it was given; None if it is empty."""
    if given is None or given is pd.NA or given == "":
        return None
    if isinstance(given, float | np.floating):
        return None if math.isnan(given) else int(given) if given.is_integer() else given
    return given


def _done(frame: pd.DataFrame, space: Space, trials: list[Trial]) -> list[tuple[int, list[float]]]:
    """Inputs that differ from those that were asked for, by id; none in a pool."""
    given = [i for i, name in enumerate(space.names) if name in frame]
    if isinstance(space, Pool) or not given:
        return []
    before = np.array([trial.inputs for trial in trials], dtype=np.float64)
    values = before.copy()
    for i in given:
        values[:, i] = space.read(frame, space.names[i])
    pairs = zip(space.kinds, values.T, before.T, strict=True)
    same = np.stack([as_asked(*one) for one in pairs], -1)
    if same.all():
        return []
    values = np.where(same, before, values)
    low, high = space.tensor_bounds
    apart = ((space.encode(values) - space.encode(before)).abs() / (high - low)).numpy()
    if (apart > MIXED_UP).any():
        row, column = (int(i) for i in np.argwhere(apart > MIXED_UP)[0])
        name = space.names[column]
        shown = shown_labels(space, name, before[row, column], values[row, column])
        raise InputError(
            f"{name!r} = {shown[0]}, as trial {trials[row].id} was asked for, or "
            f"within {MIXED_UP:.0%} of its range",
            shown[1],
            "Check that the rows are not mixed up. Tell a measurement at other inputs without a "
            "trial id, and fail() the trial.",
        )
    for i, kind in enumerate(space.kinds):
        values[:, i] = kind.settled(values[:, i])
    moved = [i for i, row in enumerate(same) if not row.all()]
    return [(trials[i].id, values[i].tolist()) for i in moved]
