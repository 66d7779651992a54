"""The ledger of a campaign: every trial, made of the events that were recorded, in their order.

An event is plain data, so that a store can keep it as JSON:

- ``asked``: trials to be measured, as one call of `ask` proposed them;
- ``told``: outcomes of trials, and trials that nobody asked for;
- ``failed``: trials that gave no value, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

__all__ = ["Event", "Ledger", "Trial", "asked", "failed", "told"]

Event = dict[str, Any]
"""One of the three kinds, JSON all through."""

Status = Literal["running", "told", "failed"]


@dataclass(frozen=True)
class Trial:
    """One measurement: proposed, under way, done or failed.

    Attributes:
        id: Its number, from 0.
        inputs: In the user's units.
        place: Row of the pool; None in a box.
        status: ``running``, ``told`` or ``failed``.
        ask: Number of the call of `ask` that proposed it; None if nobody asked.
        by: What runs it, where a program said so.
        y: The outcome.
        yvar: Its noise variance, where known.
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
class Ledger:
    """All trials so far; never changed, only followed by another one.

    Attributes:
        trials: By id.
        asks: How many calls of `ask` were recorded.
        batches: Ids as they were told, batch by batch, in order.
        ends: How many outcomes were told with the end of each batch.
        seen: How many events were recorded.
    """

    trials: Mapping[int, Trial] = field(default_factory=dict)
    asks: int = 0
    batches: tuple[tuple[int, ...], ...] = ()
    ends: tuple[int, ...] = ()
    seen: int = 0

    def after(self, events: list[Event]) -> Ledger:
        """The ledger with these events added."""
        if not events:
            return self
        trials, asks = dict(self.trials), self.asks
        batches, ends = list(self.batches), list(self.ends)
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
        return Ledger(trials, asks, tuple(batches), tuple(ends), self.seen + len(events))

    def of(self, *statuses: Status) -> list[Trial]:
        """Trials of these statuses, by id."""
        return [trial for trial in self.trials.values() if trial.status in statuses]

    @property
    def told(self) -> int:
        """How many outcomes are known."""
        return self.ends[-1] if self.ends else 0

    @property
    def noise_known(self) -> bool | None:
        """Whether outcomes come with a noise variance; None before the first one."""
        if not self.batches:
            return None
        return self.trials[self.batches[0][0]].yvar is not None

    def next_ids(self, count: int) -> range:
        """Ids for new trials."""
        return range(len(self.trials), len(self.trials) + count)


def asked(
    ledger: Ledger, inputs: np.ndarray, places: list[int] | None, by: str | None = None
) -> Event:
    """The event of proposing trials."""
    return {"kind": "asked", "trials": _new(ledger, inputs, places), "by": by}


def told(
    ledger: Ledger,
    values: list[tuple[int | None, float, float | None]],
    inputs: np.ndarray,
    places: list[int] | None,
) -> Event:
    """The event of telling outcomes.

    Args:
        ledger: The one it follows.
        values: Id, outcome and noise variance; ids are None for trials that nobody asked for, whose
            inputs follow in the same order.
        inputs: Of those.
        places: Of those, in a pool.
    """
    new = _new(ledger, inputs, places)
    ids = iter(new)
    rows = [(next(ids)[0] if id is None else id, y, yvar) for id, y, yvar in values]
    return {"kind": "told", "trials": new, "values": [list(row) for row in rows]}


def failed(reasons: list[tuple[int, str]]) -> Event:
    """The event of trials that gave no value."""
    return {"kind": "failed", "reasons": [list(row) for row in reasons]}


def _new(ledger: Ledger, inputs: np.ndarray, places: list[int] | None) -> list[list[Any]]:
    rows: list[int] | list[None] = [None] * len(inputs) if places is None else places
    ids = ledger.next_ids(len(inputs))
    return [[i, row, x.tolist()] for i, row, x in zip(ids, rows, inputs, strict=True)]
