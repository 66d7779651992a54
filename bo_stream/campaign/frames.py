"""Trials as frames of pandas, and frames of outcomes as the events of telling them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, count
from statistics import quantiles
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_scalar

from bo_stream.campaign.history import Entry, Event, Trial, TrialHistory, changed_ids
from bo_stream.campaign.names import OWN, in_spelling
from bo_stream.campaign.outcomes.outcome import Outcome
from bo_stream.campaign.outcomes.outcomes import OutcomeSet
from bo_stream.campaign.space import Pool, Space
from bo_stream.campaign.space.spaces import CLOSE, Category
from bo_stream.errors import InputError, StateError

__all__ = [
    "far_outcomes",
    "find_trials",
    "inputs_frame",
    "read_amended",
    "read_new_trials",
    "read_told",
    "trials_frame",
]

ROUNDED = 5.1e-6
"""Largest relative difference of an input from the one that was asked for, as it is printed."""

LABELS = ("key", "note", "notes")
"""Columns that describe a row, unless they are inputs or outcomes."""

FAR, FEWEST = 200.0, 8
"""Interquartile ranges from the median from which on an outcome is far from the others, and the
number of outcomes from which on that is judged."""

SAMPLED = 500
"""Number of outcomes that quartiles are taken from."""

MIXED_UP = 0.1
"""Share of an input's range from which on a difference is taken for a mix-up of rows."""


def read_new_trials(frame: Any, space: Space, history: TrialHistory) -> list[Trial]:
    """The new trials in a user's frame.

    Raises:
        InputError: for invalid columns or values.
    """
    return _own_trials(_checked(frame, space, ()), space, history, [])


def find_trials(ids: Any, history: TrialHistory) -> list[Trial]:
    """Trials by id, one or several.

    Raises:
        InputError: for unknown or repeated ids.
    """
    wanted, known = list(ids) if isinstance(ids, Iterable) else [ids], range(len(history.trials))
    unknown = [id for id in wanted if isinstance(id, bool) or id not in known]
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


def trials_frame(trials: list[Trial], space: Space, outcomes: OutcomeSet) -> pd.DataFrame:
    """Trials with outcome, status and reason, one per row; ``y`` of counts is their rate."""
    frame = inputs_frame(trials, space)
    for one in outcomes.measured:
        frame = frame.assign(**one.shown([one.entry_of(trial) for trial in trials]))
    frame["status"] = pd.Series([t.status for t in trials], frame.index, dtype="str")
    frame["ask"] = pd.array([t.ask for t in trials], dtype="Int64")
    frame["reason"] = pd.Series([t.reason for t in trials], frame.index, dtype="str")
    for label in ("note", "key"):
        texts = [getattr(t, label) for t in trials]
        if any(texts) and label not in frame:
            frame[label] = pd.Series(texts, frame.index, dtype="str")
    return frame


def _checked(
    frame: Any, space: Space, outcomes: Sequence[str], labels: Sequence[str] = ()
) -> pd.DataFrame:
    """A user's frame with the columns as they are named here; others are refused."""
    frame = in_spelling(frame, {*space.names, *outcomes, *OWN})
    if not len(frame):
        raise InputError("at least one row", "none", "Leave the call out.")
    known = {*OWN, *labels} - {"y", "yvar"} | {*space.names, *outcomes}
    extra = [str(c) for c in frame.columns if c not in known]
    if extra:
        raise InputError(
            f"columns among {', '.join([*space.names, *outcomes])}",
            f"also {', '.join(extra)}",
            "Drop them: frame.drop(columns=...).",
        )
    return frame


def _names_trials(frame: pd.DataFrame) -> bool:
    """Whether a frame says which of its columns, or that its index, has trial ids.

    An index without this name may have been left over when rows were chosen.
    """
    return "trial" in frame or frame.index.name == "trial"


def _trial_ids(frame: pd.DataFrame) -> list[Any]:
    """Trial ids in a column or an index ``trial``, or in an index that is no plain range.

    None where there is none.
    """
    if not _names_trials(frame) and isinstance(frame.index, pd.RangeIndex):
        return [None] * len(frame)
    cells = frame["trial"].tolist() if "trial" in frame else frame.index.tolist()
    return [None if (is_scalar(cell) and pd.isna(cell)) or cell == "" else cell for cell in cells]


def _own_trials(
    frame: pd.DataFrame, space: Space, history: TrialHistory, running: Iterable[Trial]
) -> list[Trial]:
    """Trials of rows without an id: of the running ones at the same inputs, each once, or new."""

    def key(inputs: tuple[float, ...], place: int | None) -> Any:
        """A file may drop the last digits."""
        return tuple(f"{x:.12g}" for x in inputs) if place is None else place

    if isinstance(space, Pool):
        places = space.places(frame)
        new = history.new_trials(space.place_values[places].tolist(), places)
    else:
        new = history.new_trials(space.values(frame).tolist())
    waiting: dict[Any, list[Trial]] = {}
    for trial in running:
        waiting.setdefault(key(trial.inputs, trial.place), []).append(trial)
    trials, following = list[Trial](), count(len(history.trials))
    for trial in new:
        there = waiting.get(key(trial.inputs, trial.place))
        trials.append(there.pop(0) if there else trial._replace(id=next(following)))
    _check_free(space, history, [t.place for t in trials if t.id >= len(history.trials)])
    return trials


def _check_free(space: Space, history: TrialHistory, places: list[Any]) -> None:
    """Refuse places that were measured before, unless the pool allows repeats."""
    if not isinstance(space, Pool) or space.repeats:
        return
    taken = {trial.place for trial in history.trials if trial.status == "told"}
    again = [p for i, p in enumerate(places) if p in taken or p in places[:i]]
    if again:
        raise InputError(
            "places without an outcome",
            ", ".join(map(str, space.table.index[again[:5]])),
            "Leave them out, or use Pool(..., repeats=True).",
        )


def _moved(
    frame: pd.DataFrame, space: Space, trials: Sequence[Trial], exactly: bool
) -> list[tuple[int, list[float]]]:
    """Inputs in rows of trials that differ from those that were asked for, by the trial's id.

    Args:
        frame: A row for each trial.
        space: The inputs.
        trials: The trials.
        exactly: Whether any difference is refused; otherwise those of more than a tenth of the
            input's range are.

    Raises:
        InputError: naming the first input that is refused.
    """
    exactly = exactly or isinstance(space, Pool) or not _names_trials(frame)
    if isinstance(space, Pool) and "place" in frame:
        wrong = [t.id for t, p in zip(trials, space.places(frame), strict=True) if t.place != p]
        if wrong:
            raise InputError(
                "the places of the trials", f"other places for trials {wrong}", "Correct them."
            )
    asked = np.array([trial.inputs for trial in trials], dtype=np.float64).reshape(-1, space.dim)
    values = asked.copy()
    for i, kind in enumerate(space.kinds):
        if space.names[i] in frame:
            read = kind.read(frame)
            slack = 0.0 if kind.log else CLOSE * (kind.ends[1] - kind.ends[0])
            near = np.abs(read - asked[:, i]) <= np.maximum(ROUNDED * np.abs(asked[:, i]), slack)
            values[:, i] = np.where(near, asked[:, i], read)
    if (values == asked).all():
        return []
    low, high = space.tensor_bounds
    apart = (space.encode(values) - space.encode(asked)).abs() / (high - low)
    refused = (apart > (0.0 if exactly else MIXED_UP)).numpy()
    if refused.any():
        row, i = np.argwhere(refused)[0].tolist()
        kind, both = space.kinds[i], np.array([asked[row, i], values[row, i]])
        words = kind.labels(both) if isinstance(kind, Category) else [f"{x:.12g}" for x in both]
        within = "" if exactly else f", or within {MIXED_UP:.0%} of its range"
        raise InputError(
            f"{space.names[i]!r} = {words[0]}, as trial {trials[row].id} was asked for{within}",
            f"{words[1]}",
            "Check that the rows are not mixed up. Tell a measurement at other inputs without a "
            "trial id, and fail() the trial."
            if _names_trials(frame)
            else "The frame's index was read as trial ids. Of data that were not asked for, tell "
            "frame.reset_index(drop=True).",
        )
    differs = (values != asked).any(1)
    for i, kind in enumerate(space.kinds):
        values[:, i] = kind.settled(values[:, i])
    return [(t.id, x) for t, x, off in zip(trials, values.tolist(), differs, strict=True) if off]


def read_told(
    frame: Any, space: Space, outcomes: OutcomeSet, history: TrialHistory
) -> Event | None:
    """The event of telling the rows of a user's frame; None if they are all known.

    Rows whose id is empty are measurements of one's own. One of these whose ``key`` was told before
    is that measurement. Inputs that differ from those that a trial was asked for are what was done.

    Raises:
        InputError, NoiseError, BoundsError: for invalid columns, ids or values.
        StateError: for an outcome that contradicts one told before.
    """
    frame = _measured(_checked(frame, space, outcomes.known_columns, LABELS), outcomes)
    labels, frame = _labels(frame, space, outcomes)
    if not len(frame):
        return None
    ids = _row_ids(frame, labels.get("key"), history)
    asked = np.array([id is not None for id in ids])
    named = find_trials([id for id in ids if id is not None], history)
    moved = _moved(frame[asked], space, named, exactly=False) if named else []
    running = history.with_status("running")
    own = [] if asked.all() else _own_trials(frame[~asked], space, history, running)
    of_asked, of_own = iter(named), iter(own)
    trials = [next(of_asked if known else of_own) for known in asked]
    new = map(partial(_new_entries, outcomes), trials, outcomes.read(frame, history.trials))
    event = _event("told", trials, new, labels)
    event["trials"] = [(t.id, t.place, t.inputs) for t in trials if t.id >= len(history.trials)]
    now = set(changed_ids(event))
    if done := [[id, x] for id, x in moved if id in now]:
        event["done"] = done
    return event if now or "notes" in event else None


def read_amended(
    frame: Any, space: Space, outcomes: OutcomeSet, history: TrialHistory
) -> Event | None:
    """The event of correcting outcomes, or notes, by a user's frame; None if nothing differs.

    Columns that are left out keep their values.

    Raises:
        InputError, NoiseError: for invalid columns, ids or values.
        StateError: for trials without an outcome.
    """
    frame = _checked(frame, space, outcomes.known_columns, LABELS)
    labels, frame = _labels(frame, space, outcomes)
    ids = _trial_ids(frame)
    if None in ids or not any(column in frame for column in outcomes.known_columns):
        raise InputError(
            f"trial ids, and a column among {', '.join(outcomes.known_columns)}",
            f"columns {', '.join(map(str, frame.columns))}",
            "Give the ids in the index or in a column trial, with the corrected outcomes.",
        )
    trials = find_trials(ids, history)
    _moved(frame, space, trials, exactly=True)
    rows = outcomes.read(_filled_in(frame, outcomes, trials), history.trials)
    event = _event("amended", trials, map(partial(_corrections, outcomes), trials, rows), labels)
    return event if event["outcomes"] or "notes" in event else None


def _event(
    kind: str,
    trials: Sequence[Trial],
    rows: Iterable[Mapping[str, Entry]],
    labels: Mapping[str, Sequence[str]],
) -> Event:
    """An event with new outcomes of trials by column, and with labels that they did not have."""
    outcomes: dict[str, list[Any]] = {}
    for trial, row in zip(trials, rows, strict=True):
        for column, entry in row.items():
            outcomes.setdefault(column, []).append((trial.id, *entry))
    event: Event = {"kind": kind, "outcomes": outcomes}
    for name, texts in labels.items():
        labelled = zip(trials, texts, strict=True)
        if new := [[t.id, text] for t, text in labelled if text and text != getattr(t, name)]:
            event[f"{name}s"] = new
    return event


def far_outcomes(
    history: TrialHistory, outcomes: OutcomeSet, ids: Iterable[int] | None = None
) -> list[int]:
    """Ids of outcomes that are hundreds of interquartile ranges away from the others.

    They are those of the only outcome that is no count; of others there are none.

    Args:
        history: All trials. Quartiles are those of at most a thousand outcomes.
        outcomes: What is measured.
        ids: Those to judge, which have an outcome; all by default.
    """
    if len(outcomes.measured) > 1 or type(outcomes.measured[0]) is not Outcome:
        return []
    (column,) = history.logs
    known = list(chain.from_iterable(history.logs[column].batches))
    values = [history.trials[id].entries[column][0] for id in known[:: len(known) // SAMPLED or 1]]
    if len(values) < FEWEST:
        return []
    first, middle, third = quantiles(values, n=4, method="inclusive")
    far = FAR * (third - first) if third > first else math.inf
    judged = known if ids is None else ids
    return [id for id in judged if abs(history.trials[id].entries[column][0] - middle) > far]


def _same(before: Entry, now: Entry) -> bool:
    """Whether two entries are equal up to the digits that a file may drop."""
    a, b = np.array([before, now], dtype=np.float64)
    return bool(np.isclose(a, b, rtol=1e-12, atol=0.0, equal_nan=True).all())


def _new_entries(
    outcomes: OutcomeSet, trial: Trial, row: Mapping[str, Entry]
) -> Mapping[str, Entry]:
    """The outcomes in a row that its trial was not told before.

    Raises:
        StateError: for an outcome that contradicts one told before, and of withdrawn trials.
    """
    gone = ", and that was withdrawn" if trial.status == "withdrawn" else ""
    for one in outcomes.measured:
        before, now = trial.entries.get(one.column), row.get(one.column)
        if before and now and not _same(before, now):
            raise StateError(
                f"the outcome {one.column!r} that trial {trial.id} was told before, "
                f"{one.text(before)}{gone}",
                one.text(now),
                "Correct it with amend(). Leave the value out, or tell it without a trial id as a "
                "new measurement.",
            )
    new = {column: entry for column, entry in row.items() if column not in trial.entries}
    if new and gone:
        got = f"trial {trial.id}{gone}"
        raise StateError("trials that are still measured", got, "Take it back with amend().")
    return new


def _corrections(
    outcomes: OutcomeSet, trial: Trial, row: Mapping[str, Entry]
) -> Mapping[str, Entry]:
    """The outcomes in a row that its trial was told otherwise; all of a withdrawn one."""
    if trial.status != "withdrawn":
        return {c: entry for c, entry in row.items() if not _same(trial.entries[c], entry)}
    row = {**trial.entries, **row}
    if len(row) < len(outcomes.measured):
        whole = f"all outcomes of trial {trial.id}, which was withdrawn"
        raise StateError(whole, ", ".join(row), "Give the others, too.")
    return row


def _filled_in(frame: pd.DataFrame, outcomes: OutcomeSet, trials: Sequence[Trial]) -> pd.DataFrame:
    """A frame of corrections, with the numbers of their outcomes that are kept.

    Raises:
        StateError: for outcomes that were not told yet.
    """
    for one in outcomes.measured:
        entries = [one.entry_of(trial) for trial in trials]
        filled = frame.reindex(columns=one.known_columns).notna().any(axis=1)
        cells = zip(trials, entries, filled, strict=True)
        new = [trial for trial, entry, cell in cells if cell and entry is None]
        untold = [trial.id for trial in new if trial.status != "withdrawn"]
        if untold:
            what = f"outcomes of trial {untold[0]} that were told"
            raise StateError(what, f"{one.column!r}, which was not", "Tell it with tell().")
        if filled.any():
            frame = frame.assign(**{c: v for c, v in one.shown(entries).items() if c not in frame})
    return frame


def _measured(frame: pd.DataFrame, outcomes: OutcomeSet) -> pd.DataFrame:
    """The rows that are not left out; a warning names the others."""
    kept = np.ones(len(frame), dtype=bool)
    for one in outcomes.measured:
        for what, rows in one.unmeasured(frame).items():
            kept &= ~rows
            if rows.any():
                named = ", ".join(map(str, frame.index[rows]))
                warnings.warn(f"Rows {what}, which are left out: {named}.", stacklevel=6)
    return frame if kept.all() else frame[kept]


def _labels(
    frame: pd.DataFrame, space: Space, outcomes: OutcomeSet
) -> tuple[dict[str, list[str]], pd.DataFrame]:
    """Keys and notes of rows as texts, empty where there are none; and the frame without them."""
    taken = {*space.names, *outcomes.known_columns}
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


def _row_ids(frame: pd.DataFrame, keys: Sequence[str] | None, history: TrialHistory) -> list[Any]:
    """The trial id of every row; None for a measurement of one's own whose key is new."""
    ids = _trial_ids(frame)
    if keys is None:
        return ids
    known = {trial.key: trial.id for trial in history.trials if trial.key is not None}
    own = [key for id, key in zip(ids, keys, strict=True) if id is None and key]
    twice = sorted({key for key in own if own.count(key) > 1})
    if twice:
        raise InputError("every key once", ", ".join(twice[:5]), "Leave out the duplicates.")
    return [known.get(key) if id is None else id for id, key in zip(ids, keys, strict=True)]
