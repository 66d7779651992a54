"""All trials of a campaign as its events left them, and what the surrogate has to learn from."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Literal

from bo_stream.campaign.ledger.trials import ENQUEUED, Decision, Event, Points, Trial, TrialList
from bo_stream.errors import StateError

__all__ = ["TrialHistory"]

RECENT = 0.3
"""Weight of the latest measurement in a running mean of seconds."""

RESTARTING = {"space", "surrogate"}
"""Settings after whose change the surrogate is built anew."""


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
        batches: Ids of every batch of outcomes that are learned from, in the order they were told;
            a batch whose trials were withdrawn is empty.
        batch_ends: Number of outcomes at the end of every batch.
        num_events: Number of events.
        revision: Number of the latest event that changed earlier outcomes, or the settings of the
            surrogate; 0 if there is none.
        revised_at: Number of batches before that event.
        restarted: Number of the latest event after which the surrogate is built anew.
        changes: Settings that were changed, in order.
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
    revision: int = 0
    revised_at: int = 0
    restarted: int = 0
    changes: tuple[dict[str, Any], ...] = ()

    def extended(self, events: list[Event]) -> TrialHistory:
        """The history with further events.

        Cost: O(trials in them), and a little for every 512 trials; O(all trials) for each event
        that changes earlier outcomes.

        Raises:
            StateError: for an event of a kind that this release does not know.
        """
        if not events:
            return self
        reader = _EventReader(self)
        for event in events:
            read = getattr(reader, f"read_{event['kind']}", None)
            if read is None:
                raise StateError(
                    "events that this release knows",
                    f"an event of kind {event['kind']!r}",
                    "Open the store with the release of bo_stream that wrote it, or a newer one.",
                )
            reader.num_events += 1
            read(event)
        return reader.history()

    def with_status(self, status: Literal["running", "failed"]) -> list[Trial]:
        """Trials that are running or have failed, by id: O(their number)."""
        ids = self.running if status == "running" else self.failed
        return [self.trials[id] for id in sorted(ids)]

    @property
    def enqueued(self) -> list[Trial]:
        """Running trials of the user's choice that no program has taken and nothing was told of."""
        running = self.with_status("running")
        return [trial for trial in running if trial.by == ENQUEUED and not trial.parts]

    @property
    def num_told(self) -> int:
        """Number of outcomes."""
        return self.batch_ends[-1] if self.batch_ends else 0

    @property
    def noise_known(self) -> bool | None:
        """Whether outcomes come with a noise variance; None before the first outcome."""
        if not self.num_told:
            return None
        first = bisect_right(self.batch_ends, 0)
        return self.trials[self.batches[first][0]].yvar is not None

    def next_ids(self, count: int) -> range:
        """Ids for new trials."""
        return range(len(self.trials), len(self.trials) + count)


class _EventReader:
    """A history while events are read: one method for each kind of event."""

    def __init__(self, before: TrialHistory) -> None:
        self.now, self.trials, self.num_events = before, before.trials, before.num_events
        self.running, self.failed = set(before.running), set(before.failed)
        self.batches, self.ends = list(before.batches), list(before.batch_ends)

    def history(self) -> TrialHistory:
        """The history after the events."""
        return replace(
            self.now,
            trials=self.trials,
            running=frozenset(self.running),
            failed=frozenset(self.failed),
            batches=tuple(self.batches),
            batch_ends=tuple(self.ends),
            num_events=self.num_events,
        )

    def read_asked(self, event: Event) -> None:
        rest = (None, None, None, event.get("at"))
        taken = [self.trials[row[0]] for row in event["trials"] if row[0] < len(self.trials)]
        new = event["trials"][len(taken) :]
        self.trials = self.trials.changed(
            trial._replace(by=event["by"], asked_at=event.get("at")) for trial in taken
        ).changed(
            Trial(id, tuple(x), place, "running", self.now.num_asks, event["by"], *rest)
            for id, place, x in new
        )
        self.running.update(row[0] for row in event["trials"])
        now, decision = self.now, event.get("decision")
        if "taken" in event:  # of the points chosen ahead; otherwise this is a new choice
            ahead, chosen_at = now.ahead[event["taken"] :], now.chosen_at
        else:
            ahead = tuple(map(tuple, event.get("ahead", ())))
            chosen_at = self.ends[-1] if self.ends else 0
        self.note(
            ahead=ahead,
            chosen_at=chosen_at,
            decision=Decision(*decision) if decision else now.decision,
            decision_seconds=_mean(now.decision_seconds, event.get("seconds")),
            num_asks=now.num_asks + 1,
        )

    def read_told(self, event: Event) -> None:
        new = (Trial(id, tuple(x), p) for id, p, x in event["trials"])
        self.trials = self.trials.changed(new)
        self._take_parts(event)
        self._describe(event)
        told = [self._told(*row) for row in event["values"]]
        again = [trial for trial in told if self.trials[trial.id].status == "told"]
        if again:  # trials that were completed after they had failed
            self.trials = self.trials.changed(again)
            self._revise()
            told = [trial for trial in told if trial not in again]
        if told:
            since = [t.asked_at for t in told if t.asked_at is not None]
            waited = event["at"] - min(since) if since else None
            self.note(evaluation_seconds=_mean(self.now.evaluation_seconds, waited))
            self._learn(told)

    def read_failed(self, event: Event) -> None:
        lost = [
            self.trials[id]._replace(status="failed", reason=reason)
            for id, reason in event["reasons"]
        ]
        self.trials = self.trials.changed(lost)
        self.running.difference_update(trial.id for trial in lost)
        self.failed.update(trial.id for trial in lost)

    def read_amended(self, event: Event) -> None:
        """A withdrawn trial that is amended is told again, as a new batch."""
        before = self.trials
        self._take_parts(event)
        again = [row[0] for row in event["values"] if before[row[0]].status == "withdrawn"]
        amended = [self._told(*row) for row in event["values"]]
        if any(trial != before[trial.id] for trial in amended if trial.id not in again):
            self._revise()
        self.trials = self.trials.changed(amended)
        self._describe(event)
        if again:
            self._learn([self.trials[id] for id in again])

    def read_withdrawn(self, event: Event) -> None:
        gone = dict(event["reasons"])
        learned = any(self.trials[id].status == "told" for id in gone)
        self.trials = self.trials.changed(
            self.trials[id]._replace(status="withdrawn", reason=reason)
            for id, reason in gone.items()
        )
        self.running.difference_update(gone)
        self.failed.difference_update(gone)
        self.note(ahead=())
        if learned:
            self.batches = [tuple(i for i in batch if i not in gone) for batch in self.batches]
            self.ends = list(accumulate(map(len, self.batches)))
            self._revise()

    def read_changed(self, event: Event) -> None:
        new = event["settings"]
        self.note(changes=(*self.now.changes, new))
        if set(new) - {"budget"}:
            self.note(ahead=())
        if RESTARTING & set(new):
            self.note(restarted=self.num_events)
            self._revise()

    def _told(self, id: int, y: float, yvar: float | None, size: float | None = None) -> Trial:
        """A trial with its outcome."""
        return self.trials[id]._replace(status="told", y=y, yvar=yvar, reason=None, size=size)

    def _take_parts(self, event: Event) -> None:
        """Take outcomes by column, of a campaign with several; values are of complete trials."""
        for column, rows in event.get("parts", {}).items():
            trials = ((self.trials[id], (y, yvar)) for id, y, yvar in rows)
            self.trials = self.trials.changed(
                [t._replace(parts={**(t.parts or {}), column: part}) for t, part in trials]
            )

    def _describe(self, event: Event) -> None:
        """Keep notes, keys, and inputs that were measured in place of those asked for."""
        for name in ("note", "key"):
            rows = event.get(f"{name}s", ())
            self.trials = self.trials.changed(
                [self.trials[id]._replace(**{name: text}) for id, text in rows]
            )
        moved = ((self.trials[id], tuple(x)) for id, x in event.get("done", ()))
        self.trials = self.trials.changed(
            [trial._replace(inputs=x, asked=trial.asked or trial.inputs) for trial, x in moved]
        )

    def _learn(self, told: list[Trial]) -> None:
        """Add a batch of outcomes."""
        self.trials = self.trials.changed(told)
        self.batches.append(tuple(trial.id for trial in told))
        self.ends.append(len(told) + (self.ends[-1] if self.ends else 0))
        self.running.difference_update(self.batches[-1])
        self.failed.difference_update(self.batches[-1])

    def _revise(self) -> None:
        """Note that the surrogate does not follow from the batches of before any more."""
        self.note(revision=self.num_events, revised_at=len(self.batches), ahead=())

    def note(self, **new: Any) -> None:
        """Replace parts of the history that no event adds to."""
        self.now = replace(self.now, **new)


def _mean(before: float | None, seconds: float | None) -> float | None:
    """A running mean of seconds with one more measurement, if there is one."""
    if before is None or seconds is None:
        return before if seconds is None else seconds
    return (1.0 - RECENT) * before + RECENT * seconds
