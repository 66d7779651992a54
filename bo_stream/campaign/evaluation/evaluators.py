"""Evaluators of a run's trials: this process, local processes, or an executor of the user.

An evaluator is given trials one by one, and waits until one of them has ended. It keeps what they
returned until the run has told it, so that an interruption loses none.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from bo_stream.errors import InputError, StateError

__all__ = ["Evaluator", "Failed", "Objective", "ProcessPool", "SerialEvaluator", "UserExecutor"]

Objective = Callable[[Any], Any]

ATTEMPTS = 2
"""Attempts at a trial whose worker dies, which may have had another cause than the trial."""

POLL = 0.1
"""Seconds between checks whether a queued evaluation has started."""

STARTUP = 60.0
"""Seconds that a worker may take to start, in addition to the timeout."""


@dataclass(frozen=True)
class Failed:
    """In place of what an objective returns: why it returned nothing."""

    reason: str

    @classmethod
    def by(cls, error: BaseException) -> Failed:
        """The failure of an evaluation that raised."""
        return cls(f"{type(error).__name__}: {error}")


class Evaluator(ABC):
    """Evaluates trials.

    Args:
        objective: Called with a trial as a Series.
        size: Number of trials that it takes at a time.

    Attributes:
        running: Trials under evaluation, by id.
        returned: What the objective returned, or `Failed`, of trials not told yet, by id.
    """

    batch = 1
    """Number of trials to ask for at a time: one, unless all have to start together."""

    def __init__(self, objective: Objective, size: int) -> None:
        self.objective, self.size = objective, size
        self.running: dict[int, Any] = {}
        self.returned: dict[int, Any] = {}

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Number of further trials that it takes now."""

    @abstractmethod
    def start(self, id: int, row: pd.Series[Any]) -> None:
        """Start a trial."""

    @abstractmethod
    def wait(self) -> None:
        """Return when a trial has ended."""

    def collect(self) -> None:
        """Collect what was returned already, without waiting."""
        return

    def drop_waiting(self) -> None:
        """Forget the trials that have not started, if they are known; the others go on."""
        return

    def close(self) -> None:
        """Abandon the running trials."""
        return

    def _finish(self, id: int, returned: Any) -> None:
        self.returned[id] = returned
        self.running.pop(id, None)


class SerialEvaluator(Evaluator):
    """Evaluates in this process, one trial after the other, then takes the next batch."""

    def __init__(self, objective: Objective, size: int) -> None:
        super().__init__(objective, size)
        self.batch = size

    @property
    def capacity(self) -> int:
        """Number of further trials that it takes now."""
        return 0 if self.running else self.size

    def start(self, id: int, row: pd.Series[Any]) -> None:
        """Queue a trial."""
        self.running[id] = row

    def wait(self) -> None:
        """Evaluate the next trial."""
        id, row = next(iter(self.running.items()))
        try:
            returned = self.objective(row)
        except Exception as error:
            returned = Failed.by(error)
        self._finish(id, returned)

    def drop_waiting(self) -> None:
        """Forget the trials that are left: `wait` starts and ends one."""
        self.running.clear()


@dataclass
class RunningEvaluation:
    """A trial that was submitted to a worker.

    Attributes:
        row: The trial.
        future: Its future result.
        attempt: Number of the attempt, up to `ATTEMPTS`.
        worker: Executor of its own process, in a `ProcessPool`.
        submitted: Time of submission on the monotonic clock.
    """

    row: pd.Series[Any]
    future: futures.Future[Any]
    attempt: int = 1
    worker: Any = None
    submitted: float = field(default_factory=time.monotonic)


class FutureEvaluator(Evaluator):
    """Base of evaluators whose workers return futures, with a timeout.

    Args:
        objective: Called with a trial as a Series.
        size: Number of trials that it takes at a time.
        timeout: Seconds after which an evaluation is given up; None: never.
    """

    def __init__(self, objective: Objective, size: int, timeout: float | None) -> None:
        super().__init__(objective, size)
        self.running: dict[int, RunningEvaluation] = {}
        self.timeout = timeout

    def wait(self) -> None:
        """Return when a trial has ended or has taken too long."""
        while not self.returned:
            pending = {evaluation.future for evaluation in self.running.values()}
            futures.wait(pending, self._longest_wait(), futures.FIRST_COMPLETED)
            self.collect()
            for id, evaluation in list(self.running.items()):
                if evaluation.future.done():
                    if self._is_lost(evaluation.future):  # otherwise it has returned just now
                        self._handle_loss(id, evaluation)
                elif self._time_left(id, evaluation) <= 0.0:
                    self._time_out(id, evaluation)

    def collect(self) -> None:
        """Collect what was returned already, without waiting."""
        for id, evaluation in list(self.running.items()):
            future = evaluation.future
            if future.done() and not self._is_lost(future):
                error = future.exception()
                if error is None:
                    self._finish(id, self._returned(future.result()))
                else:
                    self._finish(id, Failed.by(error))

    def _is_lost(self, future: futures.Future[Any]) -> bool:
        """Whether a future is done for a reason other than the objective."""
        lost = (futures.BrokenExecutor, KeyboardInterrupt)
        return future.cancelled() or isinstance(future.exception(), lost)

    def _returned(self, answer: Any) -> Any:
        return answer

    def _longest_wait(self) -> float | None:
        """Seconds until timeouts have to be checked."""
        if self.timeout is None:
            return None
        left = [self._time_left(*item) for item in self.running.items()]
        return min(POLL if s == math.inf else max(s, 0.0) for s in left)

    @abstractmethod
    def _time_left(self, id: int, evaluation: RunningEvaluation) -> float:
        """Seconds that an evaluation still has; infinite before it has started."""

    @abstractmethod
    def _time_out(self, id: int, evaluation: RunningEvaluation) -> None:
        """Give up an evaluation that took too long."""

    @abstractmethod
    def _handle_loss(self, id: int, evaluation: RunningEvaluation) -> None:
        """Handle an evaluation that ended for a reason other than the objective."""


class ProcessPool(FutureEvaluator):
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

    def __init__(self, objective: Objective, size: int, timeout: float | None) -> None:
        super().__init__(objective, size, timeout)
        try:
            from cloudpickle import dumps
            from loky import ProcessPoolExecutor
        except ImportError as error:
            message = "workers=N needs loky: pip install 'bo_stream[workers]'."
            raise ImportError(message) from error
        try:
            dumps(objective)
        except Exception as error:
            raise InputError(
                "an objective that can be sent to another process",
                f"{type(error).__name__}: {error}",
                "Open files, connections and locks inside the objective.",
            ) from error
        self._marks = tempfile.TemporaryDirectory(prefix="bo_stream-")
        self._call = _worker_call(objective)
        self._new = lambda: ProcessPoolExecutor(1, initializer=_worker_initializer())
        self._workers: list[Any] = []

    @property
    def capacity(self) -> int:
        """Number of further trials that it takes now."""
        return self.size - len(self.running)

    def start(self, id: int, row: pd.Series[Any]) -> None:
        """Give a trial to a free worker."""
        self._submit(id, row, 1)

    def close(self) -> None:
        """Stop all processes."""
        for worker in self._workers:
            worker.shutdown(wait=True, kill_workers=True)
        self._marks.cleanup()

    def _submit(self, id: int, row: pd.Series[Any], attempt: int) -> None:
        busy = [evaluation.worker for evaluation in self.running.values()]
        free = [worker for worker in self._workers if worker not in busy]
        if not free:
            free = [self._new()]
            self._workers += free
        future = free[0].submit(self._call, row, str(self._mark(id, attempt)))
        self.running[id] = RunningEvaluation(row, future, attempt, free[0])

    def _returned(self, answer: Any) -> Any:
        returned, error = answer
        return returned if error is None else Failed(error)

    def _time_left(self, id: int, evaluation: RunningEvaluation) -> float:
        if self.timeout is None:
            return math.inf
        try:
            started = self._mark(id, evaluation.attempt).stat().st_mtime
        except FileNotFoundError:
            left = evaluation.submitted + self.timeout + STARTUP - time.monotonic()
            return math.inf if left > 0.0 else 0.0
        return started + self.timeout - time.time()

    def _time_out(self, id: int, evaluation: RunningEvaluation) -> None:
        self._stop(evaluation)
        reason = f"no result within {self.timeout:g} s; its worker was stopped"
        self._finish(id, Failed(reason))

    def _handle_loss(self, id: int, evaluation: RunningEvaluation) -> None:
        error = evaluation.future.exception()
        self._stop(evaluation)
        if evaluation.attempt < ATTEMPTS:
            self._submit(id, evaluation.row, evaluation.attempt + 1)
            return
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        reason = f"its worker died {ATTEMPTS} times ({cause})"
        self._finish(id, Failed(reason))

    def _stop(self, evaluation: RunningEvaluation) -> None:
        """End the process of a trial; a new one takes its place when it is needed."""
        self._workers.remove(evaluation.worker)
        evaluation.worker.shutdown(wait=True, kill_workers=True)

    def _mark(self, id: int, attempt: int) -> Path:
        """A file that the worker creates when it starts."""
        return Path(self._marks.name, f"{id}-{attempt}")


# The two functions below are defined inside others so that they are pickled by value: as functions
# of this module, they would make every worker import it, and torch with it.


def _worker_call(objective: Objective) -> Callable[[pd.Series[Any], str], Any]:
    def evaluated(row: pd.Series[Any], mark: str) -> Any:
        from pathlib import Path

        Path(mark).touch()
        try:
            return objective(row), None
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # Ctrl-C is the run's alone
            # as text: not every error can be pickled
            return None, f"{type(error).__name__}: {error}"

    return evaluated


def _worker_initializer() -> Callable[[], None]:
    def begin() -> None:
        import os
        import signal
        import threading
        import time

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run handles Ctrl-C
        parent = os.getppid()

        def watch() -> None:
            while os.getppid() == parent:
                time.sleep(1.0)
            os._exit(1)  # the run was killed

        threading.Thread(target=watch, daemon=True).start()

    return begin


class UserExecutor(FutureEvaluator):
    """Evaluates in an executor of the user, which is left open.

    An executor cannot stop an evaluation. One that times out continues to occupy its worker, and
    one trial less is kept running until it ends.

    A timeout counts from when the executor reports that the evaluation runs, or from its submission
    in an executor that never reports it, such as Dask's.
    """

    def __init__(
        self,
        objective: Objective,
        size: int,
        timeout: float | None,
        executor: futures.Executor,
    ) -> None:
        super().__init__(objective, size, timeout)
        self.executor = executor
        self._started: dict[int, float] = {}
        self._hanging: list[futures.Future[Any]] = []
        self._reports_starts = False

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
        self.running[id] = RunningEvaluation(row, self.executor.submit(self.objective, row))

    def close(self) -> None:
        """Cancel what has not started."""
        for future in [*(e.future for e in self.running.values()), *self._hanging]:
            future.cancel()

    def _time_left(self, id: int, evaluation: RunningEvaluation) -> float:
        if self.timeout is None:
            return math.inf
        now = time.monotonic()
        if evaluation.future.running():
            self._reports_starts = True
            started = self._started.setdefault(id, now)
        elif self._reports_starts:
            return math.inf  # queued
        else:
            started = evaluation.submitted
        return started + self.timeout - now

    def _time_out(self, id: int, evaluation: RunningEvaluation) -> None:
        self._hanging.append(evaluation.future)
        self._finish(id, Failed(f"no result within {self.timeout:g} s"))

    def _handle_loss(self, id: int, evaluation: RunningEvaluation) -> None:
        if evaluation.future.cancelled():
            raise StateError(
                "an executor that returns results",
                f"trial {id} cancelled",
                "Run again with an open executor: the running trials are evaluated first.",
            )
        error = evaluation.future.exception()
        if isinstance(error, KeyboardInterrupt):  # the objective's: the run has its own
            self._finish(id, Failed.by(error))
            return
        if error is not None and _killed_workers(error):
            if evaluation.attempt < ATTEMPTS:
                # another callable, or Dask would take the call for the one that was lost
                future = self.executor.submit(partial(self.objective), evaluation.row)
                self.running[id] = RunningEvaluation(evaluation.row, future, evaluation.attempt + 1)
            else:
                self._finish(id, Failed.by(error))
            return
        raise StateError(
            "an executor that returns results",
            f"{type(error).__name__}: {error}",
            "Run again with a new executor: the running trials are evaluated first. workers=N "
            "replaces workers that die.",
        ) from error

    def _is_lost(self, future: futures.Future[Any]) -> bool:
        return super()._is_lost(future) or _killed_workers(future.exception())


def _killed_workers(error: BaseException | None) -> bool:
    """Whether an error is Dask's for a call whose workers died."""
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(error, distributed.KilledWorker)
