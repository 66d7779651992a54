"""Trials of a campaign, and the events that a store records about them.

An event is plain data that can be stored as JSON:

- ``asked``: trials that one call of `ask` proposed;
- ``told``: outcomes of trials, and new trials that were measured without being asked for;
- ``failed``: trials that gave no outcome, and the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

__all__ = ["Event", "Trial", "TrialHistory", "asked_event", "failed_event", "told_event"]

Event = dict[str, Any]
"""One of the three kinds of event, as plain data."""

Status = Literal["running", "told", "failed"]


@dataclass(frozen=True)
class Trial:
    """One measurement.

    Attributes:
        id: Number of the trial, from 0.
        inputs: Its inputs in the user's units.
        place: Row of the pool; None in a box.
        status: ``running`` (asked for, no outcome yet), ``told`` or ``failed``.
        ask: Number of the call of `ask` that proposed it; None if it was not asked for.
        by: Identifier of the program that evaluates it, if that gave one.
        y: The outcome.
        yvar: Noise variance of the outcome, if known.
        reason: Why it failed.
    """

    id: int
    inputs: tuple[float, ...]
    place: int | None
    status: Status = "running"
    ask: int | None = None
    by: str | None = None
    y: float | None = None
    yvar: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class TrialHistory:
    """All trials after a number of events. Immutable.

    Attributes:
        trials: Trials by id.
        num_asks: Number of calls of `ask`.
        batches: Ids of every batch of outcomes, in the order they were told.
        batch_ends: Number of outcomes at the end of every batch.
        num_events: Number of events.
    """

    trials: Mapping[int, Trial] = field(default_factory=dict)
    num_asks: int = 0
    batches: tuple[tuple[int, ...], ...] = ()
    batch_ends: tuple[int, ...] = ()
    num_events: int = 0

    def extended(self, events: list[Event]) -> TrialHistory:
        """The history with further events."""
        if not events:
            return self
        trials, asks = dict(self.trials), self.num_asks
        batches, ends = list(self.batches), list(self.batch_ends)
        for event in events:
            if event["kind"] == "asked":
                for id, place, inputs in event["trials"]:
                    trials[id] = Trial(id, tuple(inputs), place, ask=asks, by=event["by"])
                asks += 1
            elif event["kind"] == "told":
                for id, place, inputs in event["trials"]:
                    trials[id] = Trial(id, tuple(inputs), place)
                for id, y, yvar in event["values"]:
                    trials[id] = replace(trials[id], status="told", y=y, yvar=yvar, reason=None)
                if event["values"]:
                    batches.append(tuple(id for id, _, _ in event["values"]))
                    ends.append(len(batches[-1]) + (ends[-1] if ends else 0))
            else:
                for id, reason in event["reasons"]:
                    trials[id] = replace(trials[id], status="failed", reason=reason)
        count = self.num_events + len(events)
        return TrialHistory(trials, asks, tuple(batches), tuple(ends), count)

    def with_status(self, *statuses: Status) -> list[Trial]:
        """Trials of these statuses, by id."""
        return [trial for trial in self.trials.values() if trial.status in statuses]

    @property
    def num_told(self) -> int:
        """Number of outcomes."""
        return self.batch_ends[-1] if self.batch_ends else 0

    @property
    def noise_known(self) -> bool | None:
        """Whether outcomes come with a noise variance; None before the first outcome."""
        if not self.batches:
            return None
        return self.trials[self.batches[0][0]].yvar is not None

    def next_ids(self, count: int) -> range:
        """Ids for new trials."""
        return range(len(self.trials), len(self.trials) + count)


def asked_event(
    history: TrialHistory, inputs: np.ndarray, places: list[int] | None, by: str | None = None
) -> Event:
    """The event of proposing trials."""
    return {"kind": "asked", "trials": _new_rows(history, inputs, places), "by": by}


def told_event(
    history: TrialHistory,
    values: list[tuple[int | None, float, float | None]],
    inputs: np.ndarray,
    places: list[int] | None,
) -> Event:
    """The event of telling outcomes.

    Args:
        history: All trials before the event.
        values: Id, outcome and noise variance. The id is None for a trial that was not asked for.
        inputs: Inputs of the trials without id, in the same order.
        places: Their rows of the pool, in a pool.
    """
    new = _new_rows(history, inputs, places)
    ids = iter(new)
    rows = [(next(ids)[0] if id is None else id, y, yvar) for id, y, yvar in values]
    return {"kind": "told", "trials": new, "values": [list(row) for row in rows]}


def failed_event(reasons: list[tuple[int, str]]) -> Event:
    """The event of trials that gave no outcome, with ids and reasons."""
    return {"kind": "failed", "reasons": [list(row) for row in reasons]}


def _new_rows(
    history: TrialHistory, inputs: np.ndarray, places: list[int] | None
) -> list[list[Any]]:
    rows: list[int] | list[None] = [None] * len(inputs) if places is None else places
    ids = history.next_ids(len(inputs))
    return [[i, row, x.tolist()] for i, row, x in zip(ids, rows, inputs, strict=True)]
