"""How a fit of hyperparameters and actions proceeds: once, in stages, or in turns.

A policy chooses among these ways (`Actions.fit`). Each gets a `Task` and gives an `Outcome`: it
moves the hyperparameters, and says which actions the surrogate is to use; the surrogate writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_stream.actions.climb import Search, climb
from bo_stream.actions.fit_trace import Course, LearningCurve, joined
from bo_stream.actions.history import FitHistory
from bo_stream.actions.objective import ActionMLL
from bo_stream.base.fitting.coordinates import Coordinates
from bo_stream.base.fitting.objective import log_prior
from bo_stream.base.fitting.report import FitReport
from bo_stream.mathematics.computation_aware.matrix import ActionMatrix
from bo_stream.mathematics.computation_aware.problem import Problem

__all__ = ["Outcome", "Task", "fit_in_stages", "fit_in_turns", "fit_plainly"]

TURNS = 5
"""Most turns between hyperparameters and actions that are functions of them."""

Build = Callable[[Problem], ActionMatrix]


@dataclass(frozen=True)
class Task:
    """One fit.

    Attributes:
        mll: The objective, with the surrogate's actions.
        search: What the caller asked for.
        history: The fits before.
        course: Where evaluations of a climb in S are noted.
        fit_hyperparameters: The quasi-Newton method of all families on the objective for given
            actions (which become the surrogate's; None: those it has), with a limit of evaluations.
    """

    mll: ActionMLL
    search: Search
    history: FitHistory
    course: Course
    fit_hyperparameters: Callable[[ActionMatrix | None, int | None], FitReport]

    @property
    def problem(self) -> Problem:
        """The data under the hyperparameters of now."""
        return self.mll.handle.problem()


@dataclass(frozen=True)
class Outcome:
    """What a fit has come to; the hyperparameters have been moved.

    Attributes:
        report: The report.
        S: The actions to use from now on; None: those the surrogate has.
        repartitioned: Whether rows were divided into new blocks.
        learned: Whether learning the values of S has converged; None: it was not tried.
    """

    report: FitReport
    S: ActionMatrix | None = None
    repartitioned: bool = False
    learned: bool | None = None


def fit_plainly(task: Task, build: Build | None) -> Outcome:
    """Hyperparameters for the actions there are; then, if ``build`` is given, for new ones."""
    most = task.search.max_evals
    half = most if most is None or build is None else max(1, most // 2)
    first = task.fit_hyperparameters(None, half)
    left = None if most is None else most - first.evaluations
    if build is None or (left is not None and left < 1):
        return Outcome(first)
    last = task.fit_hyperparameters(build(task.problem), left)
    evaluations = first.evaluations + last.evaluations
    return Outcome(FitReport(evaluations, last.value, last.converged), repartitioned=True)


def fit_in_turns(task: Task, build: Build) -> Outcome:
    """Hyperparameters with S held, then S anew: each turn climbs a bound by its true gradient."""
    most, evaluations = task.search.max_evals, 0
    turn: FitReport | None = None
    S: ActionMatrix | None = None
    for _ in range(TURNS):
        left = None if most is None else most - evaluations - 1
        if left is not None and left < 1:
            break
        turn = task.fit_hyperparameters(S, left)
        evaluations += turn.evaluations
        if evaluations == 1:  # nothing to climb: S is as it would be made
            return Outcome(turn)
        S = build(task.problem)
        if turn.evaluations <= 3:  # the gain fell below tolerance at once
            break
    with torch.no_grad():
        value, _ = task.problem.bound(task.mll.handle.actions() if S is None else S)
        value = value + log_prior(task.mll.model)
    converged = turn is not None and turn.converged
    return Outcome(FitReport(evaluations + 1, float(value), converged))


def fit_in_stages(task: Task, build: Build | None) -> Outcome:
    """Hyperparameters and values of S jointly, in one climb or between partitions.

    Where ``build`` is given: two short climbs and a long one. S is made anew between them, in units
    of the lengthscales just learned. A stream whose hyperparameters have left their start makes
    the short climbs from both places and goes on from the better end: S fits the hyperparameters
    it was made, learned and merged under, and can hold a fit to them (to long lengthscales, or to
    noise alone, where nothing says where the blocks should lie).
    """
    mll, most = task.mll, task.search.most
    coordinates = Coordinates(mll.model, skip_mean=False)
    starts = _starts(coordinates.get(), task.history)
    short = most // (4 + 2 * len(starts)) if build is not None else 0
    curves: list[LearningCurve] = []

    def stage(evaluations: int) -> tuple[float, Tensor]:
        curves.append(climb(mll, evaluations, task.search, task.course))
        return curves[-1].value, coordinates.get()

    if build is None or not short:
        stage(most)
        return Outcome(curves[0], mll.chosen(), learned=curves[0].converged)

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
    return Outcome(report, mll.chosen(), repartitioned=True, learned=report.converged)


def _starts(now: Tensor, history: FitHistory) -> list[Tensor]:
    """Where the short climbs of a fit start: here, and where the stream once began."""
    start = history.start.cpu()
    moved = now.shape == start.shape and not torch.allclose(now, start)
    return [now, start] if moved else [now]
