"""The history of fits of a computation-aware GP, which decides when the next one is due."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bo_stream.base.fitting.schedule import RefitSchedule
from bo_stream.mathematics.shapes import shaped

__all__ = ["FitHistory"]

RELEARN, REPARTITION = 1.25, 1.5
"""Growth of n after which a fit learns the values of actions again, and divides new blocks."""


@dataclass(frozen=True)
class FitHistory:
    """Data counts and residuals since the last fits, as tensors that are saved with the state.

    Attributes:
        fitted: Number of data at the last fit, int64.
        repartitioned: Number of data when rows were last divided into blocks by a fit, int64.
        learned: Number of data when learning the values of S last converged, int64.
        chi_square: Sum of squared standardised residuals since the last fit.
        residuals: Their number.
        start: Hyperparameters before the first fit, in coordinates of a fit.
    """

    fitted: Tensor = shaped("", "not negative")
    repartitioned: Tensor = shaped("", "not negative")
    learned: Tensor = shaped("", "not negative")
    chi_square: Tensor = shaped("", "not negative")
    residuals: Tensor = shaped("", "not negative")
    start: Tensor = shaped("h")

    @classmethod
    def empty(cls) -> FitHistory:
        """No fit yet."""
        none, zero = torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.float64)
        return cls(none, none, none, zero, zero, zero.new_empty(0))

    def begun(self, hyperparameters: Tensor) -> FitHistory:
        """Before a fit; the first one stores the initial hyperparameters (flat)."""
        if int(self.fitted):
            return self
        return replace(self, start=hyperparameters.to(self.start))

    def surprised(self, w: Tensor) -> FitHistory:
        """After new data with these standardised residuals."""
        chi_square = self.chi_square + w.square().sum()
        return replace(self, chi_square=chi_square, residuals=self.residuals + len(w))

    def ended(self, n: int, repartitioned: bool = False, learned: bool | None = None) -> FitHistory:
        """After a fit to n data.

        Args:
            n: Number of data.
            repartitioned: Whether it divided the rows into new blocks.
            learned: Whether learning the values of S has converged; None: it was not tried.
        """
        now = torch.full_like(self.fitted, n)
        return FitHistory(
            now,
            now if repartitioned else self.repartitioned,
            self.learned if learned is None else now * learned,
            torch.zeros_like(self.chi_square),
            torch.zeros_like(self.residuals),
            self.start,
        )

    def repartition_due(self, n: int) -> bool:
        """Whether to divide blocks by locality again: the data have grown by half."""
        return n >= REPARTITION * int(self.repartitioned)

    def learning_due(self, n: int) -> bool:
        """Whether to learn values of S again: the data have grown by a quarter.

        Values merged by compression favour the hyperparameters of that time.
        """
        return n >= RELEARN * int(self.learned)

    def refit_due(self, schedule: RefitSchedule, n: int) -> bool:
        """Whether a fit is due by the schedule."""
        score = float(self.chi_square), int(self.residuals)
        return schedule.due(n, int(self.fitted), *score)
