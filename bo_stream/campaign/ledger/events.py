"""The events of a campaign's ledger, from which everything else follows.

An event is plain data that can be stored as JSON. Events are only added; one that corrects another
keeps the old value. Their kinds:

- ``asked``: trials that one call of `ask` proposed, after those that were enqueued before and are
  taken now, points chosen ahead for later calls, and which acquisition function chose them;
- ``told``: outcomes of trials, and new trials that were measured without being asked for; if there
  are any, ``notes`` and ``keys`` of trials, and the inputs that were ``done`` in place of those
  asked for;
- ``failed``: trials that gave no outcome, and the reason;
- ``amended``: corrected outcomes of trials, and those of before;
- ``withdrawn``: trials from which nothing is learned any more, and the reason;
- ``changed``: settings that differ from now on, and their values before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bo_stream.campaign.ledger.trial_history import TrialHistory
from bo_stream.campaign.ledger.trials import Decision, Event, Trial

__all__ = [
    "amended_event",
    "asked_event",
    "changed_event",
    "failed_event",
    "told_event",
    "told_ids",
    "told_in_parts",
    "withdrawn_event",
]


def asked_event(
    history: TrialHistory,
    inputs: np.ndarray,
    places: list[int] | None,
    by: str | None = None,
    *,
    enqueued: Sequence[Trial] = (),
    ahead: np.ndarray | None = None,
    taken: int = 0,
    decision: Decision | None = None,
    seconds: float | None = None,
) -> Event:
    """The event of proposing trials.

    Args:
        history: All trials before the event.
        inputs: Inputs of the new trials.
        places: Their rows of the pool, in a pool.
        by: Identifier of the program that evaluates them.
        enqueued: Earlier trials that it takes as well.
        ahead: Points chosen for later calls of `ask`, in place of those of before.
        taken: Without ``ahead``: number of the points chosen ahead that are among the new trials.
        decision: Which acquisition function chose them, if that has changed.
        seconds: What the decision took, if it was measured for the choice between two functions.
    """
    new: list[Any] = [[trial.id, trial.place, trial.inputs] for trial in enqueued]
    new += _new_rows(history, inputs, places)
    event: Event = {"kind": "asked", "trials": new, "by": by, "at": time.time()}
    event |= {"taken": taken} if ahead is None else {"ahead": _rows(ahead)}
    if decision is not None:
        event["decision"] = list(decision)
    return event if seconds is None else {**event, "seconds": seconds}


def told_event(
    history: TrialHistory,
    values: Sequence[tuple[Any, ...]],
    inputs: np.ndarray,
    places: list[int] | None,
) -> Event:
    """The event of telling outcomes.

    Args:
        history: All trials before the event.
        values: Id, outcome, noise variance, and for counts their size. The id is None for a trial
            that was not asked for.
        inputs: Inputs of the trials without id, in the same order.
        places: Their rows of the pool, in a pool.
    """
    new = _new_rows(history, inputs, places)
    ids = iter(new)
    rows = [(next(ids)[0] if id is None else id, *told) for id, *told in values]
    return {"kind": "told", "trials": new, "values": rows, "at": time.time()}


def told_in_parts(
    history: TrialHistory, event: Event, complete: Callable[[Mapping[str, Any]], bool]
) -> Event:
    """The event of telling or amending with outcomes by column.

    Args:
        history: All trials before the event.
        event: An event whose values are ids and outcomes by column.
        complete: Whether a trial with these outcomes has all.
    """
    parts: dict[str, list[Any]] = {}
    before: dict[str, list[Any]] = {}
    done = []
    for id, told in event["values"]:
        known = history.trials[id].parts if id < len(history.trials) else None
        if complete({**(known or {}), **told}):
            done.append([id, None, None])
        for column, (y, yvar) in told.items():
            parts.setdefault(column, []).append([id, y, yvar])
            if known and column in known:
                before.setdefault(column, []).append([id, *known[column]])
    old = {"before": before} if "before" in event else {}
    return {**event, "values": done, "parts": parts, **old}


def told_ids(event: Event | None) -> list[int]:
    """Ids of the trials of which an event tells or amends outcomes."""
    if event is None:
        return []
    rows = [row for rows in event.get("parts", {}).values() for row in rows]
    return list(dict.fromkeys(row[0] for row in [*event["values"], *rows]))


def failed_event(reasons: list[tuple[int, str]]) -> Event:
    """The event of trials that gave no outcome, with ids and reasons."""
    return {"kind": "failed", "reasons": [list(row) for row in reasons]}


def amended_event(history: TrialHistory, values: Sequence[tuple[Any, ...]]) -> Event:
    """The event of correcting outcomes; it keeps those of before.

    Args:
        history: All trials before the event.
        values: Id, outcome, noise variance, and for counts their size.
    """
    before = [_outcome(history.trials[row[0]], len(row)) for row in values]
    return {
        "kind": "amended",
        "values": [list(row) for row in values],
        "before": before,
        "at": time.time(),
    }


def withdrawn_event(history: TrialHistory, reasons: list[tuple[int, str]]) -> Event:
    """The event of removing trials from what is learned, with ids, reasons and earlier statuses."""
    before = [[id, history.trials[id].status, history.trials[id].reason] for id, _ in reasons]
    rows = [list(row) for row in reasons]
    return {"kind": "withdrawn", "reasons": rows, "before": before, "at": time.time()}


def changed_event(before: dict[str, Any], after: dict[str, Any]) -> Event | None:
    """The event of changing settings, with those that differ; None if none does.

    Args:
        before: All settings as plain data.
        after: Those from now on.
    """
    differ = [name for name in after if after[name] != before.get(name)]
    if not differ:
        return None
    new, old = ({name: plain.get(name) for name in differ} for plain in (after, before))
    return {"kind": "changed", "settings": new, "before": old, "at": time.time()}


def _outcome(trial: Trial, length: int) -> list[Any]:
    """A trial's id and outcome as in a told event."""
    return [trial.id, trial.y, trial.yvar, trial.size][:length]


def _new_rows(
    history: TrialHistory, inputs: np.ndarray, places: list[int] | None
) -> list[tuple[Any, ...]]:
    rows: list[int] | list[None] = [None] * len(inputs) if places is None else places
    return list(zip(history.next_ids(len(inputs)), rows, _rows(inputs), strict=True))


def _rows(inputs: np.ndarray) -> list[tuple[float, ...]]:
    """Rows as tuples of numbers, which the garbage collector need not look into."""
    return list(map(tuple, inputs.tolist()))
