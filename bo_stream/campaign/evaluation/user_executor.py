"""Trials evaluated by an executor of the user's: threads, processes, or a cluster."""

from __future__ import annotations

import sys
import time
from concurrent import futures
from functools import partial
from typing import Any

import pandas as pd

from bo_stream.campaign.evaluation.evaluation_result import Answer
from bo_stream.campaign.evaluation.evaluators import ATTEMPTS, Evaluation, Objective, Pooled
from bo_stream.errors import StateError

__all__ = ["Borrowed"]


class Borrowed(Pooled):
    """An executor of the user's, which is left as it was found.

    It cannot be made to stop an evaluation. One that takes too long is given up but goes on
    occupying its worker, so one trial less is kept running until it ends.

    Time counts from when the executor says that an evaluation runs. Some, Dask's for one, never say
    so of any: then it counts from when it was handed over.
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
        self._begun: dict[int, float] = {}
        self._hanging: list[futures.Future[Any]] = []
        self._says = False

    @property
    def room(self) -> int:
        """How many more trials it takes now.

        Raises:
            StateError: if no worker is left that does not hang.
        """
        self._hanging = [future for future in self._hanging if not future.done()]
        if len(self._hanging) >= self.size:
            raise StateError(
                "a worker that is free",
                f"{len(self._hanging)} evaluations that hang, as many as are kept running",
                "Restart the workers and run again; workers=N stops those that hang by itself.",
            )
        return self.size - len(self.running) - len(self._hanging)

    def start(self, id: int, row: pd.Series[Any]) -> None:
        """Hand a trial over."""
        self.running[id] = Evaluation(row, self.executor.submit(self.objective, row))

    def close(self) -> None:
        """Withdraw what has not begun."""
        for future in [*(e.future for e in self.running.values()), *self._hanging]:
            future.cancel()

    def _left(self, id: int, evaluation: Evaluation) -> float:
        if self.timeout is None:
            return float("inf")
        now = time.monotonic()
        if evaluation.future.running():
            self._says = True
            begun = self._begun.setdefault(id, now)
        elif self._says:
            return float("inf")  # queued
        else:
            begun = evaluation.submitted
        return begun + self.timeout - now

    def _give_up(self, id: int, evaluation: Evaluation) -> None:
        self._hanging.append(evaluation.future)
        self._answer(id, Answer.failed(f"no answer within {self.timeout:g} s"))

    def _lost(self, id: int, evaluation: Evaluation) -> None:
        if evaluation.future.cancelled():
            raise StateError(
                "an executor that answers",
                f"trial {id} cancelled",
                "Run again with one that is open: its trials are evaluated first.",
            )
        error = evaluation.future.exception()
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt
        if error is not None and _killed_workers(error):
            if evaluation.attempt < ATTEMPTS:
                # another callable, or Dask would take the call for the one that was lost
                future = self.executor.submit(partial(self.objective), evaluation.row)
                self.running[id] = Evaluation(evaluation.row, future, evaluation.attempt + 1)
            else:
                self._answer(id, Answer.raised(error))
            return
        raise StateError(
            "an executor that answers",
            f"{type(error).__name__}: {error}",
            "Run again with a new one: its trials are evaluated first. "
            "workers=N replaces workers that die.",
        ) from error

    def _is_lost(self, future: futures.Future[Any]) -> bool:
        return super()._is_lost(future) or _killed_workers(future.exception())


def _killed_workers(error: BaseException | None) -> bool:
    """Whether this is what Dask says of a call that its workers died under."""
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(error, distributed.KilledWorker)
