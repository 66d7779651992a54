"""Trials of a campaign, and the events that a store records about them.

An event is plain data that can be stored as JSON:

- ``asked``: trials that one call of `ask` proposed, points chosen ahead for later calls, and which
  acquisition function chose them;
- ``told``: outcomes of trials, and new trials that were measured without being asked for;
- ``failed``: trials that gave no outcome, and the reason.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, NamedTuple, overload

import numpy as np

__all__ = [
    "Decision",
    "Event",
    "Points",
    "Trial",
    "TrialHistory",
    "TrialList",
    "asked_event",
    "failed_event",
    "told_event",
]

Event = dict[str, Any]
"""One of the three kinds of event, as plain data."""

Status = Literal["running", "told", "failed"]

Points = tuple[tuple[float, ...], ...]
"""Inputs of several trials in the user's units."""

RECENT = 0.3
"""Weight of the latest measurement in a running mean of seconds."""

BLOCK = 512
"""Trials in a block of a `TrialList`."""


class Trial(NamedTuple):
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
        asked_at: When it was asked for, in seconds since 1970, if that was recorded.
        size: Trials or exposure of a count.
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
    asked_at: float | None = None
    size: float | None = None


class Decision(NamedTuple):
    """Which acquisition function chose the latest trials.

    Attributes:
        acquisition: Its name.
        why: Why it was chosen, as a sentence.
    """

    acquisition: str
    why: str


class TrialList(Sequence[Trial]):
    """Trials by id. Immutable: a changed copy shares all blocks without a changed trial."""

    def __init__(self, blocks: tuple[tuple[Trial, ...], ...] = ()) -> None:
        self._blocks = blocks
        self._size = len(blocks[-1]) + BLOCK * (len(blocks) - 1) if blocks else 0

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, id: int) -> Trial: ...

    @overload
    def __getitem__(self, id: slice) -> list[Trial]: ...

    def __getitem__(self, id: int | slice) -> Trial | list[Trial]:
        if isinstance(id, slice):
            return [self[i] for i in range(*id.indices(self._size))]
        if not 0 <= id < self._size:
            raise IndexError(f"trial {id} of {self._size}")
        return self._blocks[id // BLOCK][id % BLOCK]

    def __iter__(self) -> Iterator[Trial]:
        return chain.from_iterable(self._blocks)

    def changed(self, trials: Iterable[Trial]) -> TrialList:
        """The list with changed trials, and new ones whose ids follow."""
        blocks: list[Any] = list(self._blocks)
        opened: set[int] = set()
        for trial in trials:
            number, place = divmod(trial.id, BLOCK)
            if number == len(blocks):
                blocks.append([])
                opened.add(number)
            elif number not in opened:
                blocks[number] = list(blocks[number])
                opened.add(number)
            blocks[number][place : place + 1] = [trial]
        for number in opened:
            blocks[number] = tuple(blocks[number])
        return TrialList(tuple(blocks))


@dataclass(frozen=True)
class TrialHistory:
    """All trials after a number of events. Immutable.

    Attributes:
        trials: Trials by id.
        running: Ids of the trials that are running.
        failed: Ids of the trials that have failed.
        num_asks: Number of calls of `ask`.
        ahead: Points that were chosen for later calls of `ask`.
        chosen_at: Number of outcomes when they were chosen.
        decision: Which acquisition function chose the latest trials; None before it is recorded.
        decision_seconds: Seconds that a measured decision takes, a running mean.
        evaluation_seconds: Seconds from asking for a batch to telling it, a running mean.
        batches: Ids of every batch of outcomes, in the order they were told.
        batch_ends: Number of outcomes at the end of every batch.
        num_events: Number of events.
    """

    trials: TrialList = field(default_factory=TrialList)
    running: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    num_asks: int = 0
    ahead: Points = ()
    chosen_at: int = 0
    decision: Decision | None = None
    decision_seconds: float | None = None
    evaluation_seconds: float | None = None
    batches: tuple[tuple[int, ...], ...] = ()
    batch_ends: tuple[int, ...] = ()
    num_events: int = 0

    def extended(self, events: list[Event]) -> TrialHistory:
        """The history with further events: O(trials in them), and a little for every 512 trials."""
        if not events:
            return self
        trials, asks, ahead, decision = self.trials, self.num_asks, self.ahead, self.decision
        chosen_at = self.chosen_at
        needed, waited = self.decision_seconds, self.evaluation_seconds
        running, failed = set(self.running), set(self.failed)
        batches, ends = list(self.batches), list(self.batch_ends)
        for event in events:
            if event["kind"] == "asked":
                new = event["trials"]
                rest = (None, None, None, event.get("at"))
                trials = trials.changed(
                    Trial(id, tuple(x), place, "running", asks, event["by"], *rest)
                    for id, place, x in new
                )
                running.update(row[0] for row in new)
                if "taken" not in event:
                    chosen_at = ends[-1] if ends else 0
                ahead = _ahead_after(ahead, event)
                decision = Decision(*event["decision"]) if event.get("decision") else decision
                needed = _mean(needed, event.get("seconds"))
                asks += 1
            elif event["kind"] == "told":
                trials = trials.changed(Trial(id, tuple(x), p) for id, p, x in event["trials"])
                told = [
                    trials[id]._replace(
                        status="told", y=y, yvar=yvar, reason=None, size=size[0] if size else None
                    )
                    for id, y, yvar, *size in event["values"]
                ]
                trials = trials.changed(told)
                if told:
                    since = [t.asked_at for t in told if t.asked_at is not None]
                    waited = _mean(waited, event["at"] - min(since) if since else None)
                    batches.append(tuple(trial.id for trial in told))
                    ends.append(len(told) + (ends[-1] if ends else 0))
                    running.difference_update(batches[-1])
                    failed.difference_update(batches[-1])
            else:
                lost = [
                    trials[id]._replace(status="failed", reason=reason)
                    for id, reason in event["reasons"]
                ]
                trials = trials.changed(lost)
                running.difference_update(trial.id for trial in lost)
                failed.update(trial.id for trial in lost)
        return TrialHistory(
            trials,
            frozenset(running),
            frozenset(failed),
            asks,
            ahead,
            chosen_at,
            decision,
            needed,
            waited,
            tuple(batches),
            tuple(ends),
            self.num_events + len(events),
        )

    def with_status(self, status: Literal["running", "failed"]) -> list[Trial]:
        """Trials that are running or have failed, by id: O(their number)."""
        ids = self.running if status == "running" else self.failed
        return [self.trials[id] for id in sorted(ids)]

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


def _ahead_after(ahead: Points, event: Event) -> Points:
    """Points chosen ahead after an event of asking: the rest of them, or those of a new choice."""
    if "taken" in event:
        return ahead[event["taken"] :]
    return tuple(map(tuple, event.get("ahead", ())))


def _mean(before: float | None, seconds: float | None) -> float | None:
    """A running mean of seconds with one more measurement, if there is one."""
    if before is None or seconds is None:
        return before if seconds is None else seconds
    return (1.0 - RECENT) * before + RECENT * seconds


def asked_event(
    history: TrialHistory,
    inputs: np.ndarray,
    places: list[int] | None,
    by: str | None = None,
    *,
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
        ahead: Points chosen for later calls of `ask`, in place of those of before.
        taken: Without ``ahead``: number of the points chosen ahead that are among the new trials.
        decision: Which acquisition function chose them, if that has changed.
        seconds: What the decision took, if it was measured for the choice between two functions.
    """
    new = _new_rows(history, inputs, places)
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


def failed_event(reasons: list[tuple[int, str]]) -> Event:
    """The event of trials that gave no outcome, with ids and reasons."""
    return {"kind": "failed", "reasons": [list(row) for row in reasons]}


def _new_rows(
    history: TrialHistory, inputs: np.ndarray, places: list[int] | None
) -> list[tuple[Any, ...]]:
    rows: list[int] | list[None] = [None] * len(inputs) if places is None else places
    return list(zip(history.next_ids(len(inputs)), rows, _rows(inputs), strict=True))


def _rows(inputs: np.ndarray) -> list[tuple[float, ...]]:
    """Rows as tuples of numbers, which the garbage collector need not look into."""
    return list(map(tuple, inputs.tolist()))
