"""Asking for trials, telling outcomes and mending mistakes; each call is an event in the store."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bo_stream.campaign import changes
from bo_stream.campaign import history as events
from bo_stream.campaign.callbacks import Callback
from bo_stream.campaign.campaign_state import CampaignState
from bo_stream.campaign.effort import FitPolicy
from bo_stream.campaign.frames import (
    Columns,
    far_outcomes,
    find_trials,
    inputs_frame,
    parse_ids,
    read_amended,
    read_new_trials,
    read_told,
    trials_frame,
)
from bo_stream.campaign.history import ENQUEUED, Event, NewTrials, TrialHistory
from bo_stream.campaign.outcomes.goals import Failures
from bo_stream.campaign.proposer import available_places, propose
from bo_stream.campaign.records import Row
from bo_stream.campaign.settings import NamedChoice, Settings
from bo_stream.campaign.space import Space
from bo_stream.campaign.space.feasible import FeasibleSet
from bo_stream.errors import BudgetError, InputError, StateError

__all__ = ["AskTell"]

PARTS = ("fit", "acquisition", "evaluation", "update", "score", "store")


class AskTell:
    """Trials that are asked for, told, failed and corrected; see `bo_stream.Campaign`.

    Args:
        state: Its trials and surrogates.
        callbacks: Hooks.

    Attributes:
        goal: Its goal.
        row: Seconds spent so far, by part.
        counts: What the outcomes are, if they are counts.
    """

    def __init__(self, state: CampaignState, callbacks: Sequence[Callback]) -> None:
        settings = state.settings
        self.goal, self.name, self.counts = settings.goal, state.name, settings.counts
        self.store, self.callbacks, self._state = state.store, tuple(callbacks), state
        self.row = Row((*(f"{part}_seconds" for part in PARTS), "fit_evaluations"))
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
                self._state.update(self.row, count)
                proposal = propose(self._state, count, self.row)
            with self.row.timed("store_seconds"), self.store.transaction(self.name) as transaction:
                new = transaction.events_since(before.num_events)
                history = before.extended(new)
                stale = history.told.revision > before.told.revision
                stale = stale or len(history.changes) > len(before.changes)
                stale = stale or len(history.trials) > len(before.trials)
                waiting = {trial.id for trial in history.enqueued}
                stale = stale or any(trial.id not in waiting for trial in enqueued)
                if not stale:
                    transaction.append(events.asked_event(history, enqueued, proposal, by))
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

        def enqueued(history: TrialHistory) -> Event:
            inputs, places = read_new_trials(self._columns.spelled(frame), self.space, history)
            return events.asked_event(history, (), NewTrials(inputs, places), ENQUEUED)

        event = self._record(enqueued)
        return self._asked([row[0] for row in event["trials"]])

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

        ids = events.changed_ids(self._record(told))
        if self.counts is None and (far := far_outcomes(self._state.history, ids)):
            warnings.warn(
                f"The outcomes of trials {', '.join(map(str, far))} are hundreds of interquartile "
                "ranges away from the others. Mistakes are corrected by amend() or withdraw().",
                stacklevel=2,
            )

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

        self._record(failed)

    # -- corrections -----------------------------------------------------------------------------

    def amend(self, frame: pd.DataFrame) -> None:
        """Correct outcomes that were told. The old ones are kept in the store.

        The surrogate follows: it has learned from the corrected outcomes only, and keeps its
        hyperparameters until the next fit. A withdrawn trial that is amended is told again.

        Args:
            frame: The columns of the outcome that are to be corrected (``y``, ``yvar``, or those of
                counts or of outcomes with names), with the trial's id in the index or in a column
                ``trial``. A column ``note`` replaces notes.

        Raises:
            InputError, NoiseError: for an invalid frame.
            StateError: for trials without an outcome.
        """

        def amended(history: TrialHistory) -> Event | None:
            event = read_amended(frame, self._columns, history)
            return event and self._in_parts(history, event)

        self._record(amended)

    def withdraw(self, ids: Any, reason: str) -> None:
        """Remove trials from what is learned.

        They stay in the store and in `trials`, with the status ``withdrawn`` and the reason, and
        count in the budget. Their place in a pool may be measured again. Trials without an outcome
        may be withdrawn, too. `amend` takes a trial back.

        Args:
            ids: One trial id or several.
            reason: Why nothing is to be learned from them.

        Raises:
            InputError: for unknown ids.
        """
        wanted = parse_ids(ids, reason)

        def withdrawn(history: TrialHistory) -> Event | None:
            trials = find_trials(wanted, history)
            new = [(trial.id, reason) for trial in trials if trial.status != "withdrawn"]
            return events.withdrawn_event(history, new) if new else None

        self._record(withdrawn)

    def widen(self, bounds: Mapping[str, tuple[float, float]]) -> None:
        """Widen the bounds of some inputs. The surrogate is built anew over the wider box.

        Args:
            bounds: New lower and upper bounds by the name of the input; they contain the old ones.

        Raises:
            InputError, BoundsError: for unknown inputs or invalid bounds.
            UnsupportedError: in a pool.
        """
        self._change(lambda _: changes.widened(self.settings, bounds))

    def change(
        self,
        *,
        surrogate: NamedChoice | None = None,
        acquisition: NamedChoice | None = None,
        budget: int | None = None,
        fit: FitPolicy | None = None,
        failures: Failures | None = None,
    ) -> None:
        """Change settings from now on, in all processes.

        Another surrogate is built from all outcomes. An acquisition function and a schedule of fits
        that were chosen for the surrogate of before are chosen again.

        Args:
            surrogate: Name of a family, or a mapping of its name and options.
            acquisition: Name of an acquisition function, or a mapping of its name and options.
            budget: Number of trials in all, those of before included.
            fit: When hyperparameters are fitted.
            failures: What failed trials are, those of before included.

        Raises:
            InputError: for invalid settings, or if none is given.
        """
        given = (surrogate, acquisition, budget, fit, failures)

        def changed(history: TrialHistory) -> Settings:
            return changes.changed(self.settings, *given, len(history.trials))

        self._change(changed)

    def update(self) -> None:
        """Build or fit the surrogate now if that is due; `ask` does so itself."""
        self._sync()
        self._state.update(self.row)

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
        return len(available_places(self.feasible, self.history))

    @property
    def winsorised(self) -> dict[str, tuple[float, int]]:
        """For every outcome, the worst one that its surrogate learns and the number of told ones
        beyond.

        These are learned as if they were the limit, which is 20 spreads below the median, and set
        again by every fit; `trials` keeps them as told. The limit is infinite without a spread, for
        counts, and for the goal ``learn``.
        """
        outcomes, found = self._state.outcomes, {}
        for column, one in self._state.learners.items():
            if column in outcomes.columns:
                beyond = int((one.least > one.data.Y).sum())
                found[column] = outcomes.sign(column) * one.least, beyond
        return found

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
        return Columns(self.space, self._state.outcomes, self.counts)

    def _sync(self) -> None:
        """Follow the store."""
        self._state.sync(self.row)

    def _in_parts(self, history: TrialHistory, event: Event) -> Event:
        """An event of telling or amending: of several outcomes, with outcomes by column."""
        if not self._state.outcomes.several:
            return event
        return events.told_in_parts(history, event, self._state.outcomes.complete)

    def _record(self, event_after: Callable[[TrialHistory], Event | None]) -> Event:
        """Store the event that follows from the latest history, and follow it; an empty one is not.

        Callbacks are called with the trials that it tells, amends, fails or withdraws.
        """
        with self.row.timed("store_seconds"), self.store.transaction(self.name) as transaction:
            before = self._state.history
            history = before.extended(transaction.events_since(before.num_events))
            self._state.configure(history)
            event = event_after(history) or {}
            if event:
                transaction.append(event)
                history = history.extended([event])
        self._state.follow(history, self.row)
        ids = events.changed_ids(event)
        if self.callbacks and ids:
            frame = trials_frame([history.trials[id] for id in ids], self._columns)
            for callback in self.callbacks:
                callback.after_tell(self, frame.copy())
        return event

    def _change(self, changed: Callable[[TrialHistory], Settings]) -> None:
        """Store changed settings, if they can be used."""

        def event(history: TrialHistory) -> Event | None:
            settings = changed(history)
            self._state.stages_of(settings)  # or refuse
            return events.changed_event(self.settings.to_dict(), settings.to_dict())

        self._record(event)

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


def _left(budget: int | None, history: TrialHistory) -> float:
    """Number of trials left in a budget; infinite without one."""
    return math.inf if budget is None else max(budget - len(history.trials), 0)
