"""The books of a run: what was asked, what came back, and the rows that were recorded.

An evaluation may cost a day, so it is booked before anything else can fail. The books change only
by one assignment, of a whole new `Books` or of the answer of the step under way: an interruption
finds them either as they were or as they are to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bo_stream.campaign.randomness import Draws
from bo_stream.campaign.records import Row
from bo_stream.errors import DtypeError, ShapeError

__all__ = ["Books", "OpenStep", "check_answer"]


@dataclass
class OpenStep:
    """A step that has been asked for and has no row yet.

    Attributes:
        number: Of the step; the initial design is step 0.
        asked: What is evaluated: ``q x d`` points, or ``q`` indices.
        row: What has been measured so far.
        draws: The random generators as asking left them.
        answer: The values, ``q x 1``, once they are there.
        before: The surrogate's state before it sees them; None until that is about to happen.
        baseline: Points of a high posterior mean, for a run that keeps some.
    """

    number: int
    asked: Tensor
    row: Row
    draws: Draws
    answer: Tensor | None = None
    before: dict[str, Any] | None = None
    baseline: Tensor | None = None


@dataclass(frozen=True)
class Books:
    """All that a run has paid for, and its rows.

    Attributes:
        asked: What the finished steps asked, in order.
        answers: ``n x 1``, what came back, as absorbed; an entry that is not finite marks an
            evaluation that failed.
        rows: One for every finished step.
        open: The step under way.
    """

    asked: Tensor
    answers: Tensor
    rows: tuple[dict[str, Any], ...] = ()
    open: OpenStep | None = None

    def paid(self) -> tuple[Tensor, Tensor]:
        """Everything that was answered, the step under way included: what was asked, the values."""
        if self.open is None or self.open.answer is None:
            return self.asked, self.answers
        return (
            torch.cat([self.asked, self.open.asked]),
            torch.cat([self.answers, self.open.answer]),
        )

    def closed(self, step: OpenStep, answers: Tensor, row: dict[str, Any]) -> Books:
        """The books with a step finished.

        Args:
            step: The step.
            answers: Its values as absorbed, not finite where an evaluation failed.
            row: Its row.
        """
        return Books(
            torch.cat([self.asked, step.asked]),
            torch.cat([self.answers, answers]),
            (*self.rows, row),
        )


def check_answer(answer: Any, count: int, dtype: torch.dtype) -> None:
    """Refuse what cannot be paired with what was asked.

    Args:
        answer: What an evaluation returned.
        count: How many points were asked for.
        dtype: That of the points.

    Raises:
        ShapeError, DtypeError: unless it is a tensor ``count x 1`` of this dtype.
    """
    shape = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
    if shape != (count, 1):
        raise ShapeError(
            f"values of shape {(count, 1)}",
            f"{shape}",
            "Return one row for each point, NaN where an evaluation failed.",
        )
    if answer.dtype != dtype:
        raise DtypeError(f"values of {dtype}", f"{answer.dtype}", "Return the dtype of the points.")
