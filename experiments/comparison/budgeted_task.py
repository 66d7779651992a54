"""What a method may spend on a task, and the record of what it has reached."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch

from bo_stream.campaign.constraints import FeasibleSet
from bo_stream.campaign.engine import initial_design
from bo_stream.errors import ShapeError
from experiments.comparison.tasks.task import Task, Told

FIRST_SECONDS = 0.05


class Spent(Exception):
    """The budget is used up."""


class BudgetedTask:
    """A task for one method and seed: its function, its budget, and a row for each checkpoint.

    Processor seconds are those of the method: the clock stands while the function is evaluated and
    while the method is asked what it recommends. A row has what was told by then: ``n``,
    ``cpu_seconds`` and ``loss``. Rows are written before the batch that would pass a checkpoint in
    ``n``, so that the last row up to ``n`` has all outcomes up to it.

    Attributes:
        task: The function, its box, goals and limits.
        seed: Seed of the method.
        initial: Points of the initial design.
        budget: Evaluations in all; None: any number.
        recommender: Set by a method: the point that it stands behind, ``d`` values or a frame of
            one row. None: the best one told, of those within the limits if there are any.
    """

    def __init__(
        self,
        task: Task,
        seed: int,
        *,
        evaluations: int | None = None,
        seconds: float | None = None,
        batch: int | None = None,
        initial: int | None = None,
        pace: float = 2.0**0.5,
        marks: tuple[int, ...] = (),
        mark_seconds: tuple[float, ...] = (),
    ) -> None:
        self.task, self.seed, self.budget, self.seconds = task, seed, evaluations, seconds
        self.initial = initial or task.initial
        self.recommender: Callable[[], Any] | None = None
        self.n, self.spent = 0, 0.0
        self._batch = batch or task.batch
        self._generator = np.random.default_rng([seed, 1])
        self._told: list[tuple[np.ndarray, np.ndarray]] = []
        self._best: tuple[tuple[float, float], np.ndarray] | None = None
        self._rows: list[dict[str, float]] = []
        self._marks = _checkpoints(self.initial, evaluations, marks, pace)
        self._mark_seconds = _checkpoints(FIRST_SECONDS, seconds, mark_seconds, pace)
        self._clock = time.process_time()

    @property
    def batch(self) -> int:
        """Points to be evaluated next: the task's batch, or what is left of the budget.

        Raises:
            Spent: once the budget is used up; as calls do.
        """
        self._stop()
        self._end_if_spent()
        self._clock = time.process_time()
        return self._batch if self.budget is None else min(self._batch, self.budget - self.n)

    @property
    def bounds(self) -> torch.Tensor:
        """Bounds of a box of ranges, ``2 x d``, in the units of the points."""
        sides = [kind.ends for kind in self.task.box.kinds]
        return torch.tensor(sides, dtype=torch.float64).T

    def design(self) -> np.ndarray:
        """The initial design, ``initial x d``: the same points for every method."""
        box = self.task.box
        points = initial_design(FeasibleSet(box), self.seed, 0, self.initial)
        return box.decode(points)

    def __call__(self, X: np.ndarray | pd.DataFrame) -> np.ndarray:
        """Outcomes ``n x m`` of ``n x d`` points, or of a frame with the box's columns.

        Raises:
            Spent: once the evaluations or the seconds are used up.
            ShapeError: for points of another shape.
        """
        self._stop()
        box = self.task.box
        values = box.values(X) if isinstance(X, pd.DataFrame) else np.array(X, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != box.dim or not len(values):
            raise ShapeError(f"points of n x {box.dim}", f"{values.shape}", "Give one row a point.")
        self._end_if_spent()
        if self.n and self._due(len(values)):
            self._record()
        Y = np.asarray(self.task.evaluate(values, self._generator), dtype=np.float64)
        self._take(values, Y.reshape(len(values), -1))
        self._clock = time.process_time()
        return self._told[-1][1].copy()

    def table(self) -> pd.DataFrame:
        """The rows so far."""
        return pd.DataFrame(self._rows)

    # -- pieces ----------------------------------------------------------------------------------

    def _stop(self) -> None:
        """Stop the clock."""
        now = time.process_time()
        self.spent, self._clock = self.spent + now - self._clock, now

    def _end_if_spent(self) -> None:
        if not self.n:  # a first batch is always evaluated
            return
        over = self.budget is not None and self.n >= self.budget
        if over or (self.seconds is not None and self.spent >= self.seconds):
            self._record()
            raise Spent

    def _due(self, more: int) -> bool:
        """Whether a checkpoint would be passed by so many more points, or has been by the clock."""
        due = False
        while self._marks and self._marks[0] < self.n + more:
            self._marks.pop(0)
            due = True
        while self._mark_seconds and self._mark_seconds[0] <= self.spent:
            self._mark_seconds.pop(0)
            due = True
        return due

    def _take(self, X: np.ndarray, Y: np.ndarray) -> None:
        self._told.append((X, Y))
        self.n += len(X)
        if len(self.task.goals) > 1:
            return
        broken = self.task.violations(Y).clip(min=0.0).sum(axis=1)
        costs = self.task.costs(Y)[:, 0]
        good = np.flatnonzero(np.isfinite(costs))
        if len(good):
            i = min(good, key=lambda i: (broken[i], costs[i]))
            found = ((float(broken[i]), float(costs[i])), X[i])
            if self._best is None or found[0] < self._best[0]:
                self._best = found

    def _record(self) -> None:
        X, Y = (np.concatenate(parts) for parts in zip(*self._told, strict=True))
        self._told = [(X, Y)]
        recommended = None if self._best is None else self._best[1]
        if self.recommender is not None:
            point = self.recommender()
            frame = isinstance(point, pd.DataFrame)
            values = self.task.box.values(point) if frame else np.asarray(point, dtype=np.float64)
            recommended = values.reshape(-1)
        loss = float(self.task.judge(Told(X, Y, recommended)))
        self._rows.append({"n": self.n, "cpu_seconds": self.spent, "loss": loss})


def _checkpoints(
    first: float, last: float | None, more: tuple[float, ...], pace: float
) -> list[float]:
    """Checkpoints of one's own, and geometric ones up to the budget if there is one."""
    marks, at = {float(mark) for mark in more}, float(first)
    while last is not None and at < last:
        marks.add(at)
        at *= pace
    return sorted(marks)
