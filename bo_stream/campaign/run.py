"""Running a campaign: asking for trials, evaluating and telling them until the budget is used up.

However a run ends, all results have been told, and trials without a result are still running in the
store, so that the same call continues from there. Its evaluator (this process, local processes, or
an executor of the user) is given trials one by one, waits until one of them has ended, and keeps
what they returned until the run has told it, so that an interruption loses none.
"""

from __future__ import annotations

import math
import os
import re
import reprlib
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd

from bo_stream.campaign.frames import inputs_frame
from bo_stream.campaign.history import TrialHistory
from bo_stream.campaign.ledger import Ledger
from bo_stream.campaign.outcomes.outcome import Outcome
from bo_stream.campaign.outcomes.outcomes import Failures
from bo_stream.campaign.space import Pool
from bo_stream.errors import BudgetError, InputError, StateError, needs_extra, whole_number

if TYPE_CHECKING:
    from bo_stream.campaign.campaign_state import CampaignState

__all__ = ["has_died", "run_campaign", "run_id"]

Objective = Callable[[Any], Any]

ATTEMPTS = 2
"""Attempts at a trial whose worker dies, which may have had another cause than the trial."""

POLL = 0.1
"""Seconds between checks whether a queued evaluation has started."""

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

    @property
    def state(self) -> CampaignState:
        """The surrogates."""

    def ask(self, q: int = 1, *, by: str | None = None, budget: int | None = None) -> pd.DataFrame:
        """Propose the next trials."""

    def tell(self, frame: pd.DataFrame) -> None:
        """Record outcomes."""

    def fail(self, ids: int, reason: str) -> None:
        """Give up a trial."""


@dataclass
class _Failing:
    """Counts failures in a row with the same error in a run.

    Errors are the same if their texts differ in numbers alone, such as those of the trial's inputs.

    Attributes:
        limit: Number of them that ends a run.
        count: Number of them so far.
        outcomes: Number of outcomes so far.
        error: The latest error, without its numbers.
        said: What has happened, in words.
    """

    limit: int
    count: int = 0
    outcomes: int = 0
    error: str = ""
    said: str = ""

    def see(self, id: int, reason: str | None) -> None:
        """Take the result of a trial into account: an outcome, or the reason for none."""
        if reason is None:
            self.outcomes, self.count = self.outcomes + 1, 0
            return
        error = NUMBERS.sub("#", reason)
        self.count = self.count + 1 if error == self.error else 1
        self.error = error
        self.said = (
            f"the same error {self.count} times in a row, the last time in trial {id}: "
            f"{reason.rstrip('.')}"
        )

    @property
    def always(self) -> bool:
        """Whether there is no sign that further trials would have another result."""
        return self.count >= max(self.limit, self.outcomes)


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
    total = sys.maxsize if unlimited else whole_number("budget", limit, 1)
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
        left = total - _finished(ledger.refresh())
        if failing.always and left > 0:
            rest = "it goes on from here" if unlimited else f"{left} trials of the budget are left"
            raise StateError(
                "an objective that returns outcomes",
                failing.said,
                f"Correct the objective and run again: {rest}.",
            )
        if failing.count > 1 and not failing.outcomes:
            warnings.warn(f"No trial of this run has an outcome; {failing.said}", stacklevel=3)
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
            whole_number(name, value, 1)
    if workers is not None:
        return ProcessPool(objective, workers, timeout)
    if executor is not None:
        return ExecutorEvaluator(objective, q or os.cpu_count() or 1, timeout, executor)
    if timeout is not None:
        raise InputError(
            "timeout with workers or an executor",
            "neither",
            "Use workers=1: an evaluation in this process could not be stopped.",
        )
    return Evaluator(objective, q or 1)


def _start_trials(
    campaign: RunningCampaign, evaluator: Evaluator, budget: int, end: float, failing: _Failing
) -> bool:
    """Start as many trials as the evaluator takes; returns whether any is running."""
    if failing.always and not evaluator.concurrent:
        return False
    end = -math.inf if failing.always else end
    while time.monotonic() < end and len(frame := _next_trials(campaign, evaluator, budget)):
        for i, id in enumerate(frame.index.tolist()):
            evaluator.start(id, frame.iloc[i].rename(id))
    return bool(evaluator.running)


def _finished(history: TrialHistory) -> int:
    """Number of trials that are not running any more."""
    return len(history.trials) - len(history.with_status("running"))


def _next_trials(campaign: RunningCampaign, evaluator: Evaluator, budget: int) -> pd.DataFrame:
    """Inputs of the next trials: those of a run that has died, enqueued ones, then new ones."""
    history, space = campaign.ledger.refresh(), campaign.ledger.settings.space
    unfinished = budget - _finished(history) - len(evaluator.running)
    capacity = min(evaluator.capacity, unfinished) if unfinished > 0 else 0
    if capacity <= 0:
        return pd.DataFrame()
    running = [t for t in history.with_status("running") if t.id not in evaluator.running]
    abandoned = [t for t in running if has_died(t.by)]
    frame = inputs_frame(abandoned[:capacity], space)
    new = budget - len(history.trials)
    if isinstance(space, Pool):
        new = min(new, len(campaign.state.free_places))
    new = min(capacity, evaluator.batch, len(history.enqueued) + max(new, 0))
    if new > 0 and not abandoned:
        with suppress(BudgetError):  # another process may have asked for the rest meanwhile
            frame = campaign.ask(new, by=run_id(), budget=budget)
    if isinstance(space, Pool) or not space.is_continuous:
        frame = frame.astype(object)  # places, integers and categories keep their types
    return frame


def _tell_results(campaign: RunningCampaign, evaluator: Evaluator, failing: _Failing) -> None:
    """Tell all that was returned; the evaluator keeps it until it was told.

    Trials that another process has told or withdrawn meanwhile stay as they are.
    """
    for id, returned in list(evaluator.returned.items()):
        reason = None
        try:
            reason = _tell_outcome(campaign, id, returned)
            if reason is not None:
                campaign.fail(id, reason[:LONGEST])
        except StateError:
            if campaign.ledger.refresh().trials[id].status not in ("told", "withdrawn"):
                raise
        failing.see(id, reason)
        del evaluator.returned[id]


def _tell_outcome(campaign: RunningCampaign, id: int, returned: Any) -> str | None:
    """Tell what an objective returned; or why it is no outcome."""
    if isinstance(returned, Failed):
        return returned.reason
    measured = campaign.ledger.settings.outcomes.measured
    shown = f"the objective returned {type(returned).__name__} {reprlib.repr(returned)}"
    try:
        cells = _cells(returned, measured)
    except Exception as error:  # the value may be of any class, and raise anything
        return f"{shown} ({type(error).__name__}: {error})"
    try:
        campaign.tell(pd.DataFrame(cells, pd.Index([id], name="trial")))
    except InputError as error:
        return f"{shown}. {error}"
    trial = campaign.ledger.history.trials[id]
    missing = [one.column for one in measured if one.column not in trial.entries]
    return f"{shown}, without outcome {', '.join(missing)}" if missing else None


def _cells(returned: Any, measured: Sequence[Outcome]) -> dict[str, list[Any]]:
    """What an objective returned, as columns of one row.

    Args:
        returned: An outcome, or a pair of the outcome and its noise variance (of a count, and its
            size). A mapping has outcomes by name, and a pair of mappings these and their noise
            variances. Arrays, tensors and Series of one element count as numbers.
        measured: What is measured.
    """
    second: dict[str, Any] = {}
    if isinstance(returned, tuple) and [isinstance(x, Mapping) for x in returned] == [True, True]:
        returned, second = returned[0], dict(returned[1])
    if not isinstance(returned, Mapping):
        returned = {measured[0].column: returned}
    columns, cells = {one.column: one.second for one in measured}, dict[str, list[Any]]()
    for name, value in returned.items():
        if isinstance(value, tuple | list) and len(value) == 2:
            value, second[name] = value
        cells[str(name)] = [_scalar(value)]
    for name, value in second.items():
        if value is not None:
            cells[columns.get(name) or f"variance of {name}"] = [_scalar(value)]
    return cells


def _scalar(value: Any) -> Any:
    """The only element of an array, a tensor or a Series; other values as they are."""
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    return array.item() if array.size == 1 else value


# -- who evaluates a trial -------------------------------------------------------------------------


def run_id() -> str:
    """Identifier of a run in this process: its machine, its number, and when it started.

    Process numbers are reused. `Campaign.run` marks with it the trials that it asks for.
    """
    pid = os.getpid()
    return f"run:{socket.gethostname()}:{pid}:{_start_time(pid) or ''}"


def has_died(by: str | None) -> bool:
    """Whether an identifier is that of a run on this machine that cannot finish any more.

    Either its process has ended, or it was an earlier run of this process. Trials of other
    machines, whose processes cannot be seen, are left alone, as are those asked for by hand.
    """
    if by == run_id():
        return True
    parts = re.fullmatch(r"run:([^:]*):(\d+):(\d*)", by or "")
    if parts is None or parts[1] != socket.gethostname() or os.name == "nt":
        return False  # on Windows, os.kill would end the process
    try:
        os.kill(int(parts[2]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass  # a process of another user
    now = _start_time(int(parts[2]))
    return now is not None and (now != parts[3] if parts[3] else now == "")


def _start_time(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; empty for a zombie, None if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before may have blanks and brackets
    return "" if fields[0] in "ZX" else fields[19]


# -- evaluators ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failed:
    """In place of what an objective returns: why it returned nothing."""

    reason: str

    @classmethod
    def by(cls, error: BaseException) -> Failed:
        """The failure of an evaluation that raised."""
        return cls(f"{type(error).__name__}: {error}")


class Evaluator:
    """Evaluates trials in this process, one after the other; subclasses evaluate elsewhere.

    Args:
        objective: Called with a trial as a Series.
        size: Number of trials that it takes at a time.

    Attributes:
        batch: Number of trials to ask for at a time.
        running: Trials under evaluation, by id.
        returned: What the objective returned, or `Failed`, of trials not told yet, by id.
        concurrent: Whether trials that were started go on by themselves.
    """

    concurrent = False

    def __init__(self, objective: Objective, size: int) -> None:
        self.objective, self.size, self.batch = objective, size, size
        self.running: dict[int, Any] = {}
        self.returned: dict[int, Any] = {}

    @property
    def capacity(self) -> int:
        """Number of further trials that it takes now."""
        return 0 if self.running else self.size

    def start(self, id: int, row: pd.Series[Any]) -> None:
        """Start a trial, or put it into the queue."""
        self.running[id] = row

    def wait(self) -> None:
        """Return when a trial has ended."""
        id, row = next(iter(self.running.items()))
        try:
            returned = self.objective(row)
        except Exception as error:
            returned = Failed.by(error)
        self._finish(id, returned)

    def collect(self) -> None:
        """Collect what was returned already, without waiting."""

    def close(self) -> None:
        """Abandon the running trials."""

    def _finish(self, id: int, returned: Any) -> None:
        self.returned[id] = returned
        self.running.pop(id, None)


@dataclass
class RunningEvaluation:
    """A trial that was submitted to a worker.

    Attributes:
        row: The trial.
        future: Its future result.
        has_started: Whether it is seen to run.
        worker: Executor of its own process, in a `ProcessPool`.
        attempt: Number of the attempt, up to `ATTEMPTS`.
        submitted: Time of submission on the monotonic clock.
        started: When it was first seen to run; infinite before.
    """

    row: pd.Series[Any]
    future: futures.Future[Any]
    has_started: Callable[[], bool]
    worker: Any = None
    attempt: int = 1
    submitted: float = field(default_factory=time.monotonic)
    started: float = math.inf


class ExecutorEvaluator(Evaluator):
    """Evaluates in an executor of the user, which is left open.

    An executor cannot stop an evaluation. One that times out continues to occupy its worker, and
    one trial less is kept running until it ends.

    A timeout counts from when the executor reports that the evaluation runs, or from its submission
    in an executor that never reports it, such as Dask's.

    Args:
        objective: Called with a trial as a Series.
        size: Number of trials that it takes at a time.
        timeout: Seconds after which an evaluation is given up; None: never.
        executor: The executor.

    Attributes:
        startup: Seconds from submission to the start of an evaluation that is not seen to run.
            Where others are, it waits in a queue.
    """

    startup, concurrent = 0.0, True

    def __init__(
        self, objective: Objective, size: int, timeout: float | None, executor: Any
    ) -> None:
        super().__init__(objective, size)
        self.running: dict[int, RunningEvaluation] = {}
        self.timeout, self.batch = math.inf if timeout is None else timeout, 1
        self.executor, self._hanging = executor, list[futures.Future[Any]]()

    @property
    def capacity(self) -> int:
        """Number of further trials that it takes now.

        Raises:
            StateError: if all workers hang.
        """
        self._hanging = [future for future in self._hanging if not future.done()]
        if len(self._hanging) >= self.size:
            raise StateError(
                "a free worker",
                f"{len(self._hanging)} evaluations that hang, as many as are kept running",
                "Restart the workers and run again, or use workers=N, which stops those that hang.",
            )
        return self.size - len(self.running) - len(self._hanging)

    def start(self, id: int, row: pd.Series[Any]) -> None:
        """Submit a trial."""
        future = self.executor.submit(self.objective, row)
        self.running[id] = RunningEvaluation(row, future, future.running)

    def wait(self) -> None:
        """Return when a trial has ended or has taken too long."""
        patience = None if self.timeout == math.inf else POLL
        while not self.returned:
            pending = [evaluation.future for evaluation in self.running.values()]
            done, _ = futures.wait(pending, patience, futures.FIRST_COMPLETED)
            for id, evaluation in list(self.running.items()):
                if evaluation.future in done:
                    self._end(id, evaluation)
                elif self._is_late(evaluation):
                    self._give_up(id, evaluation)

    def collect(self) -> None:
        """Collect what was returned already, without waiting."""
        for id, evaluation in list(self.running.items()):
            if evaluation.future.done():
                with suppress(StateError):
                    self._end(id, evaluation)

    def close(self) -> None:
        """Cancel what has not started."""
        for future in [*(e.future for e in self.running.values()), *self._hanging]:
            future.cancel()

    def _is_late(self, evaluation: RunningEvaluation) -> bool:
        now = time.monotonic()
        if evaluation.started == math.inf and evaluation.has_started():
            evaluation.started, self.startup = now, math.inf
        started = min(evaluation.started, evaluation.submitted + self.startup)
        return now - started > self.timeout

    def _end(self, id: int, evaluation: RunningEvaluation) -> None:
        """Take the result of a future that is done."""
        future = evaluation.future
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or isinstance(error, futures.BrokenExecutor):
            raise StateError(
                "an executor that returns results",
                f"trial {id} cancelled" if error is None else f"{type(error).__name__}: {error}",
                "Run again with a new executor: the running trials are evaluated first. workers=N "
                "replaces workers that die.",
            ) from error
        self._finish(id, future.result() if error is None else Failed.by(error))

    def _give_up(self, id: int, evaluation: RunningEvaluation) -> None:
        """Fail a trial that takes too long."""
        self._hanging.append(evaluation.future)
        self._finish(id, Failed(f"no result within {self.timeout:g} s"))


class ProcessPool(ExecutorEvaluator):
    """Evaluates in local processes, which end with the run.

    Every worker is a loky executor of its own with one process. When a process dies, its trial is
    therefore known, and stopping one that hangs disturbs no other.

    Args:
        objective: Called with a trial as a Series; anything that cloudpickle can pickle.
        size: Number of processes.
        timeout: Seconds after which an evaluation is stopped; None: never.

    Raises:
        ImportError: without loky.
        InputError: for an objective that cannot be sent to another process.
    """

    startup = 60.0

    def __init__(self, objective: Objective, size: int, timeout: float | None) -> None:
        super().__init__(objective, size, timeout, None)
        with needs_extra("workers"):
            from cloudpickle import dumps
            from loky import ProcessPoolExecutor
        try:
            dumps(objective)
        except Exception as error:
            raise InputError(
                "an objective that can be sent to another process",
                f"{type(error).__name__}: {error}",
                "Open files, connections and locks inside the objective.",
            ) from error
        self._call = _worker_call(objective)
        self._new_worker = partial(ProcessPoolExecutor, 1, initializer=_worker_initializer())
        self._workers: list[Any] = []

    def start(self, id: int, row: pd.Series[Any], attempt: int = 1) -> None:
        """Give a trial to a free worker."""
        busy = [evaluation.worker for evaluation in self.running.values()]
        free = [worker for worker in self._workers if worker not in busy]
        if not free:
            free = [self._new_worker()]
            self._workers += free
        ready, future = (free[0].submit(self._call, row, evaluate) for evaluate in (False, True))
        self.running[id] = RunningEvaluation(row, future, ready.done, free[0], attempt)

    def close(self) -> None:
        """Stop all processes."""
        for worker in self._workers:
            worker.shutdown(wait=True, kill_workers=True)

    def _end(self, id: int, evaluation: RunningEvaluation) -> None:
        error = evaluation.future.exception()
        if error is None:
            returned, reason = evaluation.future.result()
            self._finish(id, returned if reason is None else Failed(reason))
            return
        self._stop(evaluation)
        if evaluation.attempt < ATTEMPTS:
            self.start(id, evaluation.row, evaluation.attempt + 1)
            return
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        self._finish(id, Failed(f"its worker died {ATTEMPTS} times ({cause})"))

    def _give_up(self, id: int, evaluation: RunningEvaluation) -> None:
        self._stop(evaluation)
        reason = f"no result within {self.timeout:g} s; its worker was stopped"
        self._finish(id, Failed(reason))

    def _stop(self, evaluation: RunningEvaluation) -> None:
        """End the process of a trial; a new one takes its place when it is needed."""
        self._workers.remove(evaluation.worker)
        evaluation.worker.shutdown(wait=True, kill_workers=True)


# The two functions below are defined inside others so that they are pickled by value: as functions
# of this module, they would make every worker import it, and torch with it.


def _worker_call(objective: Objective) -> Callable[[pd.Series[Any], bool], Any]:
    def evaluated(row: pd.Series[Any], evaluate: bool) -> Any:
        try:
            return objective(row) if evaluate else None, None
        except BaseException as error:  # Ctrl-C is the run's alone
            return None, f"{type(error).__name__}: {error}"  # not every error can be pickled

    return evaluated


def _worker_initializer() -> Callable[[], None]:
    def begin() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run handles Ctrl-C
        parent = os.getppid()

        def watch() -> None:
            while os.getppid() == parent:
                time.sleep(1.0)
            os._exit(1)  # the run was killed

        threading.Thread(target=watch, daemon=True).start()

    return begin
