"""Frames that users hand over, read as trials: whose outcome a row is, and whether it can be taken.

Nothing here changes anything: a frame is refused before a campaign does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from bo_stream.campaign.space import Pool, Space, numbers
from bo_stream.campaign.trials import Ledger, Trial
from bo_stream.errors import InputError, NoiseError, StateError

__all__ = [
    "Outcomes",
    "asked_about",
    "asked_frame",
    "known_ids",
    "new_trials",
    "outcomes",
    "trials_frame",
]

OWN = ("trial", "place", "y", "yvar", "status", "reason", "ask")
CLOSE = 1e-9

Outcomes = tuple[list[tuple[int | None, float, float | None]], np.ndarray, list[int] | None]
"""Values as `bo_stream.campaign.trials.told` takes them, inputs and places of new trials."""


def outcomes(frame: pd.DataFrame, space: Space, ledger: Ledger) -> Outcomes:
    """What a frame tells that the ledger does not know yet.

    Rows are told apart by the trial's id, in the index (named ``trial``, or anything but a plain
    range) or in a column ``trial``. Rows without ids are trials that nobody asked for, but for
    those at exactly the inputs of a trial under way.

    Raises:
        InputError, NoiseError: on columns, ids or values that do not fit.
        StateError: on an outcome that contradicts one told before.
    """
    _check_columns(frame, space)
    y = numbers(frame, "y")
    yvar = _noise(frame, ledger)
    ids = _ids(frame)
    if ids is None:
        inputs, places = _inputs(frame, space)
        found = _running_at(ledger, inputs, places)
        new = [i for i, id in enumerate(found) if id is None]
        _check_free(space, ledger, [] if places is None else [places[i] for i in new])
        values = list(zip(found, y.tolist(), yvar, strict=True))
        return values, inputs[new], None if places is None else [places[i] for i in new]
    trials = known_ids(ids, ledger)
    _check_inputs(frame, space, trials)
    kept: list[tuple[int | None, float, float | None]] = []
    for trial, value, variance in zip(trials, y.tolist(), yvar, strict=True):
        if trial.status != "told":
            kept.append((trial.id, value, variance))
        elif not (_same(trial.y, value) and _same(trial.yvar, variance)):
            raise StateError(
                f"the outcome that trial {trial.id} was told before, {trial.y!r}",
                f"{value!r}",
                "Leave the row out; or tell it without a trial id, as a measurement of its own.",
            )
    return kept, np.empty((0, space.dim)), None if not isinstance(space, Pool) else []


def new_trials(
    frame: pd.DataFrame, space: Space, ledger: Ledger
) -> tuple[np.ndarray, list[int] | None]:
    """Inputs and places of trials that a frame is about, none of them known yet.

    Raises:
        InputError: on columns or values that do not fit.
    """
    _check_columns(frame, space)
    inputs, places = _inputs(frame, space)
    _check_free(space, ledger, places or [])
    return inputs, places


def asked_about(ids: Any, reason: Any) -> list[Any]:
    """The ids of trials that failed: one, or several.

    Raises:
        InputError: unless they come with a reason in words.
    """
    wanted = [ids] if isinstance(ids, int | np.integer) else ids
    if not isinstance(wanted, Iterable) or not isinstance(reason, str) or not reason.strip():
        raise InputError(
            "ids of trials, and the reason in words", f"{ids!r}, {reason!r}", "Say why."
        )
    return list(wanted)


def known_ids(ids: Iterable[Any], ledger: Ledger) -> list[Trial]:
    """The trials of some ids.

    Raises:
        InputError: for ids that are none, or that come twice.
    """
    wanted = list(ids)
    whole = [not isinstance(id, bool) and isinstance(id, int | np.integer) for id in wanted]
    unknown = [
        id for id, ok in zip(wanted, whole, strict=True) if not ok or int(id) not in ledger.trials
    ]
    if unknown:
        raise InputError(
            f"ids of trials, 0 to {len(ledger.trials) - 1}" if ledger.trials else "no trial yet",
            ", ".join(map(repr, unknown[:5])),
            "Use the index that ask() gave; rows that nobody asked for come without an id.",
        )
    if len(set(wanted)) < len(wanted):
        raise InputError("each trial once", f"{wanted}", "Leave out the duplicates.")
    return [ledger.trials[int(id)] for id in wanted]


def asked_frame(trials: list[Trial], space: Space) -> pd.DataFrame:
    """Trials as `ask` returns them: inputs by name, the index is the trial's id."""
    index = pd.Index([trial.id for trial in trials], name="trial", dtype="int64")
    values = np.array([trial.inputs for trial in trials], dtype=np.float64)
    frame = pd.DataFrame(values.reshape(-1, space.dim), index, list(space.names))
    if isinstance(space, Pool):
        places = [space.table.index[trial.place] for trial in trials]  # type: ignore[index]
        frame.insert(0, "place", pd.Series(places, index, dtype=space.table.index.dtype))
    return frame


def trials_frame(trials: list[Trial], space: Space) -> pd.DataFrame:
    """Trials with all that is known of them, one row each."""
    frame = asked_frame(trials, space)
    frame["y"] = np.array([np.nan if t.y is None else t.y for t in trials], dtype=np.float64)
    if any(t.yvar is not None for t in trials):
        noise = [np.nan if t.yvar is None else t.yvar for t in trials]
        frame["yvar"] = np.array(noise, dtype=np.float64)
    frame["status"] = pd.Series([t.status for t in trials], frame.index, dtype="str")
    frame["ask"] = pd.array([t.ask for t in trials], dtype="Int64")
    frame["reason"] = pd.Series([t.reason for t in trials], frame.index, dtype="str")
    return frame


def _check_columns(frame: Any, space: Space) -> None:
    if not isinstance(frame, pd.DataFrame):
        raise InputError(
            "a DataFrame of one row a trial", type(frame).__name__, "Use the frame of ask()."
        )
    if not len(frame):
        raise InputError("at least one row", "none", "There is nothing to tell.")
    known = {*space.names, *OWN}
    extra = [str(c) for c in frame.columns if c not in known]
    if extra:
        raise InputError(
            f"columns among {', '.join([*space.names, 'y', 'yvar'])}",
            f"{', '.join(extra)} besides",
            "Drop them: frame.drop(columns=...).",
        )


def _inputs(frame: pd.DataFrame, space: Space) -> tuple[np.ndarray, list[int] | None]:
    """Inputs of a frame's rows, and places in a pool."""
    if not isinstance(space, Pool):
        return space.values(frame), None
    places = space.places(frame)
    return space.place_values[places], places


def _noise(frame: pd.DataFrame, ledger: Ledger) -> list[float | None]:
    given, known = "yvar" in frame, ledger.noise_known
    if known is not None and given != known:
        raise NoiseError(
            f"outcomes {'with' if known else 'without'} a column 'yvar', as before",
            f"{'one' if given else 'none'}",
            "Noise is known for all outcomes of a campaign or for none of them.",
        )
    if not given:
        return [None] * len(frame)
    variances = numbers(frame, "yvar")
    if (variances <= 0.0).any():
        raise NoiseError(
            "positive noise variances in 'yvar'", f"{variances.min():g}", "Give variances."
        )
    return variances.tolist()


def _ids(frame: pd.DataFrame) -> list[Any] | None:
    """Trial ids, or None for rows that come without."""
    if "trial" in frame:
        return frame["trial"].tolist()
    if frame.index.name == "trial" or not isinstance(frame.index, pd.RangeIndex):
        return frame.index.tolist()
    return None


def _running_at(ledger: Ledger, inputs: np.ndarray, places: list[int] | None) -> list[int | None]:
    """Ids of trials under way at exactly these inputs, each used once."""

    def written(x: Iterable[float]) -> tuple[str, ...]:
        return tuple(f"{value:.12g}" for value in x)  # a file may have cost the last digits

    waiting: dict[Any, list[int]] = {}
    for trial in ledger.of("running"):
        key = written(trial.inputs) if places is None else trial.place
        waiting.setdefault(key, []).append(trial.id)
    keys: list[Any] = [written(x) for x in inputs.tolist()] if places is None else list(places)
    return [waiting[key].pop(0) if waiting.get(key) else None for key in keys]


def _same(before: float | None, now: float | None) -> bool:
    """Whether an outcome is the one told before, but for digits that a file may have cost."""
    if before is None or now is None:
        return before is now
    return math.isclose(before, now, rel_tol=1e-12)


def _check_free(space: Space, ledger: Ledger, places: list[int]) -> None:
    """Refuse places measured before, where that is once and for all."""
    if not isinstance(space, Pool) or space.repeats:
        return
    taken = {trial.place for trial in ledger.of("told")}
    again = [p for i, p in enumerate(places) if p in taken or p in places[:i]]
    if again:
        raise InputError(
            "places that were not measured before",
            ", ".join(str(space.table.index[p]) for p in again[:5]),
            "Leave them out, or use Pool(..., repeats=True).",
        )


def _check_inputs(frame: pd.DataFrame, space: Space, trials: list[Trial]) -> None:
    """Refuse inputs that are not those the trials were asked at."""
    for i, name in enumerate(space.names):
        if name not in frame:
            continue
        values = numbers(frame, name)
        asked = np.array([trial.inputs[i] for trial in trials])
        off = np.abs(values - asked) > CLOSE * np.maximum(np.abs(asked), 1e-300)
        if off.any():
            row = int(off.argmax())
            raise InputError(
                f"{name!r} = {asked[row]!r}, where trial {trials[row].id} was asked",
                f"{values[row]!r}",
                "Tell what was measured elsewhere without a trial id, and fail() the trial.",
            )
    if isinstance(space, Pool) and "place" in frame:
        wrong = [t.id for t, p in zip(trials, space.places(frame), strict=True) if t.place != p]
        if wrong:
            raise InputError(
                "the places that the trials were asked at", f"others for {wrong}", "Correct them."
            )
