"""Evaluating trials in an executor of the user: threads, processes, or a cluster."""

from __future__ import annotations

import math
import sys
import time
from concurrent import futures
from functools import partial
from typing import Any

import pandas as pd

from bo_stream.campaign.evaluation.evaluation_result import EvaluationResult
from bo_stream.campaign.evaluation.evaluators import (
    ATTEMPTS,
    FutureEvaluator,
    Objective,
    RunningEvaluation,
)
from bo_stream.errors import StateError

__all__ = ["UserExecutor"]


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
        self._finish(id, EvaluationResult.failed(f"no result within {self.timeout:g} s"))

    def _handle_loss(self, id: int, evaluation: RunningEvaluation) -> None:
        if evaluation.future.cancelled():
            raise StateError(
                "an executor that returns results",
                f"trial {id} cancelled",
                "Run again with an open executor: the running trials are evaluated first.",
            )
        error = evaluation.future.exception()
        if isinstance(error, KeyboardInterrupt):  # the objective's: the run has its own
            self._finish(id, EvaluationResult.from_exception(error))
            return
        if error is not None and _killed_workers(error):
            if evaluation.attempt < ATTEMPTS:
                # another callable, or Dask would take the call for the one that was lost
                future = self.executor.submit(partial(self.objective), evaluation.row)
                self.running[id] = RunningEvaluation(evaluation.row, future, evaluation.attempt + 1)
            else:
                self._finish(id, EvaluationResult.from_exception(error))
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
