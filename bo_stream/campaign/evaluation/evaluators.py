"""Who evaluates the trials of a run: this process, one after the other, or several workers.

A crew is given trials one by one, and waits until one of them has an answer. What was answered
stays with it until the run says that it has been told, so that an interruption loses nothing.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from bo_stream.campaign.evaluation.evaluation_result import Answer

__all__ = ["ATTEMPTS", "Crew", "Evaluation", "Objective", "Pooled", "Serial"]

Objective = Callable[[Any], Any]

ATTEMPTS = 2
"""How often a trial is tried that is lost with its worker: that may have died of something else."""

GLANCE = 0.1
"""Seconds between looks at evaluations of which it is not known yet whether they have begun."""


class Crew(ABC):
    """Evaluates trials.

    Args:
        objective: Gets one trial as a Series.
        size: How many trials it takes at a time.

    Attributes:
        running: What is under way, by trial.
        answered: What has an answer that was not told yet.
    """

    def __init__(self, objective: Objective, size: int) -> None:
        self.objective, self.size = objective, size
        self.running: dict[int, Any] = {}
        self.answered: dict[int, Answer] = {}

    @property
    def batch(self) -> int:
        """How many trials to ask for at a time: one, which need not wait for others."""
        return 1

    @property
    @abstractmethod
    def room(self) -> int:
        """How many more trials it takes now."""

    @abstractmethod
    def start(self, id: int, row: pd.Series[Any]) -> None:
        """Take a trial."""

    @abstractmethod
    def wait(self) -> None:
        """Return once a trial has an answer."""

    @abstractmethod
    def gather(self) -> None:
        """Take note of answers that are there already, without waiting."""

    @abstractmethod
    def close(self) -> None:
        """Give up what is under way."""

    def _answer(self, id: int, answer: Answer) -> None:
        self.answered[id] = answer
        self.running.pop(id, None)


class Serial(Crew):
    """One trial after the other, in this process; it takes new ones when all have an answer."""

    @property
    def batch(self) -> int:
        """How many trials to ask for at a time."""
        return self.size

    @property
    def room(self) -> int:
        """How many more trials it takes now."""
        return 0 if self.running else self.size

    def start(self, id: int, row: pd.Series[Any]) -> None:
        """Take a trial."""
        self.running[id] = row

    def wait(self) -> None:
        """Evaluate the next trial."""
        id, row = next(iter(self.running.items()))
        try:
            answer = Answer.read(self.objective(row))
        except Exception as error:
            answer = Answer.raised(error)
        self._answer(id, answer)

    def gather(self) -> None:
        """Nothing: every answer is taken note of as it comes."""

    def close(self) -> None:
        """Nothing: what is left has not begun."""


@dataclass
class Evaluation:
    """One trial under way in an executor.

    Attributes:
        row: The trial.
        future: Its answer to come.
        attempt: Which one it is, of `ATTEMPTS`.
        submitted: When it was handed over, on the monotonic clock.
    """

    row: pd.Series[Any]
    future: futures.Future[Any]
    attempt: int = 1
    submitted: float = field(default_factory=time.monotonic)


class Pooled(Crew):
    """What crews of several workers share: futures, and a limit on how long one may take.

    Args:
        objective: Gets one trial as a Series.
        size: How many trials it takes at a time.
        timeout: Seconds after which an evaluation is given up; None: never.
    """

    def __init__(self, objective: Objective, size: int, timeout: float | None) -> None:
        super().__init__(objective, size)
        self.running: dict[int, Evaluation] = {}
        self.timeout = timeout

    def wait(self) -> None:
        """Return once a trial has an answer, or has taken too long."""
        while not self.answered:
            under_way = {evaluation.future for evaluation in self.running.values()}
            futures.wait(under_way, self._patience(), futures.FIRST_COMPLETED)
            self.gather()
            for id, evaluation in list(self.running.items()):
                if evaluation.future.done():
                    if self._is_lost(evaluation.future):  # else it has returned just now
                        self._lost(id, evaluation)
                elif self._left(id, evaluation) <= 0.0:
                    self._give_up(id, evaluation)

    def gather(self) -> None:
        """Take note of answers that are there already, without waiting."""
        for id, evaluation in list(self.running.items()):
            future = evaluation.future
            if future.done() and not self._is_lost(future):
                error = future.exception()
                answer = self._read(future.result()) if error is None else Answer.raised(error)
                self._answer(id, answer)

    def _is_lost(self, future: futures.Future[Any]) -> bool:
        """Whether a future that is done says nothing about the objective."""
        lost = (futures.BrokenExecutor, KeyboardInterrupt)
        return future.cancelled() or isinstance(future.exception(), lost)

    def _read(self, value: Any) -> Answer:
        return Answer.read(value)

    def _patience(self) -> float | None:
        """Seconds until something has to be looked at, whatever is answered."""
        if self.timeout is None:
            return None
        left = [self._left(*item) for item in self.running.items()]
        return min(GLANCE if s == float("inf") else max(s, 0.0) for s in left)

    @abstractmethod
    def _left(self, id: int, evaluation: Evaluation) -> float:
        """Seconds that an evaluation still has; infinite before it has begun."""

    @abstractmethod
    def _give_up(self, id: int, evaluation: Evaluation) -> None:
        """It took too long."""

    @abstractmethod
    def _lost(self, id: int, evaluation: Evaluation) -> None:
        """It ended without an answer, and through no error of the objective."""
