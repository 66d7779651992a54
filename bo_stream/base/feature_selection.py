"""Families that choose what they sum over, and choose anew while all points are at hand."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from bo_stream.base.additive import AdditiveGP
from bo_stream.base.fitting.report import FitReport
from bo_stream.errors import StateError

__all__ = ["ChoosingGP"]

GROWTH = 2.0
"""A fit chooses anew if there are this many times the data of the last time,"""
ROUNDS = 2
"""this often at most, climbing in between."""


class ChoosingGP(AdditiveGP):
    """An additive surrogate whose features fit its lengthscales, while its first points are held.

    Its state is a `BufferedStatistics`. A family says which features fit (`_fitting`), whether
    those it has do not (`_misfit`), and what to do once points are no longer held (`_remedy`).

    Attributes:
        opening: Number of first points that are held.
    """

    opening: int
    _remedy: str

    @abstractmethod
    def _fitting(self) -> Any:
        """The features for the hyperparameters of now."""

    @abstractmethod
    def _misfit(self) -> bool:
        """Whether others would serve the hyperparameters of now better."""

    @property
    def _chooses(self) -> bool:
        """Whether a fit may choose."""
        return True

    def _choosable(self) -> bool:
        """Whether there is a choice at all: all points seen are at hand."""
        return bool(self.held().holds_all(self.num_observed))

    def _check_choosable(self) -> None:
        if not self._choosable():
            raise StateError(
                "all points seen at hand, to be summed over other features",
                f"{self.num_observed} seen and at most {self._sizes()['w']} held",
                self._remedy,
            )

    def _choose(self, features: Any) -> None:
        """Sum over other features from now on, with all points at hand."""
        self.hold("state", self.held().chosen(features, self.num_observed))
        self._changed()

    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit the hyperparameters, warm-started, and the features to them while that is possible.

        A choice takes no evaluation: where none are left, the features are still chosen for the
        hyperparameters reached (or fits of few evaluations would never move them), and the report
        has the value under the features of before. Interrupted, it leaves the best hyperparameters
        seen under the features of then.

        Args:
            max_evals: Most objective-and-gradient evaluations; None: until the gain falls below
                0.01 nat.
        """
        report = super().fit(max_evals)
        due = self.num_observed >= GROWTH * float(self.held().opening.chosen_at)
        due = due and self._chooses and self._choosable()
        for _ in range(ROUNDS if due else 0):
            if not self._misfit():
                break
            self._wholly(lambda: self._choose(self._fitting()))
            left = None if max_evals is None else max_evals - report.evaluations
            if left == 0:
                break
            report = report.and_then(super().fit(left))
        return report
