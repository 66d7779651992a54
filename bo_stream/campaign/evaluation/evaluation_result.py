"""Result of one evaluation: an outcome, or the reason why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

__all__ = ["EvaluationResult"]

LONGEST = 2000
"""Maximum number of characters of a reason: an error may quote all of its data."""


@dataclass(frozen=True)
class EvaluationResult:
    """Result of one evaluation.

    Attributes:
        y: The outcome; NaN if there is none.
        yvar: Its noise variance, if the objective returned one.
        reason: Why there is no outcome; None if there is one.
    """

    y: float = math.nan
    yvar: float | None = None
    reason: str | None = None

    @classmethod
    def failed(cls, reason: str) -> Self:
        """A failed evaluation."""
        return cls(reason=reason[:LONGEST])

    @classmethod
    def from_exception(cls, error: BaseException) -> Self:
        """An evaluation that raised."""
        return cls.failed(f"{type(error).__name__}: {error}")

    @classmethod
    def from_value(cls, value: Any) -> Self:
        """The result of what an objective returned.

        Args:
            value: A number, or a pair of the outcome and its noise variance. Arrays, tensors and
                Series of one element count as numbers. Anything else fails.
        """
        pair = isinstance(value, tuple | list) and len(value) == 2
        y, yvar = value if pair else (value, None)
        try:
            outcome, variance = _number(y), None if yvar is None else _number(yvar)
        except Exception as error:  # the value may be of any class, and raise anything
            shown = f"{type(value).__name__} {_shown(value)}"
            return cls.failed(f"the objective returned {shown} ({error})")
        if not math.isfinite(outcome):
            return cls.failed(f"the objective returned {outcome}")
        if variance is not None and not (math.isfinite(variance) and variance > 0.0):
            return cls.failed(f"the objective returned a noise variance of {variance}")
        return cls(outcome, variance)


def _number(value: Any) -> float:
    if hasattr(value, "detach"):  # a tensor
        value = value.detach().cpu()
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "iufO":
        raise ValueError("expected a number, or a pair (y, yvar)")
    single = array.reshape(()).item()
    if single is None or isinstance(single, bool | str | bytes):
        raise ValueError("expected a number, or a pair (y, yvar)")
    return float(single)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        return "(without a printable form)"
    return text if len(text) <= 80 else f"{text[:77]}..."
