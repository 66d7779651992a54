"""Evaluating trials in local processes, and replacing those that die or hang.

Every worker is a loky executor of its own with one process. When a process dies, its trial is
therefore known, and stopping one that hangs disturbs no other.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from bo_stream.campaign.evaluation.evaluation_result import EvaluationResult
from bo_stream.campaign.evaluation.evaluators import (
    ATTEMPTS,
    FutureEvaluator,
    Objective,
    RunningEvaluation,
)
from bo_stream.errors import InputError

__all__ = ["ProcessPool"]

STARTUP = 60.0
"""Seconds that a worker may take to start, in addition to the timeout."""


class ProcessPool(FutureEvaluator):
    """Evaluates in local processes, which end with the run.

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
        self._workers: list[Any] = [None] * size
        self._worker_of: dict[int, int] = {}

    @property
    def capacity(self) -> int:
        """Number of further trials that it takes now."""
        return self.size - len(self.running)

    def start(self, id: int, row: pd.Series[Any]) -> None:
        """Give a trial to a free worker."""
        taken = {self._worker_of[id] for id in self.running}
        self._worker_of[id] = next(i for i in range(self.size) if i not in taken)
        self._submit(id, row, 1)

    def close(self) -> None:
        """Stop all processes."""
        for id in list(self.running):
            self._stop(id)
        for worker in self._workers:
            if worker is not None:
                worker.shutdown(wait=True, kill_workers=True)
        self._marks.cleanup()

    def _submit(self, id: int, row: pd.Series[Any], attempt: int) -> None:
        i = self._worker_of[id]
        if self._workers[i] is None:
            self._workers[i] = self._new()
        future = self._workers[i].submit(self._call, row, str(self._mark(id, attempt)))
        self.running[id] = RunningEvaluation(row, future, attempt)

    def _result(self, value: Any) -> EvaluationResult:
        returned, error = value
        if error is not None:
            return EvaluationResult.failed(error)
        return EvaluationResult.from_value(returned)

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
        self._stop(id)
        reason = f"no result within {self.timeout:g} s; its worker was stopped"
        self._finish(id, EvaluationResult.failed(reason))

    def _handle_loss(self, id: int, evaluation: RunningEvaluation) -> None:
        error = evaluation.future.exception()
        self._stop(id)
        if evaluation.attempt < ATTEMPTS:
            self._submit(id, evaluation.row, evaluation.attempt + 1)
            return
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        reason = f"its worker died {ATTEMPTS} times ({cause})"
        self._finish(id, EvaluationResult.failed(reason))

    def _stop(self, id: int) -> None:
        """End a trial's process; the next trial of this worker starts a new one."""
        i = self._worker_of[id]
        worker, self._workers[i] = self._workers[i], None
        if worker is not None:
            worker.shutdown(wait=True, kill_workers=True)

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
