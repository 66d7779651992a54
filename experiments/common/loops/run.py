"""Steps that every simulated run takes: ask, evaluate, tell, fit, score and record the seconds.

All seconds of a step are in its row. Apart from the parts that are timed by themselves, asking
counts as acquisition and telling as update, bookkeeping included; scoring counts as neither. A run
that was interrupted inside a step cannot continue: it is run again, and gives the same rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.engine import Engine
from bo_stream.campaign.learner import Learner
from bo_stream.errors import DtypeError, InputError, ShapeError, StateError
from experiments.common.records import Clock, TimedRow

__all__ = ["OPTIMISER", "PARTS", "SimulatedRun"]

PARTS = ("fit", "acquisition", "evaluation", "update")
"""Parts that the seconds of a step are divided into."""
OPTIMISER = ("fit_seconds", "acquisition_seconds", "update_seconds")
"""Columns of the seconds that the optimiser spends, without evaluation and scoring."""


class SimulatedRun(ABC):
    """A table of steps, each asked, evaluated, told, fitted and recorded.

    Args:
        engine: What decides.
        steps: Number of steps after step 0.
        columns: Columns of the table.
        callback: Called with every row when it is recorded.
        clock: Returns wall-clock seconds and processor seconds.
    """

    def __init__(
        self,
        engine: Engine,
        steps: int,
        columns: Iterable[str],
        callback: Callable[[dict[str, Any]], None] | None,
        clock: Clock,
    ) -> None:
        self.engine, self.callback = engine, callback
        self._asks, self._asked, self._chosen_at = 0, 0, 0
        none = engine.like.new_empty(0, engine.settings.space.dim)
        self._ahead, self._failed = none, none
        self._steps, self._columns = steps, tuple(columns)
        self._rows: list[dict[str, Any]] = []
        self._clock, self._inside_step = clock, False

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate; None before the start."""
        return self.engine.model

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows recorded so far, one per step."""
        return list(self._rows)

    def table(self) -> pd.DataFrame:
        """The rows recorded so far, as a table."""
        return pd.DataFrame(self._rows)

    def run(self) -> pd.DataFrame:
        """Start unless started, take the remaining steps and return the table."""
        if not self._rows:
            self.start()
        while self._rows[-1]["step"] < self._steps:
            self.step()
        return self.table()

    def step(self) -> dict[str, Any]:
        """Take one step and return its row.

        Raises:
            StateError: before `start`, and after a step that was interrupted or failed.
        """
        self._check_started()
        return self._take_step(lambda: self._proposed(self._q))

    # -- what a kind of run defines --------------------------------------------------------------

    @property
    @abstractmethod
    def _q(self) -> int:
        """Trials of a step."""

    @abstractmethod
    def start(self) -> dict[str, Any]:
        """Step 0: evaluate the initial trials, build and fit the surrogate."""

    def _free(self) -> Tensor | None:
        """Rows of the pool that may be proposed; None in a box."""
        return None

    @abstractmethod
    def _evaluate(self, trials: Tensor) -> Tensor:
        """Values of the trials, ``q x 1``; NaN where an evaluation failed.

        Args:
            trials: Points of a box, ``q x d``, or rows of the pool.
        """

    @abstractmethod
    def _tell(self, trials: Tensor, values: Tensor, row: TimedRow) -> None:
        """Let the engine observe the values."""

    @abstractmethod
    def _score(self, model: StreamingGP, row: TimedRow) -> None:
        """Fill in the columns that are neither seconds nor counts."""

    # -- pieces ----------------------------------------------------------------------------------

    def _take_step(self, ask: Callable[[], Tensor], values: Tensor | None = None) -> dict[str, Any]:
        """One step: the trials of ``ask``, evaluated unless their values are given."""
        if self._inside_step:
            raise StateError(
                "a run whose last step was finished",
                "one that was interrupted or failed inside a step",
                "Make a new one and run it from the start.",
            )
        self._inside_step = True
        row = self._new_row()
        row["step"] = len(self._rows)
        with row.rest("acquisition_seconds"):
            trials = ask()
        self._asks, self._asked = self._asks + 1, self._asked + len(trials)
        with row.timed("evaluation_seconds"):
            values = self._evaluate(trials) if values is None else values
        _check_values(values, len(trials), self.engine.like.dtype)
        with row.rest("update_seconds"):
            self._tell(trials, values, row)
            self.engine.update(row)
            model = self._built()
            model.process()  # bringing the posterior up to date belongs to the update
        self._account(model, row)
        with row.rest("score_seconds"):
            self._score(model, row)
        self._rows.append({name: row[name] for name in self._columns})
        self._inside_step = False
        if self.callback is not None:
            self.callback(self._rows[-1])
        return self._rows[-1]

    @property
    def _learner(self) -> Learner:
        return self.engine.used[0]

    def _proposed(self, q: int) -> Tensor:
        """Points or rows of the pool: chosen ahead while there are enough and no fit since."""
        engine, data, free = self.engine, self._learner.data, self._free()
        if len(self._ahead) < q or engine.fitted > self._chosen_at:
            about = {"number": self._asks, "asked": self._asked}
            view = engine.view(data, self._failed[:0], self._failed, free, **about)
            found = engine.propose(view, q)
            if free is not None:
                return free[found.points]
            ahead = found.points[:0] if found.ahead is None else found.ahead
            self._ahead, self._chosen_at = torch.cat([found.points, ahead]), len(data.X)
        points, self._ahead = self._ahead[:q], self._ahead[q:]
        return points

    def _new_row(self) -> TimedRow:
        return TimedRow(self._columns, self._clock)

    def _account(self, model: StreamingGP, row: TimedRow) -> None:
        """Fill in the counts and sums of seconds."""
        row["n"], row["bytes"] = model.num_observed, model.state_bytes
        row["behind"] = self.engine.behind
        row["step_seconds"] = sum(row[f"{part}_seconds"] for part in PARTS)
        row["cpu_seconds"] = row.spent_on(OPTIMISER)
        before = self._rows[-1]["wallclock_seconds"] if self._rows else 0.0
        row["wallclock_seconds"] = row["step_seconds"] + before

    def _check_started(self) -> None:
        if not self._rows:
            raise StateError("a run that was started", "none", "Call start() or run() first.")

    def _check_not_started(self) -> None:
        if self._rows:
            raise StateError(
                "a run that was not started", "one that was", "Call run() to continue."
            )

    def _built(self) -> StreamingGP:
        model = self.model
        if model is None:
            raise InputError(
                "two finite values to start with",
                f"{len(self._learner.data.X)} of {self._asked}",
                "Run it again with other initial trials, or with more of them.",
            )
        return model


def _check_values(values: Any, count: int, dtype: torch.dtype) -> None:
    """Refuse values that cannot belong to the trials."""
    shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
    if shape != (count, 1):
        raise ShapeError(
            f"values of shape {(count, 1)}",
            f"{shape}",
            "Return one row for each point, NaN where an evaluation failed.",
        )
    if values.dtype != dtype:
        raise DtypeError(f"values of {dtype}", f"{values.dtype}", "Return the dtype of the points.")
