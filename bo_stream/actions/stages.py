"""Strategies for fitting hyperparameters and actions: in stages, or in turns.

A policy chooses one of them (`Actions.fit`). Each takes a `FitTask` and returns a `FitOutcome`: it
changes the hyperparameters, and returns the actions that the surrogate is to use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_stream.actions.fit_trace import FitTrace, LearningCurve, joined
from bo_stream.actions.history import FitHistory
from bo_stream.actions.objective import ActionMLL
from bo_stream.actions.optimise import OptimiserSettings, optimise
from bo_stream.base.fitting.coordinates import Coordinates
from bo_stream.base.fitting.objective import log_prior
from bo_stream.base.fitting.report import FitReport
from bo_stream.mathematics.computation_aware.matrix import ActionMatrix
from bo_stream.mathematics.computation_aware.problem import RegressionProblem

__all__ = ["FitOutcome", "FitTask", "fit_in_stages", "fit_in_turns"]

TURNS = 5
"""Most alternations between hyperparameters and actions that are functions of them."""

Build = Callable[[RegressionProblem], ActionMatrix]


@dataclass(frozen=True)
class FitTask:
    """One fit.

    Attributes:
        mll: The objective, with the surrogate's actions.
        search: The caller's settings.
        history: Earlier fits.
        trace: Records evaluations of an optimisation over S.
        fit_hyperparameters: The quasi-Newton fit of all families for given actions, which become
            the surrogate's (None: its own), with a limit of evaluations.
    """

    mll: ActionMLL
    search: OptimiserSettings
    history: FitHistory
    trace: FitTrace
    fit_hyperparameters: Callable[[ActionMatrix | None, int | None], FitReport]

    @property
    def problem(self) -> RegressionProblem:
        """The data under the current hyperparameters."""
        return self.mll.handle.problem()


@dataclass(frozen=True)
class FitOutcome:
    """The result of a fit.

    Attributes:
        report: The report.
        S: The actions to use; None: the surrogate's own.
        repartitioned: Whether rows were divided into new blocks.
        learned: Whether learning the values of S has converged; None: it was not tried.
    """

    report: FitReport
    S: ActionMatrix | None = None
    repartitioned: bool = False
    learned: bool | None = None


def fit_in_turns(task: FitTask, build: Build) -> FitOutcome:
    """Alternate fits of the hyperparameters with S fixed and new actions S."""
    most, evaluations = task.search.max_evals, 0
    turn: FitReport | None = None
    S: ActionMatrix | None = None
    for _ in range(TURNS):
        left = None if most is None else most - evaluations - 1
        if left is not None and left < 1:
            break
        turn = task.fit_hyperparameters(S, left)
        evaluations += turn.evaluations
        if evaluations == 1:  # nothing to optimise: S is as it would be built
            return FitOutcome(turn)
        S = build(task.problem)
        if turn.evaluations <= 3:  # the gain fell below tolerance at once
            break
    with torch.no_grad():
        value, _ = task.problem.bound(task.mll.handle.actions() if S is None else S)
        value = value + log_prior(task.mll.model)
    converged = turn is not None and turn.converged
    return FitOutcome(FitReport(evaluations + 1, float(value), converged))


def fit_in_stages(task: FitTask, build: Build | None) -> FitOutcome:
    """Fit hyperparameters and values of S jointly, at once or between partitions.

    If ``build`` is given, there are two short optimisations and a long one, and S is built again
    between them, in units of the lengthscales just learned. On a stream whose hyperparameters have
    changed, the short ones start from the initial and from the current hyperparameters, and the
    better result is continued: actions favour the hyperparameters under which they were built,
    learned and merged, and can hold a fit at long lengthscales or at noise alone.
    """
    mll, most = task.mll, task.search.most
    coordinates = Coordinates(mll.model, skip_mean=False)
    starts = _starts(coordinates.get(), task.history)
    short = most // (4 + 2 * len(starts)) if build is not None else 0
    curves: list[LearningCurve] = []

    def stage(evaluations: int) -> tuple[float, Tensor]:
        curves.append(optimise(mll, evaluations, task.search, task.trace))
        return curves[-1].value, coordinates.get()

    if build is None or not short:
        stage(most)
        return FitOutcome(curves[0], mll.chosen(), learned=curves[0].converged)

    def repartition(place: Tensor) -> None:
        coordinates.set(coordinates.clip(place))
        mll.hold(build(task.problem))

    ends = []
    for number, start in enumerate(starts):
        if number:
            repartition(start)
        repartition(stage(short)[1])
        ends.append(stage(short))
    repartition(max(ends, key=lambda end: end[0])[1])
    stage(most - short * len(curves))
    report = joined(curves)
    return FitOutcome(report, mll.chosen(), repartitioned=True, learned=report.converged)


def _starts(now: Tensor, history: FitHistory) -> list[Tensor]:
    """Starting points of a fit: the current and, if they differ, the initial hyperparameters."""
    start = history.start.cpu()
    moved = now.shape == start.shape and not torch.allclose(now, start)
    return [now, start] if moved else [now]
