"""What every run that measures itself does: steps that an interruption cannot lose or repeat.

A step asks, evaluates and books the answer; only then is the surrogate touched. Ctrl-C or an error
may come anywhere: the next `step` or `run` goes on from the books. What had been asked is not asked
again, what had been evaluated is not evaluated again, and the surrogate is first put back to where
it stood before the batch, so that the row is the one an undisturbed run would have.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bo_stream.campaign.books import Books, OpenStep, check_answer
from bo_stream.campaign.randomness import continued
from bo_stream.campaign.records import Row
from bo_stream.core.streaming import StreamingGP
from bo_stream.errors import InputError, StateError

__all__ = ["PARTS", "Run"]

PARTS = ("fit", "acquisition", "evaluation", "update")
"""What the seconds of a step are spent on."""


class Run(ABC):
    """A table of steps, each asked, evaluated, booked, absorbed, fitted and recorded.

    Args:
        steps: Steps to take after step 0.
        books: Empty ones.
        device: Of what is asked.
        callback: Called with every row once it is recorded.
    """

    def __init__(
        self,
        steps: int,
        books: Books,
        device: torch.device,
        callback: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self.model: StreamingGP | None = None
        self.callback = callback
        self._steps, self._books, self._device = steps, books, device

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows recorded, one for every finished step."""
        return list(self._books.rows)

    def table(self) -> pd.DataFrame:
        """The rows so far."""
        return pd.DataFrame(self.rows)

    def run(self) -> pd.DataFrame:
        """Start if not started, take the steps that are left, return the table.

        After an interruption it goes on where that came.
        """
        if not self._books.rows:
            self.start()
        while self._books.rows[-1]["step"] < self._steps:
            self.step()
        return self.table()

    def step(self) -> dict[str, Any]:
        """One step, or the rest of one that was interrupted; returns its row."""
        step = self._books.open
        if step is None:
            step = self._ask(self._started(), len(self._books.rows))
            self._books = replace(self._books, open=step)
        return self._finish(step)

    # -- what a kind of run says -----------------------------------------------------------------

    @abstractmethod
    def start(self) -> dict[str, Any]:
        """Step 0: evaluate what a run begins with, build and fit the surrogate."""

    @abstractmethod
    def _ask(self, model: StreamingGP, number: int) -> OpenStep:
        """What to evaluate next. Writes nothing."""

    @abstractmethod
    def _evaluate(self, step: OpenStep) -> None:
        """Set the step's answer in the very line that obtains it."""

    @abstractmethod
    def _build(self, step: OpenStep, row: Row) -> StreamingGP:
        """The surrogate of step 0, from the step's answer."""

    @abstractmethod
    def _absorb(self, model: StreamingGP, step: OpenStep, row: Row) -> Tensor:
        """Score, observe, fit, and fill the row; returns the answers as absorbed.

        Begun anew after an interruption, from the same surrogate: it writes only what the next
        attempt overwrites.
        """

    # -- pieces ----------------------------------------------------------------------------------

    def _finish(self, step: OpenStep) -> dict[str, Any]:
        """All of a step that comes after asking."""
        if step.answer is None:
            self._evaluate(step)
        try:
            check_answer(step.answer, len(step.asked), self._books.answers.dtype)
        except InputError:
            step.answer = None  # nothing that could be booked: the same is evaluated again
            raise
        row = step.row.copy()
        with continued(step.draws, self._device):
            model = self._undisturbed(step, row)
            answers = self._absorb(model, step, row)
        books = self._books.closed(step, answers, dict(row))
        self._books = books
        if self.callback is not None:
            self.callback(books.rows[-1])
        return books.rows[-1]

    def _undisturbed(self, step: OpenStep, row: Row) -> StreamingGP:
        """The surrogate as it was before it saw anything of this step."""
        if step.number == 0:
            self.model = self._build(step, row)
            return self.model
        model = self._started()
        if step.before is None:
            step.before = copy.deepcopy(model.state_dict())
        else:
            model.load_state_dict(step.before)
        return model

    def _accounted(self, model: StreamingGP, step: OpenStep, row: Row, failed: int) -> None:
        """Fill in what every row has."""
        rows = self._books.rows
        row["step"], row["n"], row["bytes"] = step.number, model.num_observed, model.state_bytes
        row["failed"] = failed
        row["step_seconds"] = sum(row[f"{part}_seconds"] for part in PARTS)
        row["wallclock_seconds"] = row["step_seconds"] + (
            rows[-1]["wallclock_seconds"] if rows else 0.0
        )

    def _started(self) -> StreamingGP:
        if self.model is None or not self._books.rows:
            raise StateError("a run that was started", "none", "Call start() or run() first.")
        return self.model

    def _not_started(self, begun: bool = False) -> None:
        if self._books.rows or begun:
            raise StateError("a run that was not started", "one that was", "Call run() to go on.")
