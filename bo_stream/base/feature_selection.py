"""Families that can select their features again while all data are buffered.

Their state is a `BufferedStatistics`: sums over features, and a buffer of the first points from
which the sums over other features follow exactly. Such a family implements `_suited_features` (the
best features for the current hyperparameters), `_features_outdated` (whether the features in use
should be replaced), and `_can_select` (whether a selection is possible at all).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bo_stream.base.fitting.report import FitReport
from bo_stream.base.stream import all_or_nothing
from bo_stream.errors import StateError

__all__ = [
    "GROWTH",
    "all_buffered",
    "check_buffered",
    "fit_and_select",
    "follow_hyperparameters",
    "select",
]

GROWTH = 2.0
"""A fit selects features again once the data have grown by this factor,"""
ROUNDS = 2
"""at most this many times, with a fit of the hyperparameters after each."""


def all_buffered(model: Any) -> bool:
    """Whether all points seen are still buffered."""
    return bool(model.state.holds_all(model.num_observed))


def check_buffered(model: Any, possible: bool, remedy: str) -> None:
    """Refuse a selection that is not possible.

    Raises:
        StateError: naming the remedy.
    """
    if not possible:
        raise StateError(
            "all points seen to be buffered, so that the features can be replaced",
            f"{model.num_observed} seen and at most {model._sizes()['w']} buffered",
            remedy,
        )


@all_or_nothing
def select(model: Any, features: Any) -> None:
    """Replace the features of a state whose points are all buffered."""
    model._replace(state=model.state.chosen(features, model.num_observed))


def follow_hyperparameters(model: Any) -> None:
    """Select features for hyperparameters that did not come from a fit, if that is possible."""
    if model.num_observed and model._can_select() and model._features_outdated():
        select(model, model._suited_features())


def fit_and_select(
    model: Any, fit: Callable[[int | None], FitReport], max_evals: int | None
) -> FitReport:
    """Fit the hyperparameters, alternating with feature selection while that is possible.

    A selection needs no evaluation. Without evaluations left, features are still selected for the
    final hyperparameters, and the report holds the value under the previous features. If
    interrupted, the best hyperparameters found under the features in use are kept.

    Args:
        model: The surrogate.
        fit: Fits its hyperparameters.
        max_evals: Maximum number of evaluations of objective and gradient in total.
    """
    report = fit(max_evals)
    due = model.num_observed >= GROWTH * float(model.state.chosen_at)
    for _ in range(ROUNDS if due and model._can_select() else 0):
        if not model._features_outdated():
            break
        select(model, model._suited_features())
        left = None if max_evals is None else max_evals - report.evaluations
        if left == 0:
            break
        report = report.and_then(fit(left))
    return report
