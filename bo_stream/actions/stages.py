"""What a fit of a CaGP consists of: legs between cuts of its blocks, turns, or a few steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bo_stream.actions.climb import (
    MAX_EVALS,
    ActionMLL,
    LearningCurve,
    Optimizer,
    Progress,
    fit_actions,
)
from bo_stream.errors import InputError
from bo_stream.fitting.bfgs import fit_model
from bo_stream.fitting.coordinates import Coordinates
from bo_stream.fitting.objective import check_evaluations, log_prior
from bo_stream.fitting.report import FitReport

if TYPE_CHECKING:
    from bo_stream.cagp import CaGP

__all__ = ["fit_in_legs"]

TURNS = 5
"""Most turns between hyperparameters and actions that are functions of them."""


def fit_in_legs(
    mll: ActionMLL,
    max_evals: int | None = None,
    optimizer: Optimizer | None = None,
    lr: float = 0.1,
    progress: Progress | None = None,
) -> FitReport:
    """The fit of a CaGP, by what there is to fit.

    Where values of S are due to be learned, or an optimizer is named: jointly, by `fit_actions`, in
    legs if a cut is due. Otherwise S stays and the hyperparameters are fitted by the quasi-Newton
    method of all families, whose curvature is kept: a handful of evaluations. Arguments as in
    `fit_actions`.
    """
    check_evaluations(max_evals)
    model, named = mll.model, optimizer or "lbfgs"
    model.remember_start()
    if named not in MAX_EVALS:
        raise InputError('optimizer "lbfgs" or "adam"', f"{optimizer!r}", "Choose one of the two.")
    learn = mll.action_values is not None and (model.recut_due or model.learning_due)
    report: FitReport
    learned: bool | None = None
    if learn or optimizer is not None or progress is not None or mll.loss != "elbo":
        most = max_evals or MAX_EVALS[named]
        report = _joined(_legs(mll, most, named, lr, progress))
        learned = report.converged
    elif model.actions.follows_hyperparameters:
        report = _fit_in_turn(model, max_evals)
    else:
        report = fit_model(model, max_evals)
        if model.recut_due:
            model.recut()
            report = fit_model(model, max_evals)
    model.mark_fitted(learned)
    return report


def _legs(
    mll: ActionMLL, most: int, optimizer: Optimizer, lr: float, progress: Progress | None
) -> list[LearningCurve]:
    """One climb, or, where blocks are due to be cut anew, two short ones and a long one.

    S is cut between them, in units of the lengthscales just learned. A stream whose hyperparameters
    have left their start makes the short climbs from both places and goes on from the better end:
    S fits the hyperparameters it was cut, learned and merged under, and can hold a fit to them (to
    long lengthscales, or to noise alone, where nothing says how to cut).
    """
    model, coordinates = mll.model, Coordinates(mll.model, skip_mean=False)
    now = coordinates.get() if coordinates.items else torch.empty(0, dtype=torch.float64)
    starts = [now]
    if now.shape == model.start.shape and not torch.allclose(now, model.start.cpu()):
        starts.append(model.start.cpu())
    first = most // (4 + 2 * len(starts)) if model.recut_due else 0
    if not first:
        return [fit_actions(mll, most, optimizer, lr, progress)]
    reports: list[LearningCurve] = []
    ends: list[tuple[float, Tensor]] = []

    def cut_at(place: Tensor) -> None:
        if coordinates.items:
            coordinates.set(coordinates.clip(place))
        model.recut()
        mll.refresh()

    for start in starts:
        if reports:
            cut_at(start)
        for leg in range(2):
            if leg:
                cut_at(ends.pop()[1])
            reports.append(fit_actions(mll, first, optimizer, lr, progress))
            ends.append((reports[-1].value, coordinates.get() if coordinates.items else now))
    cut_at(max(ends, key=lambda end: end[0])[1])
    left = most - first * len(reports)
    return [*reports, fit_actions(mll, left, optimizer, lr, progress)]


def _fit_in_turn(model: CaGP, max_evals: int | None) -> FitReport:
    """Hyperparameters with S held, then S anew: each turn climbs a bound by its true gradient."""
    evaluations, turn = 0, None
    for _ in range(TURNS):
        left = None if max_evals is None else max_evals - evaluations - 1
        if left is not None and left < 1:
            break
        with model.held_actions():
            turn = fit_model(model, left)
        evaluations += turn.evaluations
        if evaluations == 1:  # nothing to climb: S is as it would be made
            return turn
        if turn.evaluations <= 3:  # the gain fell below tolerance at once
            break
    with torch.no_grad():
        value = model.log_evidence() + log_prior(model)
    return FitReport(evaluations + 1, float(value), turn is not None and turn.converged)


def _joined(reports: list[LearningCurve]) -> LearningCurve:
    """One report of consecutive legs."""
    seconds: tuple[float, ...] = ()
    for report in reports:
        start = seconds[-1] if seconds else 0.0
        seconds += tuple(start + s for s in report.seconds)
    return LearningCurve(
        sum(report.evaluations for report in reports),
        reports[-1].value,
        reports[-1].converged,
        seconds,
        sum((report.values for report in reports), ()),
    )
