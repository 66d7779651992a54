"""Evaluators of a run's trials: this process, or workers behind futures.

An evaluator is given trials one by one, and waits until one of them has a result. It keeps results
until the run has told them, so that an interruption loses none.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from bo_stream.campaign.evaluation.evaluation_result import EvaluationResult

__all__ = [
    "ATTEMPTS",
    "Evaluator",
    "FutureEvaluator",
    "Objective",
    "RunningEvaluation",
    "SerialEvaluator",
]

Objective = Callable[[Any], Any]

ATTEMPTS = 2
"""Attempts at a trial whose worker dies, which may have had another cause than the trial."""

POLL = 0.1
"""Seconds between checks whether a queued evaluation has started."""


class Evaluator(ABC):
    """Evaluates trials.

    Args:
        objective: Called with a trial as a Series.
        size: Number of trials that it takes at a time.

    Attributes:
        running: Trials under evaluation, by id.
        results: Results that were not told yet, by id.
    """

    def __init__(self, objective: Objective, size: int) -> None:
        self.objective, self.size = objective, size
        self.running: dict[int, Any] = {}
        self.results: dict[int, EvaluationResult] = {}

    @property
    def batch(self) -> int:
        """Number of trials to ask for at a time: one, unless all have to start together."""
        return 1

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Number of further trials that it takes now."""

    @abstractmethod
    def start(self, id: int, row: pd.Series[Any]) -> None:
        """Start a trial."""

    @abstractmethod
    def wait(self) -> None:
        """Return when a trial has a result."""

    @abstractmethod
    def collect(self) -> None:
        """Collect results that are there already, without waiting."""

    def drop_waiting(self) -> None:
        """Forget the trials that have not started, if they are known; the others go on."""
        return

    @abstractmethod
    def close(self) -> None:
        """Abandon the running trials."""

    def _finish(self, id: int, result: EvaluationResult) -> None:
        self.results[id] = result
        self.running.pop(id, None)


class SerialEvaluator(Evaluator):
    """Evaluates in this process, one trial after the other, then takes the next batch."""

    @property
    def batch(self) -> int:
        """Number of trials to ask for at a time."""
        return self.size

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
            result = EvaluationResult.from_value(self.objective(row))
        except Exception as error:
            result = EvaluationResult.from_exception(error)
        self._finish(id, result)

    def drop_waiting(self) -> None:
        """Forget the trials that are left: `wait` starts and ends one."""
        self.running.clear()

    def collect(self) -> None:
        """Do nothing: `wait` collects every result."""

    def close(self) -> None:
        """Do nothing: the remaining trials have not started."""


@dataclass
class RunningEvaluation:
    """A trial that was submitted to a worker.

    Attributes:
        row: The trial.
        future: Its future result.
        attempt: Number of the attempt, up to `ATTEMPTS`.
        submitted: Time of submission on the monotonic clock.
    """

    row: pd.Series[Any]
    future: futures.Future[Any]
    attempt: int = 1
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
        """Return when a trial has a result or has taken too long."""
        while not self.results:
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
        """Collect results that are there already, without waiting."""
        for id, evaluation in list(self.running.items()):
            future = evaluation.future
            if future.done() and not self._is_lost(future):
                error = future.exception()
                if error is None:
                    self._finish(id, self._result(future.result()))
                else:
                    self._finish(id, EvaluationResult.from_exception(error))

    def _is_lost(self, future: futures.Future[Any]) -> bool:
        """Whether a future is done for a reason other than the objective."""
        lost = (futures.BrokenExecutor, KeyboardInterrupt)
        return future.cancelled() or isinstance(future.exception(), lost)

    def _result(self, value: Any) -> EvaluationResult:
        return EvaluationResult.from_value(value)

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
