"""Running a campaign: asking for trials, evaluating and telling them until the budget is used up.

However a run ends, all results have been told, and trials without a result are still running in the
store, so that the same call continues from there.
"""

from __future__ import annotations

import math
import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from concurrent import futures
from typing import Any, Protocol

import numpy as np
import pandas as pd

from bo_stream.campaign.campaign_state import CampaignState
from bo_stream.campaign.evaluation.evaluators import (
    Evaluator,
    Failed,
    Objective,
    ProcessPool,
    SerialEvaluator,
    UserExecutor,
)
from bo_stream.campaign.evaluation.process_identity import has_died, run_id
from bo_stream.campaign.evaluation.returned import read_returned
from bo_stream.campaign.frames import inputs_frame
from bo_stream.campaign.history import Trial
from bo_stream.campaign.ledger import Ledger
from bo_stream.campaign.outcomes.goals import Failures
from bo_stream.campaign.space import Pool
from bo_stream.errors import BudgetError, InputError, StateError

__all__ = ["run_campaign"]

NO_LIMIT = sys.maxsize
"""Number of trials where only seconds are limited."""

SAME_FAILURES: dict[Failures, int] = {"ignored": 8, "infeasible": 32}
"""Failures in a row with the same error after which a run ends, if it has no more outcomes than
that; by what failures are. Of an objective that fails at random every second time, one run in 250
begins so."""

LONGEST = 2000
"""Maximum number of characters of a reason: an error may quote all of its data."""

NUMBERS = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


class RunningCampaign(Protocol):
    """What a run needs of a `bo_stream.Campaign`: trials, and ways to ask for and tell them."""

    ledger: Ledger
    state: CampaignState

    def ask(self, q: int = 1, *, by: str | None = None, budget: int | None = None) -> pd.DataFrame:
        """Propose the next trials."""
        ...

    def tell(self, frame: pd.DataFrame) -> None:
        """Record outcomes."""
        ...

    def fail(self, ids: int, reason: str) -> None:
        """Give up a trial."""
        ...


class _Failing:
    """Counts failures in a row with the same error in a run.

    Errors are the same if their texts differ in numbers alone, such as those of the trial's inputs.

    Attributes:
        limit: Number of them that ends a run.
        count: Number of them so far.
        latest: The latest trial and its reason.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.count, self.latest = limit, 0, (-1, "")
        self._outcomes, self._failures, self._error = 0, 0, ""

    def see(self, id: int, reason: str | None) -> None:
        """Take the result of a trial into account: an outcome, or the reason for none."""
        if reason is None:
            self._outcomes, self.count = self._outcomes + 1, 0
            return
        self._failures += 1
        error = NUMBERS.sub("#", reason)
        self.count = self.count + 1 if error == self._error else 1
        self._error, self.latest = error, (id, reason)

    @property
    def always(self) -> bool:
        """Whether there is no sign that further trials would have another result."""
        return self.count >= max(self.limit, self._outcomes)

    @property
    def only(self) -> bool:
        """Whether several trials have failed with the same error, and none has an outcome."""
        return self.count > 1 and not self._outcomes and self.count == self._failures

    def said(self) -> str:
        """What has happened."""
        id, reason = self.latest
        error = reason.rstrip(".")
        return f"the same error {self.count} times in a row, the last time in trial {id}: {error}"


def run_campaign(
    campaign: RunningCampaign,
    objective: Objective,
    budget: int | None,
    executor: futures.Executor | None,
    q: int | None,
    workers: int | None,
    timeout: float | None,
    seconds: float | None,
    ended: Callable[[], None],
) -> None:
    """Run a campaign; the arguments are those of `bo_stream.Campaign.run`."""
    for name, value in (("timeout", timeout), ("seconds", seconds)):
        if value is not None and not (value > 0.0 and math.isfinite(value)):
            raise InputError(f"{name}, positive seconds", repr(value), "Leave it out for none.")
    evaluator = _evaluator(objective, executor, q, workers, timeout)
    ledger = campaign.ledger
    limit = ledger.budget if budget is None else budget
    unlimited = limit is None and seconds is not None
    total = NO_LIMIT if unlimited else _count("budget", limit)
    end = math.inf if seconds is None else time.monotonic() + seconds
    if ledger.budget is not None:
        ledger.budget = max(ledger.budget, total)
    failing = _Failing(SAME_FAILURES[ledger.settings.failures])
    try:
        try:
            while _start_trials(campaign, evaluator, total, end, failing):
                with ledger.row.timed("evaluation_seconds"):
                    evaluator.wait()
                _tell_results(campaign, evaluator, failing)
        except BaseException:
            evaluator.collect()
            _tell_results(campaign, evaluator, failing)
            raise
        if failing.always and (left := total - _finished(campaign)) > 0:
            rest = "it goes on from here" if unlimited else f"{left} trials of the budget are left"
            remedy = f"Correct the objective and run again: {rest}."
            raise StateError("an objective that returns outcomes", failing.said(), remedy)
        if failing.only:
            text = f"No trial of this run has an outcome; {failing.said()}"
            warnings.warn(text, stacklevel=3)
    finally:
        evaluator.close()
        ended()


def _evaluator(
    objective: Objective,
    executor: futures.Executor | None,
    q: int | None,
    workers: int | None,
    timeout: float | None,
) -> Evaluator:
    """The evaluator that the arguments ask for."""
    if not callable(objective):
        raise InputError("a callable objective", repr(objective), "Give a function.")
    if executor is not None and not isinstance(executor, futures.Executor):
        raise InputError(
            "an executor of concurrent.futures",
            type(executor).__name__,
            "For a Dask client, give client.get_executor().",
        )
    if workers is not None and (executor is not None or q is not None):
        raise InputError(
            "workers=N without executor and q",
            "both",
            "N processes keep N trials running; with an executor, q is that number.",
        )
    for name, value in (("q", q), ("workers", workers)):
        if value is not None:
            _count(name, value)
    if workers is not None:
        return ProcessPool(objective, workers, timeout)
    if executor is not None:
        return UserExecutor(objective, q or os.cpu_count() or 1, timeout, executor)
    if timeout is not None:
        raise InputError(
            "timeout with workers or an executor",
            "neither",
            "Use workers=1: an evaluation in this process could not be stopped.",
        )
    return SerialEvaluator(objective, q or 1)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name}, an integer of 1 or more", repr(value), "Give such a number.")
    return int(value)


def _start_trials(
    campaign: RunningCampaign, evaluator: Evaluator, budget: int, end: float, failing: _Failing
) -> bool:
    """Start as many trials as the evaluator takes; returns whether any is running."""
    if failing.always:
        evaluator.drop_waiting()
        return bool(evaluator.running)
    while time.monotonic() < end and (trials := _next_trials(campaign, evaluator, budget)):
        for id, row in _rows(campaign, trials):
            evaluator.start(id, row)
    return bool(evaluator.running)


def _finished(campaign: RunningCampaign) -> int:
    """Number of trials that are not running any more."""
    history = campaign.ledger.refresh()
    return len(history.trials) - len(history.running)


def _next_trials(campaign: RunningCampaign, evaluator: Evaluator, budget: int) -> list[Trial]:
    """The next trials to evaluate: those of a run that has died, enqueued ones, then new ones."""
    history = campaign.ledger.refresh()
    unfinished = budget - _finished(campaign) - len(evaluator.running)
    capacity = min(evaluator.capacity, unfinished) if unfinished > 0 else 0
    if capacity <= 0:
        return []
    running = [t for t in history.with_status("running") if t.id not in evaluator.running]
    abandoned = [t for t in running if has_died(t.by)]
    if abandoned:
        return abandoned[:capacity]
    new = budget - len(history.trials)
    if isinstance(campaign.ledger.settings.space, Pool):
        new = min(new, len(campaign.state.free_places))
    new = min(capacity, evaluator.batch, len(history.enqueued) + max(new, 0))
    if new <= 0:
        return []
    try:
        ids = campaign.ask(new, by=run_id(), budget=budget).index
    except BudgetError:  # another process has asked for the rest meanwhile
        return []
    return [campaign.ledger.history.trials[int(id)] for id in ids]


def _rows(campaign: RunningCampaign, trials: list[Trial]) -> list[tuple[int, pd.Series[Any]]]:
    """Trials as the objective is given them, each named by its id."""
    space = campaign.ledger.settings.space
    frame = inputs_frame(trials, space)
    if isinstance(space, Pool) or not space.is_continuous:
        frame = frame.astype(object)  # places, integers and categories keep their types
    return [(trial.id, frame.iloc[i].rename(trial.id)) for i, trial in enumerate(trials)]


def _tell_results(campaign: RunningCampaign, evaluator: Evaluator, failing: _Failing) -> None:
    """Tell all that was returned; the evaluator keeps it until it was told."""
    for id, returned in list(evaluator.returned.items()):
        failing.see(id, _tell(campaign, id, returned))
        del evaluator.returned[id]


def _tell(campaign: RunningCampaign, id: int, returned: Any) -> str | None:
    """Tell what was returned, unless another process has told or withdrawn that trial.

    Returns:
        Why the trial has failed; None for an outcome.
    """
    reason = None
    try:
        reason = _tell_outcome(campaign, id, returned)
        if reason is not None:
            campaign.fail(id, reason[:LONGEST])
    except StateError:
        if campaign.ledger.refresh().trials[id].status not in ("told", "withdrawn"):
            raise
    return reason


def _tell_outcome(campaign: RunningCampaign, id: int, returned: Any) -> str | None:
    """Tell what an objective returned; or why it is no outcome."""
    if isinstance(returned, Failed):
        return returned.reason
    settings = campaign.ledger.settings
    counts, measured = settings.counts, settings.outcomes.measured
    truths = counts is not None and counts.is_truth
    try:
        outcomes = read_returned(returned, measured[0].column, truths)
    except ValueError as error:
        return str(error)
    cells: dict[str, float] = {}
    for one in measured:
        if one.column in outcomes:
            cells |= one.cells(outcomes.pop(one.column))
    cells |= {column: y for column, (y, _) in outcomes.items()}  # a size, or a wrong name
    try:
        campaign.tell(pd.DataFrame(cells, pd.Index([id], name="trial")))
    except InputError as error:  # a noise variance for some outcomes only
        return str(error)
    if id not in campaign.ledger.history.running:
        return None
    if counts is not None:
        return "the objective returned a count of 0 of 0"
    missing = [one.column for one in measured if one.column not in cells]
    return f"the objective returned no outcome {', '.join(missing)}"
