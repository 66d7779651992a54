"""Local processes that evaluate trials, one trial each; those that die or hang are replaced.

Every worker is a loky executor of its own with one process. So when a process dies it is known
which trial it died of, and stopping one that hangs disturbs no other.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from bo_stream.campaign.evaluation.evaluation_result import Answer
from bo_stream.campaign.evaluation.evaluators import ATTEMPTS, Evaluation, Objective, Pooled
from bo_stream.errors import InputError

__all__ = ["Workers"]

STARTING = 60.0
"""Seconds that a worker may take, beside the timeout, until its objective begins."""


class Workers(Pooled):
    """Local processes, stopped when the run ends.

    Args:
        objective: Gets one trial as a Series; anything cloudpickle can pickle.
        size: How many processes.
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
        self._call = _in_worker(objective)
        self._new = lambda: ProcessPoolExecutor(1, initializer=_initialiser())
        self._pools: list[Any] = [None] * size
        self._place: dict[int, int] = {}

    @property
    def room(self) -> int:
        """How many more trials it takes now."""
        return self.size - len(self.running)

    def start(self, id: int, row: pd.Series[Any]) -> None:
        """Give a trial to a worker that is free."""
        taken = {self._place[id] for id in self.running}
        self._place[id] = next(i for i in range(self.size) if i not in taken)
        self._submit(id, row, 1)

    def close(self) -> None:
        """Stop all processes."""
        for id in list(self.running):
            self._stop(id)
        for pool in self._pools:
            if pool is not None:
                pool.shutdown(wait=True, kill_workers=True)
        self._marks.cleanup()

    def _submit(self, id: int, row: pd.Series[Any], attempt: int) -> None:
        place = self._place[id]
        if self._pools[place] is None:
            self._pools[place] = self._new()
        future = self._pools[place].submit(self._call, row, str(self._mark(id, attempt)))
        self.running[id] = Evaluation(row, future, attempt)

    def _read(self, value: Any) -> Answer:
        returned, error = value
        return Answer.read(returned) if error is None else Answer.failed(error)

    def _left(self, id: int, evaluation: Evaluation) -> float:
        if self.timeout is None:
            return float("inf")
        try:
            begun = self._mark(id, evaluation.attempt).stat().st_mtime
        except FileNotFoundError:
            late = evaluation.submitted + self.timeout + STARTING - time.monotonic()
            return float("inf") if late > 0.0 else 0.0
        return begun + self.timeout - time.time()

    def _give_up(self, id: int, evaluation: Evaluation) -> None:
        self._stop(id)
        reason = f"no answer within {self.timeout:g} s; its worker was stopped"
        self._answer(id, Answer.failed(reason))

    def _lost(self, id: int, evaluation: Evaluation) -> None:
        error = evaluation.future.exception()
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt
        self._stop(id)
        if evaluation.attempt < ATTEMPTS:
            self._submit(id, evaluation.row, evaluation.attempt + 1)
            return
        why = " ".join(f"{type(error).__name__}: {error}".split())
        self._answer(id, Answer.failed(f"its worker died {ATTEMPTS} times ({why})"))

    def _stop(self, id: int) -> None:
        """End a trial's process; the next trial in its place gets a new one."""
        place = self._place[id]
        pool, self._pools[place] = self._pools[place], None
        if pool is not None:
            pool.shutdown(wait=True, kill_workers=True)

    def _mark(self, id: int, attempt: int) -> Path:
        """A file that the worker makes when it begins."""
        return Path(self._marks.name, f"{id}-{attempt}")


# The two functions below are made inside others so that they are sent to workers as they are: as
# functions of this module, every worker would have to import it, and torch with it.


def _in_worker(objective: Objective) -> Callable[[pd.Series[Any], str], Any]:
    def evaluated(row: pd.Series[Any], mark: str) -> Any:
        from pathlib import Path

        Path(mark).touch()
        try:
            return objective(row), None
        except Exception as error:  # as text: not every error can be sent
            return None, f"{type(error).__name__}: {error}"

    return evaluated


def _initialiser() -> Callable[[], None]:
    def begin() -> None:
        import os
        import signal
        import threading
        import time

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the run's to deal with
        parent = os.getppid()

        def watch() -> None:
            while os.getppid() == parent:
                time.sleep(1.0)
            os._exit(1)  # the run was killed: nobody waits for an answer

        threading.Thread(target=watch, daemon=True).start()

    return begin
