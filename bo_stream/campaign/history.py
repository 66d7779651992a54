"""All trials of a campaign as its events left them: the events, and what is learned from them.

An event is plain data that can be stored as JSON. Events are only added, so that old values are
kept in those before. Their kinds:

- ``asked``: trials that one call of `ask` proposed, after those that were enqueued before and are
  taken now, points chosen ahead for later calls, and which acquisition function chose them;
- ``told``: ``outcomes`` of trials by column, and new trials that were measured without being asked
  for; if there are any, ``notes`` and ``keys`` of trials, and the inputs that were ``done`` in
  place of those asked for;
- ``failed``: trials that gave no outcome, and the reason;
- ``amended``: corrected outcomes of trials by column;
- ``withdrawn``: trials from which nothing is learned any more, and the reason;
- ``changed``: settings that differ from now on.

Each has the time ``at`` which it was stored, in seconds.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, repeat
from typing import Any, Literal, NamedTuple

from bo_stream.errors import StateError

__all__ = [
    "Decision",
    "ENQUEUED",
    "Entry",
    "Event",
    "Log",
    "Points",
    "Status",
    "Trial",
    "TrialHistory",
    "asked_event",
    "changed_ids",
]

Event = dict[str, Any]
"""An event as plain data; see `bo_stream.campaign.history`."""

Entry = tuple[float, float | None]
"""What a trial has of an outcome: a value and its noise variance, if that is known, or a count and
its trials or exposure."""

Status = Literal["running", "told", "failed", "withdrawn"]

ENQUEUED = "enqueued"
"""In place of the program that evaluates a trial, while none has taken it."""

Points = tuple[tuple[float, ...], ...]
"""Inputs of several trials in the user's units."""


class Trial(NamedTuple):
    """One measurement.

    Attributes:
        id: Number of the trial, from 0.
        inputs: Its inputs in the user's units.
        place: Row of the pool; None in a box.
        status: ``running`` (asked for, no outcome yet), ``told``, ``failed`` or ``withdrawn``.
        ask: Number of the call of `ask` that proposed it; None if it was not asked for.
        by: Identifier of the program that evaluates it, if that gave one; `ENQUEUED` until one has
            taken a trial of the user's choice.
        entries: Its outcomes so far, by column.
        reason: Why it failed or was withdrawn.
        note: Note of the user.
        key: Name of the measurement, by which it is recognised when it is told again.
    """

    id: int
    inputs: tuple[float, ...]
    place: int | None
    status: Status = "running"
    ask: int | None = None
    by: str | None = None
    entries: Mapping[str, Entry] = {}
    reason: str | None = None
    note: str | None = None
    key: str | None = None


class Decision(NamedTuple):
    """Which acquisition function chose the latest trials.

    Attributes:
        acquisition: Its name.
        why: Why it was chosen, as a sentence.
    """

    acquisition: str
    why: str


RESTARTING = {"space", "surrogate"}
"""Settings after whose change the surrogate is built anew."""


@dataclass
class Log:
    """The trials that have an outcome, batch by batch, as a surrogate learns from them.

    Attributes:
        batches: Ids of every batch, in the order they were told; a batch whose trials were
            withdrawn is empty.
        ends: Number of outcomes at the end of every batch.
        revision: Number of the latest event that changed earlier outcomes, or the settings of the
            surrogate; 0 if there is none.
        revised_at: Number of batches before that event.
        restarted: Number of the latest event after which the surrogate is built anew.
    """

    batches: list[tuple[int, ...]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    revision: int = 0
    revised_at: int = 0
    restarted: int = 0

    @property
    def size(self) -> int:
        """Number of outcomes."""
        return self.ends[-1] if self.ends else 0

    def copy(self) -> Log:
        """A log that grows without this one."""
        return replace(self, batches=list(self.batches), ends=list(self.ends))

    def add(self, ids: Iterable[int]) -> None:
        """Add a batch, unless it is empty."""
        batch = tuple(ids)
        if batch:
            self.ends.append(self.size + len(batch))
            self.batches.append(batch)

    def revise(self, number: int) -> None:
        """Note that an event, by its number, changed what the surrogate follows from."""
        self.revision, self.revised_at = number, len(self.batches)

    def remove(self, ids: Container[int], number: int) -> None:
        """Take out trials, by the event of this number."""
        before = self.size
        self.batches = [tuple(id for id in batch if id not in ids) for batch in self.batches]
        self.ends = list(accumulate(map(len, self.batches)))
        if self.size < before:
            self.revise(number)


@dataclass
class TrialHistory:
    """All trials after a number of events; `extended` gives another one.

    Attributes:
        trials: Trials by id.
        unfinished: Ids of those that are running or have failed.
        num_asks: Number of calls of `ask`.
        ahead: Points that were chosen for later calls of `ask`.
        chosen_at: Number of outcomes when they were chosen.
        decision: Which acquisition function chose the latest trials; None before it is recorded.
        logs: The trials that have an outcome, by its column.
        completed: The trials of which it is known whether they have all outcomes or failed.
        num_events: Number of events.
        changes: Settings that were changed, in order.
    """

    trials: list[Trial] = field(default_factory=list)
    unfinished: set[int] = field(default_factory=set)
    num_asks: int = 0
    ahead: Points = ()
    chosen_at: int = 0
    decision: Decision | None = None
    logs: dict[str, Log] = field(default_factory=lambda: {"y": Log()})
    completed: Log = field(default_factory=Log)
    num_events: int = 0
    changes: tuple[dict[str, Any], ...] = ()

    def extended(self, events: list[Event]) -> TrialHistory:
        """The history with further events.

        Cost: O(all trials), about 10 microseconds for a thousand of them.

        Raises:
            StateError: for an event of a kind that this release does not know.
        """
        if not events:
            return self
        later = replace(
            self,
            trials=list(self.trials),
            unfinished=set(self.unfinished),
            logs={column: log.copy() for column, log in self.logs.items()},
            completed=self.completed.copy(),
        )
        for event in events:
            read = getattr(later, f"_read_{event['kind']}", None)
            if read is None:
                raise StateError(
                    "events that this release knows",
                    f"an event of kind {event['kind']!r}",
                    "Open the store with the release of bo_stream that wrote it, or a newer one.",
                )
            later.num_events += 1
            read(_by_column(event, next(iter(self.logs))))
        return later

    def with_status(self, status: Literal["running", "failed"]) -> list[Trial]:
        """Trials that are running or have failed, by id: O(their number)."""
        unfinished = (self.trials[id] for id in sorted(self.unfinished))
        return [trial for trial in unfinished if trial.status == status]

    @property
    def enqueued(self) -> list[Trial]:
        """Running trials of the user's choice that no program has taken and nothing was told of."""
        running = self.with_status("running")
        return [trial for trial in running if trial.by == ENQUEUED and not trial.entries]

    @property
    def num_told(self) -> int:
        """Number of outcomes in the column that has the fewest."""
        return min(log.size for log in self.logs.values())

    @property
    def revision(self) -> int:
        """Number of the latest event that changed earlier outcomes; 0 if there is none."""
        return max(log.revision for log in self.logs.values())

    def new_trials(
        self, inputs: Iterable[Iterable[float]], places: Iterable[int | None] = repeat(None)
    ) -> list[Trial]:
        """New trials at these inputs, which are those of the places in a pool."""
        rows = enumerate(zip(inputs, places, strict=False), len(self.trials))
        return [Trial(id, tuple(x), place) for id, (x, place) in rows]

    # -- one method for each kind of event -------------------------------------------------------

    def _read_asked(self, event: Event) -> None:
        for id, place, x in event["trials"]:
            known = id < len(self.trials)
            trial = self.trials[id] if known else Trial(id, tuple(x), place, ask=self.num_asks)
            self._change([trial._replace(by=event["by"])])
        if "taken" in event:  # of the points chosen ahead; otherwise this is a new choice
            self.ahead = self.ahead[event["taken"] :]
        else:
            self.ahead, self.chosen_at = tuple(map(tuple, event.get("ahead", ()))), self.num_told
        if event.get("decision"):
            self.decision = Decision(*event["decision"])
        self.num_asks += 1

    def _read_told(self, event: Event) -> None:
        """Of a trial that has an outcome, another one is a correction, unless it was withdrawn."""
        self._change(Trial(id, tuple(x), place) for id, place, x in event.get("trials", ()))
        entries: dict[int, dict[str, Entry]] = {}
        for column, rows in event["outcomes"].items():
            new = []
            for id, value, second in rows:
                trial = self.trials[id]
                if column not in trial.entries or trial.status == "withdrawn":
                    new.append(id)
                entries.setdefault(id, dict(trial.entries))[column] = value, second
            if len(new) < len(rows):
                self.logs[column].revise(self.num_events)
                self.ahead = ()
            self.logs[column].add(new)
        self._describe(event)
        whole = [id for id in entries if entries[id].keys() >= self.logs.keys()]
        complete = [self.trials[id] for id in whole if self.trials[id].status != "told"]
        if any(trial.status == "failed" for trial in complete):
            self.completed.revise(self.num_events)
        self.completed.add(trial.id for trial in complete if trial.status != "failed")
        self._change(
            self.trials[id]._replace(entries=entries[id]) for id in entries.keys() - set(whole)
        )
        self._change(
            self.trials[id]._replace(entries=entries[id], status="told", reason=None)
            for id in whole
        )

    _read_amended = _read_told

    def _read_failed(self, event: Event) -> None:
        self._change(
            self.trials[id]._replace(status="failed", reason=reason)
            for id, reason in event["reasons"]
        )
        self.completed.add(id for id, _ in event["reasons"])

    def _read_withdrawn(self, event: Event) -> None:
        gone = dict(event["reasons"])
        self._change(
            self.trials[id]._replace(status="withdrawn", reason=reason)
            for id, reason in gone.items()
        )
        self.ahead = ()
        for log in self._logs:
            log.remove(gone, self.num_events)

    def _read_changed(self, event: Event) -> None:
        new = event["settings"]
        self.changes = (*self.changes, new)
        if set(new) - {"budget"}:
            self.ahead = ()
        if RESTARTING & set(new):
            for log in self._logs:
                log.revise(self.num_events)
                log.restarted = self.num_events

    # -- pieces ----------------------------------------------------------------------------------

    @property
    def _logs(self) -> list[Log]:
        return [*self.logs.values(), self.completed]

    def _change(self, trials: Iterable[Trial]) -> None:
        """Replace trials, and add those whose ids follow."""
        for trial in trials:
            self.trials[trial.id : trial.id + 1] = [trial]
            if trial.status in ("running", "failed"):
                self.unfinished.add(trial.id)
            else:
                self.unfinished.discard(trial.id)

    def _describe(self, event: Event) -> None:
        """Keep notes, keys, and inputs that were measured in place of those asked for."""
        for name in ("note", "key"):
            rows = event.get(f"{name}s", ())
            self._change([self.trials[id]._replace(**{name: text}) for id, text in rows])
        moved = ((self.trials[id], tuple(x)) for id, x in event.get("done", ()))
        self._change([trial._replace(inputs=x) for trial, x in moved])


def _by_column(event: Event, column: str) -> Event:
    """An event of an earlier release, with outcomes by column.

    Its values are ids, outcomes and noise variances, and of counts sizes. Of several outcomes its
    parts have these by column, and its values are trials that have all.

    Args:
        event: An event of any release.
        column: The column of the first outcome.
    """
    if "values" not in event:
        return event
    only = [[id, value, rest[-1]] for id, value, *rest in event["values"]]
    return {**event, "outcomes": event.get("parts", {column: only})}


def asked_event(trials: Iterable[Trial], by: str | None, chosen: Event) -> Event:
    """The event of proposing trials.

    Args:
        trials: Earlier ones that were enqueued, and new ones.
        by: Identifier of the program that evaluates them.
        chosen: How they were chosen: the number ``taken`` of the points chosen ahead, or those that
            are chosen ``ahead`` for later calls of `ask` in place of these, and the ``decision`` if
            another acquisition function chose them.
    """
    rows = [(trial.id, trial.place, trial.inputs) for trial in trials]
    return {"kind": "asked", "trials": rows, "by": by, **chosen}


def changed_ids(event: Event) -> list[int]:
    """Ids of the trials that an event tells, amends, fails or withdraws."""
    rows = chain(event.get("reasons", ()), *event.get("outcomes", {}).values())
    return list(dict.fromkeys(row[0] for row in rows))
