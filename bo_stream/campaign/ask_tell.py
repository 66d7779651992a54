"""Asking for trials and telling their outcomes; each call is an event in the store."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bo_stream.campaign import history as events
from bo_stream.campaign.callbacks import Callback
from bo_stream.campaign.campaign_state import CampaignOrigin, CampaignState
from bo_stream.campaign.frames import (
    Columns,
    far_outcomes,
    find_trials,
    inputs_frame,
    parse_ids,
    read_new_trials,
    read_told,
    trials_frame,
)
from bo_stream.campaign.history import ENQUEUED, Event, Trial, TrialHistory
from bo_stream.campaign.outcome_states import OutcomeStates
from bo_stream.campaign.proposer import Proposal, Proposer
from bo_stream.campaign.records import Row
from bo_stream.campaign.settings import Settings
from bo_stream.campaign.space import Space
from bo_stream.campaign.space.feasible import FeasibleSet
from bo_stream.errors import BudgetError, InputError, StateError

__all__ = ["AskTell"]

PARTS = ("fit", "acquisition", "evaluation", "update", "score", "store")


class AskTell:
    """Trials that are asked for, told and failed; see `bo_stream.Campaign`.

    Args:
        origin: Its store and settings.
        callbacks: Hooks.

    Attributes:
        goal: Its goal.
        row: Seconds spent so far, by part.
        counts: What the outcomes are, if they are counts.
    """

    def __init__(self, origin: CampaignOrigin, callbacks: Sequence[Callback]) -> None:
        settings = origin.settings
        self.goal, self.name, self.counts = settings.goal, origin.name, settings.counts
        self.store, self.callbacks, self._like = origin.store, tuple(callbacks), origin.like
        self._proposer = Proposer(origin.like)
        self.row = Row((*(f"{part}_seconds" for part in PARTS), "fit_evaluations"))
        self._named, self._origin = settings.named, origin
        self._state = self._state_of(origin)
        self._sync()

    @property
    def settings(self) -> Settings:
        """The current settings."""
        return self._state.settings

    @property
    def space(self) -> Space:
        """Where the campaign may measure."""
        return self._state.settings.space

    @property
    def feasible(self) -> FeasibleSet:
        """Where the campaign may propose trials."""
        return self._state.feasible

    @property
    def budget(self) -> int | None:
        """Number of trials in all that this process keeps to; None: no limit."""
        return self._state.budget

    @budget.setter
    def budget(self, trials: int | None) -> None:
        self._state.budget = trials

    # -- ask and tell ----------------------------------------------------------------------------

    def ask(self, q: int = 1, *, by: str | None = None, budget: int | None = None) -> pd.DataFrame:
        """Propose the next trials. They are in the store, as running trials, on return.

        Trials that were enqueued come first. Where outcomes are exact (``noise="none"``), no
        setting is proposed twice while there are others.

        Cost: maximising the acquisition function, and a fit where the schedule plans one.

        Args:
            q: Number of trials. The last batch of a budget may be smaller.
            by: Identifier of the program that evaluates them.
            budget: Number of trials in all, in place of the campaign's budget. It is kept to
                exactly, whatever other processes ask for.

        Returns:
            Inputs in the user's units, with the place in a pool; the index is the trial's id.

        Raises:
            InputError: for an invalid q, or if a pool has fewer places left.
            BudgetError: if the budget is used up.
        """
        if isinstance(q, bool) or not isinstance(q, int | np.integer) or q < 1:
            raise InputError("q, an integer of 1 or more", repr(q), "Ask for one trial or more.")
        while True:
            self._sync()
            before = self._state.history
            enqueued = before.enqueued[: int(q)]
            proposal, count = None, int(q) - len(enqueued)
            if count:
                count = self._within_budget(count, before, budget, refuse=not enqueued)
            if count:
                self._state.update_surrogate(self.row, count)
                proposal = self._proposer.propose(self._state, count, self.row)
            with self.row.timed("store_seconds"), self.store.transaction(self.name) as transaction:
                new = transaction.events_since(before.num_events)
                history = before.extended(new)
                same = (history.revision, history.changes) == (before.revision, before.changes)
                stale = not same or len(history.trials) > len(before.trials)
                waiting = {trial.id for trial in history.enqueued}
                stale = stale or any(trial.id not in waiting for trial in enqueued)
                if not stale:
                    transaction.append(_asked_event(history, enqueued, proposal, by))
            self._sync()
            if not stale:  # otherwise another process has asked or changed something meanwhile
                break
        return self._asked([*(trial.id for trial in enqueued), *before.next_ids(count)])

    def enqueue(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Add running trials of one's own choice.

        They are the next ones that `ask` returns and `run` evaluates, unless they are told before.

        Args:
            frame: Inputs in the user's units; in a pool, alternatively a column ``place``.

        Returns:
            As `ask`.

        Raises:
            InputError, BoundsError: for an invalid frame.
        """
        with self.row.timed("store_seconds"), self.store.transaction(self.name) as transaction:
            history = self._latest(transaction)
            inputs, places = read_new_trials(self._columns.spelled(frame), self.space, history)
            transaction.append(events.asked_event(history, inputs, places, ENQUEUED))
        self._sync()
        return self._asked(history.next_ids(len(inputs)))

    def tell(self, frame: pd.DataFrame) -> None:
        """Record outcomes of trials, of part of a batch, or of data that were not asked for.

        They are in the store, durably, on return. An outcome that is told twice is recorded once,
        if its row has the trial's id or a key. A warning names outcomes that are hundreds of
        interquartile ranges away from the others.

        Args:
            frame: A column ``y``, and a column ``yvar`` (noise variance of each outcome) for all
                outcomes of a campaign or for none; for counts, their columns instead (rows without
                a count, and of 0 of 0, are left out with a warning). For outcomes
                of other names, these columns, and ``yield_var`` for the variances of ``yield``; of
                several, some may be told later: a trial is running until it has all. Rows of
                trials have the trial's id in the index, as returned by `ask`, or in a column
                ``trial``; other rows have the inputs. An index without the name ``trial`` that is
                no plain range has ids only if the inputs, where there are some, are those of these
                trials. Inputs in rows of trials may differ from
                those asked for by up to a tenth of their range: they are what was done. A column
                ``key`` names measurements that were not asked for, and a column ``note`` has notes.

        Raises:
            InputError, BoundsError, NoiseError: for an invalid frame.
            StateError: for an outcome that contradicts one told before; `amend` corrects it.
        """

        def told(history: TrialHistory) -> Event | None:
            event = read_told(frame, self._columns, history)
            return event and self._in_parts(history, event)

        event = self._record(told)
        ids = events.told_ids(event)
        if self.counts is None and (far := far_outcomes(self._state.history, ids)):
            warnings.warn(
                f"The outcomes of trials {', '.join(map(str, far))} are hundreds of interquartile "
                "ranges away from the others. Mistakes are corrected by amend() or withdraw().",
                stacklevel=2,
            )
        self._after_tell(ids)

    def fail(self, ids: Any, reason: str) -> None:
        """Give up trials. Their points are not proposed again.

        Their outcomes may still be told later.

        Args:
            ids: One trial id or several.
            reason: Why they gave no outcome.

        Raises:
            InputError: for unknown ids.
            StateError: for trials that have an outcome or were withdrawn.
        """
        wanted = parse_ids(ids, reason)

        def failed(history: TrialHistory) -> Event | None:
            trials = find_trials(wanted, history)
            done = [trial.id for trial in trials if trial.status in ("told", "withdrawn")]
            if done:
                raise StateError(
                    "trials without an outcome",
                    f"{done}, told before",
                    "Leave them out, or withdraw() them.",
                )
            new = [(trial.id, reason) for trial in trials if trial.status == "running"]
            return events.failed_event(new) if new else None

        event = self._record(failed)
        self._after_tell([row[0] for row in event["reasons"]] if event else [])

    def update(self) -> None:
        """Build or fit the surrogate now if that is due; `ask` does so itself."""
        self._sync()
        self._state.update_surrogate(self.row)

    # -- current state ---------------------------------------------------------------------------

    @property
    def history(self) -> TrialHistory:
        """Every trial in the store now."""
        self._sync()
        return self._state.history

    @property
    def remaining(self) -> float:
        """Number of trials left in the budget; infinite without a budget.

        All trials count: those with an outcome, running ones and failed ones.
        """
        return _left(self.budget, self.history)

    @property
    def free_places(self) -> int:
        """Number of places of a pool that may still be measured; 0 in a box."""
        return len(self._proposer.available(self.feasible, self.history))

    @property
    def winsorised(self) -> dict[str, tuple[float, int]]:
        """For every outcome, the worst one that its surrogate learns and the number of told ones
        beyond.

        These are learned as if they were the limit, which is 20 spreads below the median, and set
        again by every fit; `trials` keeps them as told. The limit is infinite without a spread, for
        counts, and for the goal ``learn``.
        """
        state = self._state
        states = state.states if isinstance(state, OutcomeStates) else [state]
        names = state.settings.named.columns
        return dict(zip(names, map(_winsorised, states), strict=False))

    def trials(self) -> pd.DataFrame:
        """Every trial: inputs, outcome, status and reason.

        The status is ``running``, ``told``, ``failed`` or ``withdrawn``.

        Counts are shown in their columns; their outcome ``y`` is the observed prevalence or rate.
        """
        return trials_frame(list(self.history.trials), self._columns)

    def running(self) -> pd.DataFrame:
        """Running trials as `ask` returned them: those whose outcome is still to be told."""
        return inputs_frame(self.history.with_status("running"), self.space)

    # -- pieces ----------------------------------------------------------------------------------

    @property
    def _columns(self) -> Columns:
        """What the columns of frames are."""
        return Columns(self.space, self._named, self.counts)

    def _state_of(self, origin: CampaignOrigin) -> CampaignState | OutcomeStates:
        joint = origin.settings.named.joint
        return OutcomeStates(origin) if joint else CampaignState(origin)

    def _sync(self) -> None:
        """Follow the store."""
        self._state.sync(self.row)
        self._renew()

    def _renew(self) -> None:
        """Begin the state anew if it has been changed what failures are."""
        old = self._state
        if old.settings.failures != old.failures:
            new = replace(self._origin, settings=old.settings, changes=len(old.history.changes))
            self._state = self._state_of(new)
            self._state.budget = old.budget
            self._state.sync(self.row)

    def _latest(self, transaction: Any) -> TrialHistory:
        """The history as a transaction sees it; its settings are taken over."""
        history = self._state.history
        history = history.extended(transaction.events_since(history.num_events))
        self._state.configure(history)
        return history

    def _in_parts(self, history: TrialHistory, event: Event) -> Event:
        """An event of telling or amending: of several outcomes, with outcomes by column."""
        if not self._named.several:
            return event
        return events.told_in_parts(history, event, self._named.complete)

    def _record(self, event_after: Callable[[TrialHistory], Event | None]) -> Event | None:
        """Store the event that follows from the latest history, if any, and follow it."""
        with self.row.timed("store_seconds"), self.store.transaction(self.name) as transaction:
            history = self._latest(transaction)
            event = event_after(history)
            if event is not None:
                transaction.append(event)
                history = history.extended([event])
        self._state.follow(history, self.row)
        self._renew()
        return event

    def _within_budget(
        self, q: int, history: TrialHistory, budget: int | None, refuse: bool
    ) -> int:
        """How many of q trials the budget allows; none are refused."""
        budget = self.budget if budget is None else budget
        remaining = _left(budget, history)
        if remaining <= 0 and refuse:
            raise BudgetError(
                f"fewer trials in campaign {self.name!r} than its budget of {budget}",
                f"{len(history.trials)}",
                "The budget is used up. Ask while campaign.remaining > 0, or raise the budget.",
            )
        return int(min(q, remaining))

    def _asked(self, ids: Iterable[int]) -> pd.DataFrame:
        """Trials as a frame, after the callbacks were called with them."""
        frame = inputs_frame([self._state.history.trials[id] for id in ids], self.space)
        for callback in self.callbacks:
            callback.after_ask(self, frame.copy())
        return frame

    def _after_tell(self, ids: list[int]) -> None:
        if self.callbacks and ids:
            told = [self._state.history.trials[id] for id in ids]
            frame = trials_frame(told, self._columns)
            for callback in self.callbacks:
                callback.after_tell(self, frame.copy())


def _left(budget: int | None, history: TrialHistory) -> float:
    """Number of trials left in a budget; infinite without one."""
    return math.inf if budget is None else max(budget - len(history.trials), 0)


def _asked_event(
    history: TrialHistory, enqueued: list[Trial], proposal: Proposal | None, by: str | None
) -> Event:
    if proposal is None:
        none = np.empty((0, len(enqueued[0].inputs)))
        return events.asked_event(history, none, None, by, enqueued=enqueued)
    taken = len(proposal.inputs) if proposal.ahead is None else 0
    return events.asked_event(
        history,
        proposal.inputs,
        proposal.places,
        by,
        enqueued=enqueued,
        ahead=proposal.ahead,
        taken=taken,
        decision=None if proposal.decision == history.decision else proposal.decision,
        seconds=proposal.seconds,
    )


def _winsorised(state: CampaignState) -> tuple[float, int]:
    """Limit of one outcome, and the number of its values beyond."""
    least = state.manager.least
    return state.settings.sign * least, int((least > state.observations.Y).sum())
