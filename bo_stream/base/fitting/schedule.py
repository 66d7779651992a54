"""When to refit: after growth of the data, or when predictions are worse than expected.

A refit of a family that keeps its data costs a pass over all of them. A loop that checks
`refit_due` after each `observe` fits about log(n) times, and whenever predictions turn out poor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bo_stream.errors import InputError

__all__ = ["RefitSchedule"]


@dataclass(frozen=True)
class RefitSchedule:
    """Refit when the data have grown, or when their predictive log score is too low.

    The deviation of the score from its expectation is a sum of squared standardised residuals,
    chi-square if the model is right. It is accumulated from the last fit on. Only too large a sum
    counts: a model with limited computation is rightly less certain than the exact one.

    Args:
        growth: Refit when n reaches this many times the n of the last fit.
        surprise: Refit when the sum exceeds its mean by this many standard deviations.
        at_least: Minimum number of residuals before the score is judged.

    Example:
        >>> schedule = RefitSchedule(growth=1.5)
        >>> schedule.due(149, 100, chi_square=49.0, residuals=49)
        False
        >>> schedule.due(150, 100, chi_square=49.0, residuals=50)
        True
        >>> schedule.due(120, 100, chi_square=60.0, residuals=20)
        True
    """

    growth: float = 1.5
    surprise: float = 4.0
    at_least: int = 5

    def __post_init__(self) -> None:
        if not (self.growth > 1.0 and self.surprise > 0.0 and self.at_least >= 1):
            raise InputError("growth > 1, surprise > 0, at_least >= 1", f"{self}", "Change them.")

    def due(self, n: int, fitted: int, chi_square: float, residuals: int) -> bool:
        """Whether to refit, given n, the n of the last fit, and the score since then."""
        if n == 0 or residuals == 0:
            return n > 0 and fitted == 0
        excess = (chi_square - residuals) / math.sqrt(2.0 * residuals)
        surprised = residuals >= self.at_least and excess > self.surprise
        return n >= self.growth * fitted or surprised
