"""Rows that people tell: with ids and without in one frame, with keys, notes and done inputs."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Iterable
from statistics import quantiles
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_scalar

from bo_stream.campaign.ledger.events import amended_event, told_event
from bo_stream.campaign.ledger.trial_frames import (
    Columns,
    as_asked,
    check_inputs,
    find_trials,
    given_ids,
    names_trials,
    read_corrections,
    read_outcomes,
    shown_labels,
)
from bo_stream.campaign.ledger.trial_history import TrialHistory
from bo_stream.campaign.ledger.trials import Event, Trial
from bo_stream.campaign.outcomes.count_outcomes import CountOutcome
from bo_stream.campaign.space import Pool, Space
from bo_stream.errors import InputError

__all__ = ["far_outcomes", "read_amended", "read_told"]

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
    ids = _row_ids(frame, labels.get("key"), history)
    asked = [i for i, id in enumerate(ids) if id is not None]
    own = [i for i, id in enumerate(ids) if id is None]
    values: list[tuple[Any, ...]] = []
    inputs = np.empty((0, space.dim))
    places: list[int] | None = [] if isinstance(space, Pool) else None
    done: list[tuple[int, list[float]]] = []
    if asked:
        part, named = frame.iloc[asked] if own else frame, [ids[i] for i in asked]
        trials = find_trials(named, history)
        if not names_trials(frame):
            check_inputs(part, space, trials)
        done = _done(part, space, trials)
        read = not isinstance(space, Pool)
        values, _, _ = read_outcomes(part, columns, history, named, inputs_read=read)
    if own:
        mine, inputs, places = read_outcomes(frame.iloc[own], columns, history, None)
        values = [*values, *mine]
        new = iter(history.next_ids(len(inputs)))
        for i, row in zip(own, mine, strict=True):
            ids[i] = next(new) if row[0] is None else row[0]
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
    trials, batches, ends = history.trials, history.batches, history.batch_ends
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


def _with_counts(frame: pd.DataFrame, counts: CountOutcome | None) -> pd.DataFrame:
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
