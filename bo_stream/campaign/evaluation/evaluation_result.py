"""What an objective returned, read as an outcome; anything else is the reason of a failed trial."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

__all__ = ["Answer"]

LONGEST = 2000
"""Characters of a reason that are kept: an error may quote all of its data."""


@dataclass(frozen=True)
class Answer:
    """What came of one evaluation.

    Attributes:
        y: The outcome; NaN if there is none.
        yvar: Its noise variance, where the objective gave one.
        reason: Why there is no outcome; None if there is.
    """

    y: float = math.nan
    yvar: float | None = None
    reason: str | None = None

    @classmethod
    def failed(cls, reason: str) -> Self:
        """No outcome, and why."""
        return cls(reason=reason[:LONGEST])

    @classmethod
    def raised(cls, error: BaseException) -> Self:
        """The objective ended with an error."""
        return cls.failed(f"{type(error).__name__}: {error}")

    @classmethod
    def read(cls, value: Any) -> Self:
        """A number, or a pair of the outcome and its noise variance.

        Args:
            value: Numbers may be arrays, tensors or Series of one element.
        """
        pair = isinstance(value, tuple | list) and len(value) == 2
        y, yvar = value if pair else (value, None)
        try:
            outcome, variance = _number(y), None if yvar is None else _number(yvar)
        except Exception as error:  # the value is of any class, and may raise anything
            shown = f"{type(value).__name__} {_shown(value)}"
            return cls.failed(f"the objective returned no number but {shown} ({error})")
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
        return "(which cannot be printed)"
    return text if len(text) <= 80 else f"{text[:77]}..."
