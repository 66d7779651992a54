"""Asking and telling: trials of a campaign, each step of them an event in its store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign import trials as events
from bo_stream.campaign.callbacks import Callback
from bo_stream.campaign.campaign_state import Books
from bo_stream.campaign.proposals import Propose
from bo_stream.campaign.proposer import Chooser
from bo_stream.campaign.records import Row
from bo_stream.campaign.settings import (
    Goal,
    Settings,
)
from bo_stream.campaign.space import Space
from bo_stream.campaign.storage.store import Store
from bo_stream.campaign.surrogate_manager import Learner
from bo_stream.campaign.trial_frames import (
    asked_about,
    asked_frame,
    known_ids,
    new_trials,
    outcomes,
    trials_frame,
)
from bo_stream.campaign.trials import Ledger
from bo_stream.errors import InputError, StateError

__all__ = ["AskTell"]

PARTS = ("fit", "acquisition", "evaluation", "update", "score", "store")


class AskTell:
    """Trials that are proposed, told and given up, in a store; see `bo_stream.Campaign`.

    Attributes:
        space: Where it may measure.
        goal: What it is for.
        name: Of the campaign in its store.
        settings: What it was begun with.
        store: Where its events are.
        callbacks: Hooks.
        row: Seconds spent so far, by part.
    """

    space: Space
    goal: Goal
    name: str
    settings: Settings
    store: Store
    callbacks: tuple[Callback, ...]
    row: Row

    def _start(
        self,
        store: Store,
        name: str,
        settings: Settings,
        make: Callable[..., StreamingGP],
        propose: Propose,
        callbacks: Sequence[Callback],
        like: Tensor,
    ) -> None:
        self.space, self.goal, self.name = settings.space, settings.goal, name
        self.settings, self.store, self.callbacks = settings, store, tuple(callbacks)
        self._like = like
        self._chooser = Chooser(settings, propose, like)
        bounds = settings.space.tensor_bounds.to(like)
        learner = Learner(make, bounds, settings.fit, settings.initial, settings.restandardise)
        self.row = Row((*(f"{part}_seconds" for part in PARTS), "fit_evaluations"))
        self._books = Books(store, name, settings, learner, like)
        self._books.sync(self.row)

    # -- ask and tell ----------------------------------------------------------------------------

    def ask(self, q: int = 1, *, by: str | None = None) -> pd.DataFrame:
        """Where to measure next, trials under way kept in mind; they are in the store on return.

        Cost: the search for the next points, and a fit where the schedule says so.

        Args:
            q: How many trials.
            by: What will run them, for a program that wants to know its own again.

        Returns:
            Inputs in the user's units (and the place, in a pool); the index is the trial's id.

        Raises:
            InputError: for a q that cannot be, or a pool that is used up.
        """
        if isinstance(q, bool) or not isinstance(q, int | np.integer) or q < 1:
            raise InputError("q, a whole number from 1 on", repr(q), "Ask for one trial or more.")
        self._books.sync(self.row)
        while True:
            self.update()
            before = self._books.ledger
            inputs, places = self._chooser.choose(self._books, int(q), self.row)
            with self.row.timed("store_seconds"), self.store.writing(self.name) as turn:
                new = turn.since(before.seen)
                stale = any(event.get("trials") for event in new)
                if not stale:
                    turn.append(events.asked(before.after(new), inputs, places, by))
            self._books.sync(self.row)
            if not stale:  # else others have asked meanwhile: their trials are under way now
                break
        return self._given(before, int(q))

    def enqueue(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Put trials of one's own under way, as if they had been asked for.

        Args:
            frame: Inputs in the user's units (in a pool: those, or a column ``place``).

        Returns:
            As `ask`.

        Raises:
            InputError, BoundsError: on a frame that does not fit.
        """
        with self.row.timed("store_seconds"), self.store.writing(self.name) as turn:
            ledger = self._books.ledger.after(turn.since(self._books.ledger.seen))
            inputs, places = new_trials(frame, self.space, ledger)
            turn.append(events.asked(ledger, inputs, places))
        self._books.sync(self.row)
        return self._given(ledger, len(inputs))

    def tell(self, frame: pd.DataFrame) -> None:
        """Take outcomes: those of trials, part of a batch, or ones that nobody asked for.

        They are in the store, durably, on return. An outcome told twice is taken once.

        Args:
            frame: A column ``y``, and ``yvar`` (the noise variance of each outcome) for all or none
                of a campaign. Rows of trials have the trial's id in the index, as `ask` gave it, or
                in a column ``trial``; other rows have the inputs.

        Raises:
            InputError, BoundsError, NoiseError: on a frame that does not fit.
            StateError: on an outcome that contradicts one told before.
        """
        with self.row.timed("store_seconds"), self.store.writing(self.name) as turn:
            ledger = self._books.ledger.after(turn.since(self._books.ledger.seen))
            values, inputs, places = outcomes(frame, self.space, ledger)
            event = events.told(ledger, values, inputs, places)
            if values:
                turn.append(event)
                ledger = ledger.after([event])
        self._books.follow(ledger, self.row)
        self._told([row[0] for row in event["values"]])

    def fail(self, ids: Any, reason: str) -> None:
        """Give up trials that gave no value. Their points are not asked for again.

        An outcome that comes after all may still be told.

        Args:
            ids: One id, or several.
            reason: Why.

        Raises:
            InputError: for ids that are none.
            StateError: for trials whose outcome is known.
        """
        wanted = asked_about(ids, reason)
        with self.row.timed("store_seconds"), self.store.writing(self.name) as turn:
            ledger = self._books.ledger.after(turn.since(self._books.ledger.seen))
            trials = known_ids(wanted, ledger)
            done = [trial.id for trial in trials if trial.status == "told"]
            if done:
                raise StateError(
                    "trials without an outcome", f"{done}, told before", "Leave them out."
                )
            new = [trial.id for trial in trials if trial.status == "running"]
            if new:
                event = events.failed([(id, reason) for id in new])
                turn.append(event)
                ledger = ledger.after([event])
        self._books.follow(ledger, self.row)
        self._told(new)

    def update(self) -> None:
        """Build or fit the surrogate now, if that is due; `ask` does so by itself."""
        self._books.sync(self.row)
        self._books.settle(self.row)

    # -- what there is ---------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """Every trial as the store has it now."""
        self._books.sync(self.row)
        return self._books.ledger

    @property
    def free_places(self) -> int:
        """How many rows of a pool may still be measured; 0 in a box."""
        return len(self._chooser.free(self.ledger))

    def trials(self) -> pd.DataFrame:
        """Every trial: inputs, outcome, status (``running``, ``told``, ``failed``), reason."""
        self._books.sync(self.row)
        return trials_frame(list(self._books.ledger.trials.values()), self.space)

    def running(self) -> pd.DataFrame:
        """Trials under way, as `ask` gave them: what is still to be told."""
        self._books.sync(self.row)
        return asked_frame(self._books.ledger.of("running"), self.space)

    # -- pieces ----------------------------------------------------------------------------------

    def _given(self, before: Ledger, count: int) -> pd.DataFrame:
        """The trials that follow a ledger, shown to callbacks."""
        ids = before.next_ids(count)
        frame = asked_frame([self._books.ledger.trials[id] for id in ids], self.space)
        for callback in self.callbacks:
            callback.after_ask(self, frame.copy())
        return frame

    def _told(self, ids: list[int]) -> None:
        if self.callbacks and ids:
            frame = trials_frame([self._books.ledger.trials[id] for id in ids], self.space)
            for callback in self.callbacks:
                callback.after_tell(self, frame.copy())
