"""What a fit did."""

from __future__ import annotations

from dataclasses import dataclass, replace

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

    def and_then(self, other: FitReport) -> FitReport:
        """This fit and one that went on from it."""
        return replace(other, evaluations=self.evaluations + other.evaluations)
