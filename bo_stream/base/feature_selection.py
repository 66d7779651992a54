"""Families that can select their features again while all data are buffered.

Their state is a `BufferedStatistics`: sums over features, and the first points, from which the
sums can be taken over other features exactly. Such a family says which features suit the
hyperparameters (`_suited_features`), whether those in use do not (`_features_outdated`), and
whether it may select others at all (`_can_select`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bo_stream.base.changes import all_or_nothing
from bo_stream.base.fitting.report import FitReport
from bo_stream.errors import StateError

__all__ = ["GROWTH", "all_buffered", "check_buffered", "fit_and_select", "select"]

GROWTH = 2.0
"""A fit selects features if there are this many times the data of the last selection,"""
ROUNDS = 2
"""this often at most, fitting the hyperparameters in between."""


def all_buffered(model: Any) -> bool:
    """Whether all points seen are buffered."""
    return bool(model.state.holds_all(model.num_observed))


def check_buffered(model: Any, possible: bool, remedy: str) -> None:
    """Refuse a selection that is not possible.

    Raises:
        StateError: naming the remedy.
    """
    if not possible:
        raise StateError(
            "all points seen at hand, to be summed over other features",
            f"{model.num_observed} seen and at most {model._sizes()['w']} held",
            remedy,
        )


@all_or_nothing
def select(model: Any, features: Any) -> None:
    """Sum over other features from now on, all points being buffered."""
    model._replace(state=model.state.chosen(features, model.num_observed))


def fit_and_select(
    model: Any, fit: Callable[[int | None], FitReport], max_evals: int | None
) -> FitReport:
    """Fit the hyperparameters, and select features that suit them while that is possible.

    A selection takes no evaluation: where none are left, features are still selected for the
    hyperparameters reached (or fits of few evaluations would never select any), and the report has
    the value under the features of before. Interrupted, it leaves the best hyperparameters seen
    under the features in use at that point.

    Args:
        model: The surrogate.
        fit: The fit of its hyperparameters.
        max_evals: Most objective-and-gradient evaluations in all.
    """
    report = fit(max_evals)
    due = model.num_observed >= GROWTH * float(model.state.opening.chosen_at)
    for _ in range(ROUNDS if due and model._can_select() else 0):
        if not model._features_outdated():
            break
        select(model, model._suited_features())
        left = None if max_evals is None else max_evals - report.evaluations
        if left == 0:
            break
        report = report.and_then(fit(left))
    return report
