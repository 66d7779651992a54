"""The trials and settings of a campaign in its store; nothing else writes events there."""

from __future__ import annotations

import time
from collections.abc import Callable

from bo_stream.campaign.effort import Row
from bo_stream.campaign.history import Event, Log, TrialHistory
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.storage.store import Store

__all__ = ["Ledger"]

PARTS = ("fit", "acquisition", "evaluation", "update", "score", "store")


class Ledger:
    """Trials and settings of a campaign, as they follow from the events in its store.

    Args:
        store: The store, which has the campaign.
        name: Name of the campaign.
        settings: The settings that it was created with.

    Attributes:
        settings: The current settings.
        budget: Number of trials in all that this process keeps to; None: no limit.
        history: The trials, as last read.
        row: Seconds spent so far, by part.
    """

    def __init__(self, store: Store, name: str, settings: Settings) -> None:
        self.store, self.name, self.settings = store, name, settings
        self.budget = settings.budget
        self.history = TrialHistory(logs={name: Log() for name in settings.outcomes.columns})
        self.row = Row((*(f"{part}_seconds" for part in PARTS), "fit_evaluations"))
        self.refresh()

    def refresh(self) -> TrialHistory:
        """All trials in the store now."""
        new = self.store.events_since(self.name, self.history.num_events)
        return self._move_to(self.history.extended(new))

    @property
    def current(self) -> Settings:
        """The settings for the outcomes so far: without a budget it begins as a small campaign."""
        known = self.history.num_told
        return [one for one in self.settings.stages if one.start <= known][-1]

    def record(self, event_after: Callable[[TrialHistory], Event | None]) -> Event:
        """Store the event that follows from all trials in the store; an empty one is not stored."""
        with self.row.timed("store_seconds"), self.store.transaction(self.name) as transaction:
            new = transaction.events_since(self.history.num_events)
            history = self._move_to(self.history.extended(new))
            event = event_after(history) or {}
            if event:
                event["at"] = time.time()
                transaction.append(event)
                history = history.extended([event])
        self._move_to(history)
        return event

    def _move_to(self, history: TrialHistory) -> TrialHistory:
        """Take over a later history, and the settings that were changed before it ends."""
        new = history.changes[len(self.history.changes) :]
        if new:
            self.settings = self.settings.after_changes(new)
            if any("budget" in change for change in new):
                self.budget = self.settings.budget
        self.history = history
        return history
