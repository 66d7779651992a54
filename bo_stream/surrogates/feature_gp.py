"""The base of families that can choose their features again while all data are buffered.

Their state is a set of sums over features (`bo_stream.mathematics.sums`), and either a buffer of
the first points or sums that hold for any features, from which the sums over others follow exactly.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from bo_stream.base.fitting import FitReport
from bo_stream.base.stream import all_or_nothing
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import StateError

__all__ = ["GROWTH", "FeatureGP"]

GROWTH = 2.0
"""A fit selects features again once the data have grown by this factor,"""
ROUNDS = 2
"""at most this many times, with a fit of the hyperparameters after each."""


class FeatureGP(StreamingGP):
    """A surrogate whose `fit` selects features for the hyperparameters it finds.

    If a fit is interrupted, the best hyperparameters found under the features in use are kept.
    """

    conditions_up_to = 64
    opening: int

    @abstractmethod
    def _suited_features(self) -> Any:
        """The best features for the current hyperparameters: an argument of `state.chosen`."""

    @abstractmethod
    def _features_outdated(self) -> bool:
        """Whether the features in use should be replaced."""

    def _can_select(self) -> bool:
        """Whether other features can be selected."""
        return self._all_buffered

    @property
    def _all_buffered(self) -> bool:
        """Whether all points seen are still buffered."""
        return bool(self.state.holds_all(self.num_observed))

    def _check_selectable(self, remedy: str) -> None:
        """Refuse to select features if points are no longer buffered.

        Raises:
            StateError: naming the remedy.
        """
        if not self._all_buffered:
            raise StateError(
                "all points seen to be buffered, so that the features can be replaced",
                f"{self.num_observed} seen and at most {self._sizes()['w']} buffered",
                remedy,
            )

    @all_or_nothing
    def _select(self, features: Any) -> None:
        """Replace the features of a state whose points are all buffered."""
        self._replace(state=self.state.chosen(features, self.num_observed))

    def _search(self, max_evals: int | None) -> FitReport:
        """Hyperparameters, and features for them while they can be selected.

        Without evaluations left after a selection, which takes none, the report holds the value
        under the previous features.
        """
        report = super()._search(max_evals)
        due = self.num_observed >= GROWTH * float(self.state.chosen_at)
        for _ in range(ROUNDS if due and self._can_select() else 0):
            if not self._features_outdated():
                break
            self._select(self._suited_features())
            left = None if max_evals is None else max_evals - report.evaluations
            if left == 0:
                break
            report = report.and_then(super()._search(left))
        return report

    def _hyperparameters_changed(self, saved: Mapping[str, Any] | None = None) -> None:
        """Select features for loaded hyperparameters, if that is possible."""
        loaded = saved is not None and self.num_observed > 0
        if loaded and self._can_select() and self._features_outdated():
            self._select(self._suited_features())
