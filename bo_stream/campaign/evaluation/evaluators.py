"""Evaluators of a run's trials: this process, local processes, or an executor of the user.

An evaluator is given trials one by one, and waits until one of them has ended. It keeps what they
returned until the run has told it, so that an interruption loses none.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd

from bo_stream.errors import InputError, StateError

__all__ = ["Evaluator", "Failed", "Objective", "ProcessPool", "UserExecutor"]

Objective = Callable[[Any], Any]

ATTEMPTS = 2
"""Attempts at a trial whose worker dies, which may have had another cause than the trial."""

POLL = 0.1
"""Seconds between checks whether a queued evaluation has started."""


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
    """

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
        return

    def drop_queue(self) -> None:
        """Forget the trials that have not started, if they are known; the others go on."""
        self.running.clear()

    def close(self) -> None:
        """Abandon the running trials."""
        return

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
        started: When it was first seen to run; None before.
    """

    row: pd.Series[Any]
    future: futures.Future[Any]
    has_started: Callable[[], bool]
    worker: Any = None
    attempt: int = 1
    submitted: float = field(default_factory=time.monotonic)
    started: float | None = None


class FutureEvaluator(Evaluator, ABC):
    """Base of evaluators whose workers return futures, with a timeout.

    Args:
        objective: Called with a trial as a Series.
        size: Number of trials that it takes at a time.
        timeout: Seconds after which an evaluation is given up; None: never.

    Attributes:
        startup: Seconds from submission to the start of an evaluation that is not seen to run.
            Where others are, it waits in a queue.
    """

    startup = 0.0

    def __init__(self, objective: Objective, size: int, timeout: float | None) -> None:
        super().__init__(objective, size)
        self.running: dict[int, RunningEvaluation] = {}
        self.timeout, self.batch = timeout, 1

    @property
    def capacity(self) -> int:
        """Number of further trials that it takes now."""
        return self.size - len(self.running)

    def wait(self) -> None:
        """Return when a trial has ended or has taken too long."""
        patience = None if self.timeout is None else POLL
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

    def drop_queue(self) -> None:
        """Let all trials go on."""
        return

    def _is_late(self, evaluation: RunningEvaluation) -> bool:
        if self.timeout is None:
            return False
        now = time.monotonic()
        if evaluation.started is None and evaluation.has_started():
            evaluation.started, self.startup = now, math.inf
        started = evaluation.started
        if started is None:
            started = evaluation.submitted + self.startup
        return now - started > self.timeout

    @abstractmethod
    def _end(self, id: int, evaluation: RunningEvaluation) -> None:
        """Take the result of a future that is done."""

    @abstractmethod
    def _give_up(self, id: int, evaluation: RunningEvaluation) -> None:
        """Fail a trial that takes too long."""


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

    startup = 60.0

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
        self._hanging: list[futures.Future[Any]] = []

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

    def close(self) -> None:
        """Cancel what has not started."""
        for future in [*(e.future for e in self.running.values()), *self._hanging]:
            future.cancel()

    def _end(self, id: int, evaluation: RunningEvaluation) -> None:
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
        self._hanging.append(evaluation.future)
        self._finish(id, Failed(f"no result within {self.timeout:g} s"))
