"""Result of one evaluation: an outcome, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from bo_stream.campaign.outcomes.named_outcomes import LARGEST

__all__ = ["EvaluationResult"]

LONGEST = 2000
"""Maximum number of characters of a reason: an error may quote all of its data."""


@dataclass(frozen=True)
class EvaluationResult:
    """Result of one evaluation.

    Attributes:
        y: The outcome; NaN if there is none.
        yvar: Its noise variance, if the objective returned one.
        reason: Why there is no outcome; None if there is one. A truth value has both: its outcome
            is one of yes and no only.
        parts: Outcomes and their noise variances by name, if the objective returned a mapping.
    """

    y: float = math.nan
    yvar: float | None = None
    reason: str | None = None
    parts: Mapping[str, tuple[float, float | None]] | None = None

    @property
    def has_outcome(self) -> bool:
        """Whether there is an outcome, or a truth value."""
        return bool(self.parts) or not math.isnan(self.y)

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
                Series of one element count as numbers. A mapping has outcomes by name, and a pair
                of mappings these and their noise variances. Anything else fails.
        """
        if isinstance(value, Mapping) or (isinstance(value, tuple) and _all_mappings(value)):
            return cls._from_mappings(*(value if isinstance(value, tuple) else (value, {})))
        pair = isinstance(value, tuple | list) and len(value) == 2
        y, yvar = value if pair else (value, None)
        try:
            outcome, variance = _number(y), None if yvar is None else _number(yvar)
        except Exception as error:  # the value may be of any class, and raise anything
            shown = f"{type(value).__name__} {_shown(value)}"
            result = cls.failed(f"the objective returned {shown} ({error})")
            return result if yvar is not None else replace(result, y=_truth(y))
        if not abs(outcome) <= LARGEST:
            return cls.failed(f"the objective returned {outcome}")
        if variance is not None and not 0.0 < variance <= LARGEST**2:
            return cls.failed(f"the objective returned a noise variance, or a size, of {variance}")
        return cls(outcome, variance)

    @classmethod
    def _from_mappings(cls, outcomes: Mapping[str, Any], variances: Mapping[str, Any]) -> Self:
        """The result of outcomes by name."""
        parts: dict[str, tuple[float, float | None]] = {}
        reason: str | None = None
        for name, y in outcomes.items():
            one = cls.from_value(y if name not in variances else (y, variances[name]))
            if one.reason is not None:
                reason = reason or f"{name}: {one.reason}"
                if math.isnan(one.y):
                    return cls.failed(reason)
            parts[str(name)] = one.y, one.yvar
        unknown = sorted(set(variances) - set(outcomes))
        if unknown or not parts:
            return cls.failed(f"the objective returned no outcome {unknown[0] if unknown else ''}")
        return cls(parts=parts, reason=reason)


def _all_mappings(value: tuple[Any, ...]) -> bool:
    return len(value) == 2 and all(isinstance(one, Mapping) for one in value)


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


def _truth(value: Any) -> float:
    """A truth value as 1 or 0; NaN for anything else."""
    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
        return float(array.item()) if array.dtype == bool else math.nan
    except Exception:
        return math.nan


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        return "(without a printable form)"
    return text if len(text) <= 80 else f"{text[:77]}..."
