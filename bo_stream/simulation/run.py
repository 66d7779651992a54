"""What every run that measures itself does: steps of a campaign, each a row with its seconds.

A step asks, evaluates, and only then touches the surrogate. Ctrl-C or an error may come anywhere:
the next `step` or `run` goes on from the campaign's books. What had been asked is not asked again,
what had been evaluated is not evaluated again, and the surrogate is first put back to where it
stood before the step's outcomes, so that the row is the one an undisturbed run would have.

All of a step's seconds are in its row. Besides what is measured by itself, asking counts as
acquisition and telling as update, their bookkeeping included; judging counts as neither.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.records import Row
from bo_stream.errors import DtypeError, InputError, ShapeError, StateError
from bo_stream.simulation.simulated_campaign import SimulatedCampaign

__all__ = ["OPTIMISER", "PARTS", "OpenStep", "Run"]

PARTS = ("fit", "acquisition", "evaluation", "update")
"""What the seconds of a step are spent on."""
OPTIMISER = ("fit_seconds", "acquisition_seconds", "update_seconds")
"""Those that an optimiser spends: neither evaluations nor judgements."""


@dataclass
class OpenStep:
    """A step that was begun and has no row yet.

    Attributes:
        number: Of the step; 0 is what a run begins with.
        row: What has been measured so far.
        trials: What is evaluated.
        answer: The values, ``q x 1``, once they are there; NaN where an evaluation failed.
        back: Puts the surrogate back to before it saw them; None until that is about to happen.
    """

    number: int
    row: Row
    trials: pd.DataFrame | None = None
    answer: Tensor | None = None
    back: Callable[[], None] | None = None


class Run(ABC):
    """A table of steps, each asked, evaluated, told, fitted and recorded.

    Args:
        campaign: The campaign, in memory.
        steps: Steps to take after step 0.
        columns: Of the table.
        callback: Called with every row once it is recorded.
    """

    def __init__(
        self,
        campaign: SimulatedCampaign,
        steps: int,
        columns: Iterable[str],
        callback: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self.campaign, self.callback = campaign, callback
        self._steps, self._columns = steps, tuple(columns)
        self._rows: tuple[dict[str, Any], ...] = ()
        self._open: OpenStep | None = None

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate; None before the start."""
        return self.campaign.model

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows recorded, one for every finished step."""
        return list(self._rows)

    def table(self) -> pd.DataFrame:
        """The rows so far."""
        return pd.DataFrame(self.rows)

    def run(self) -> pd.DataFrame:
        """Start if not started, take the steps that are left, return the table.

        After an interruption it goes on where that came.
        """
        if not self._rows:
            self.start()
        while self._rows[-1]["step"] < self._steps:
            self.step()
        return self.table()

    def step(self) -> dict[str, Any]:
        """One step, or the rest of one that was interrupted; returns its row."""
        if self._open is None:
            self._started()
            self._open = self._opened()
        return self._finish(self._open)

    # -- what a kind of run says -----------------------------------------------------------------

    @abstractmethod
    def start(self) -> dict[str, Any]:
        """Step 0: evaluate what a run begins with, build and fit the surrogate."""

    @abstractmethod
    def _begin(self) -> pd.DataFrame:
        """The trials of step 0."""

    @abstractmethod
    def _evaluate(self, step: OpenStep) -> None:
        """Set the step's answer in the very line that obtains it."""

    @abstractmethod
    def _tell(self, step: OpenStep, row: Row) -> None:
        """Tell the campaign what came out."""

    @abstractmethod
    def _judge(self, model: StreamingGP, step: OpenStep, row: Row) -> None:
        """Fill in what a row has besides seconds and counts. Writes nothing but the row."""

    # -- pieces ----------------------------------------------------------------------------------

    def _opened(self) -> OpenStep:
        return OpenStep(len(self._rows), Row(self._columns))

    def _finish(self, step: OpenStep) -> dict[str, Any]:
        """All of a step that is left to do."""
        campaign = self.campaign
        if step.trials is None:
            campaign.row = step.row
            with step.row.rest("acquisition_seconds"):
                under_way = campaign.running()  # of an attempt that was interrupted
                step.trials = under_way if len(under_way) else self._asked(step)
        if step.answer is None:
            with step.row.timed("evaluation_seconds"):
                self._evaluate(step)
        try:
            _check_answer(step.answer, len(step.trials), campaign.dtype)
        except InputError:
            step.answer = None  # nothing that could be told: the same is evaluated again
            raise
        row = campaign.row = step.row.copy()
        if step.back is not None:
            step.back()
        with row.rest("update_seconds"):
            if step.back is None:
                step.back = campaign.kept()
            self._tell(step, row)
            campaign.update()
            model = self._built()
            model.process()  # bringing the posterior up to date belongs to the update
        self._account(model, step, row)
        with row.rest("score_seconds"):
            self._judge(model, step, row)
        done = {name: row[name] for name in self._columns}
        self._rows, self._open = (*self._rows, done), None
        if self.callback is not None:
            self.callback(done)
        return done

    def _asked(self, step: OpenStep) -> pd.DataFrame:
        return self._begin() if step.number == 0 else self.campaign.ask(self._q)

    @property
    @abstractmethod
    def _q(self) -> int:
        """Trials of a step."""

    def _account(self, model: StreamingGP, step: OpenStep, row: Row) -> None:
        """Fill in what every row has."""
        row["step"], row["n"], row["bytes"] = step.number, model.num_observed, model.state_bytes
        row["behind"] = self.campaign.behind
        row["step_seconds"] = sum(row[f"{part}_seconds"] for part in PARTS)
        row["cpu_seconds"] = row.spent_on(OPTIMISER)
        before = self._rows[-1]["wallclock_seconds"] if self._rows else 0.0
        row["wallclock_seconds"] = row["step_seconds"] + before

    def _answered(self) -> tuple[pd.DataFrame, Tensor] | None:
        """Trials and answer of the step under way, if they are there and not told yet."""
        step = self._open
        if step is None or step.trials is None or step.answer is None:
            return None
        waiting = self.campaign.running().index
        return (step.trials, step.answer) if step.trials.index.isin(waiting).any() else None

    def _started(self) -> None:
        if not self._rows:
            raise StateError("a run that was started", "none", "Call start() or run() first.")

    def _not_started(self, begun: bool = False) -> None:
        if self._rows or begun:
            raise StateError("a run that was not started", "one that was", "Call run() to go on.")

    def _built(self) -> StreamingGP:
        model = self.model
        if model is None:
            trials = self.campaign.trials()
            raise InputError(
                "two finite values to start with",
                f"{(trials['status'] == 'told').sum()} of {len(trials)}",
                "Start again with other points, or take more of them.",
            )
        return model


def _check_answer(answer: Any, count: int, dtype: torch.dtype) -> None:
    """Refuse what cannot be paired with what was asked."""
    shape = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
    if shape != (count, 1):
        raise ShapeError(
            f"values of shape {(count, 1)}",
            f"{shape}",
            "Return one row for each point, NaN where an evaluation failed.",
        )
    if answer.dtype != dtype:
        raise DtypeError(f"values of {dtype}", f"{answer.dtype}", "Return the dtype of the points.")
