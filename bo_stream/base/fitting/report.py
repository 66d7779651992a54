"""The result of a fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["FitReport"]


@dataclass(frozen=True)
class FitReport:
    """The result of a fit.

    Attributes:
        evaluations: Number of evaluations of objective and gradient.
        value: The objective reached: evidence (or bound) plus log priors, in nats.
        converged: Whether it stopped because the gain fell below the tolerance.
    """

    evaluations: int
    value: float
    converged: bool

    def and_then(self, other: FitReport) -> FitReport:
        """This fit followed by another, as one report."""
        return replace(other, evaluations=self.evaluations + other.evaluations)
