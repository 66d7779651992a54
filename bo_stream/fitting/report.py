"""What a fit did."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FitReport"]


@dataclass(frozen=True)
class FitReport:
    """What a fit did.

    Attributes:
        evaluations: Objective-and-gradient evaluations used.
        value: The objective reached: evidence (or bound) plus log priors, in nats.
        converged: Whether it stopped because the gain fell below tolerance.
    """

    evaluations: int
    value: float
    converged: bool
