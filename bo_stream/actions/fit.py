"""The fit of a computation-aware GP: hyperparameters and, depending on the policy, actions.

Values of S are learned together with the hyperparameters [CaGP, eq. 13] in the first fit, and after
the data have grown by a quarter, because values merged under earlier hyperparameters favour these.
Blocks of neighbours are measured in lengthscales: in the first fit, and after the data have grown
by half, rows are divided again between stages of the fit. Any other fit keeps S and takes a handful
of evaluations. Actions that are functions of the hyperparameters alternate with these.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.optimize import minimize

from bo_stream.actions.objective import ActionMLL, ActionModel
from bo_stream.base.fitting.ascent_objective import AscentObjective
from bo_stream.base.fitting.coordinates import Coordinates
from bo_stream.base.fitting.fit import MAX_EVALS, fit_model
from bo_stream.base.fitting.objective import log_prior, profiled_mean
from bo_stream.base.fitting.report import FitReport
from bo_stream.mathematics.computation_aware.matrix import ActionMatrix

__all__ = ["fit_actions"]

TURNS = 5
"""Most alternations between hyperparameters and actions that are functions of them."""

WINDOW = 10
GAIN = 1e-4
"""Converged once `WINDOW` steps gain less than this many nats per datum (and 0.01)."""


def fit_actions(model: ActionModel, max_evals: int | None = None) -> FitReport:
    """Fit hyperparameters and actions; if interrupted, the best point seen is kept.

    Args:
        model: The surrogate.
        max_evals: Maximum number of evaluations of objective and gradient.

    Raises:
        StateError, torch.linalg.LinAlgError: if the objective is not finite, or the covariance
            not positive definite, at the current hyperparameters.
    """
    n, S = model.num_observed, model.state.S
    history = model.state.history.begun(Coordinates(model, skip_mean=False).get())
    model._keep_history(history)
    divides = model.actions.by_locality and history.repartition_due(n)
    if model.actions.learned and S.num_actions < n and (divides or history.learning_due(n)):
        fit = _ValueFit(model, MAX_EVALS if max_evals is None else max_evals)
        report = fit.run(divides)
        history = history.ended(n, fit.divided, report.converged)
    elif model.actions.follows_hyperparameters:
        report, history = _fit_in_turns(model, max_evals), history.ended(n)
    else:
        report, history = fit_model(model, max_evals), history.ended(n)
    model._keep_history(history)
    return report


def _fit_in_turns(model: ActionModel, max_evals: int | None) -> FitReport:
    """Alternate fits of the hyperparameters with S fixed and new actions S."""
    evaluations, converged = 0, False
    for _ in range(TURNS):
        left = None if max_evals is None else max_evals - evaluations - 1
        if left is not None and left < 1:
            break
        _renew(model)
        turn = fit_model(model, left)
        evaluations, converged = evaluations + turn.evaluations, turn.converged
        if evaluations == 1:  # nothing to optimise
            return turn
        if turn.evaluations <= 3:  # the gain fell below tolerance at once
            break
    _renew(model)
    with torch.no_grad():
        value = model._objective(profile_mean=False)[0] + log_prior(model)
    return FitReport(evaluations + 1, float(value), converged)


def _renew(model: ActionModel) -> None:
    """Use the actions of the current hyperparameters."""
    if not model.state.factored_under(model._prior()):
        model._use_actions(model._current_actions())


class _ValueFit:
    """A fit of hyperparameters and values of S together, in progress.

    Args:
        model: The surrogate.
        most: Most evaluations in all.

    Attributes:
        divided: Whether rows have been divided into new blocks.
    """

    def __init__(self, model: ActionModel, most: int) -> None:
        self.model, self.most = model, most
        self.divided = False
        self._ascents: list[tuple[AscentObjective, ActionMLL]] = []

    def run(self, divides: bool) -> FitReport:
        """Ascend, and go to the best point of all stages.

        Args:
            divides: Whether to divide rows into new blocks.
        """
        try:
            try:
                self.model.train()
                converged = self._stages(divides)
            finally:
                self._settle()
        except BaseException:
            self._settle()  # again: an interruption may have come during the first call
            raise
        best = max(_value(objective) for objective, _ in self._ascents)
        return FitReport(self._evaluations, best, converged)

    @property
    def _evaluations(self) -> int:
        return sum(objective.evaluations for objective, _ in self._ascents)

    def _stages(self, divides: bool) -> bool:
        """One ascent, or two short ones and a long one, with new blocks between them.

        On a stream whose hyperparameters have changed, the short ones start from the initial and
        from the current hyperparameters, and the better result is continued: actions favour the
        hyperparameters under which they were built, learned and merged, and can hold a fit at long
        lengthscales or at noise alone. Returns whether the last ascent has converged.
        """
        coordinates = Coordinates(self.model, skip_mean=False)
        now, first = coordinates.get(), self.model.state.history.start.cpu()
        moved = now.shape == first.shape and not torch.allclose(now, first)
        starts = [now, first] if moved else [now]
        short = self.most // (4 + 2 * len(starts))
        if not (divides and short):
            return self._ascend(self.model.state.S, self.most)
        ends = []
        for number, start in enumerate(starts):
            if number:
                coordinates.set(coordinates.clip(start))
            self._ascend(self._blocks() if number else self.model.state.S, short)
            self._ascend(self._blocks(), short)
            ends.append((_value(self._ascents[-1][0]), coordinates.get()))
        coordinates.set(max(ends, key=lambda end: end[0])[1])
        self.divided = True
        return self._ascend(self._blocks(), self.most - self._evaluations)

    def _blocks(self) -> ActionMatrix:
        """Blocks in units of the current lengthscales."""
        return self.model.actions.made_for(self.model._problem())

    def _ascend(self, S: ActionMatrix, most: int) -> bool:
        """Ascend from the current hyperparameters and from S; whether it has converged."""
        model, mll = self.model, ActionMLL(self.model)
        mll.hold(S)
        profiled = profiled_mean(model)
        values = [] if mll.action_values is None else [mll.action_values]
        objective = AscentObjective(
            lambda: mll.value(profiled), Coordinates(model, profiled), values
        )
        self._ascents.append((objective, mll))
        converged = _lbfgs(objective, most, max(0.01, GAIN * model.num_observed))
        _go_to_best(model, objective)
        return converged

    def _settle(self) -> None:
        """Set the surrogate to the best point seen."""
        if self._ascents:
            objective, mll = max(self._ascents, key=lambda ascent: _value(ascent[0]))
            _go_to_best(self.model, objective)
            if objective.best is not None:
                mll.commit()
        self.model.eval()


def _value(objective: AscentObjective) -> float:
    """The highest value seen."""
    return -math.inf if objective.best is None else objective.best.value


def _go_to_best(model: ActionModel, objective: AscentObjective) -> None:
    """Set parameters and mean to the best point seen."""
    objective.settle()
    model.mean_module.zero_grad()  # a profiled mean is no parameter of the ascent
    if objective.best is not None and objective.best.mean is not None:
        model._set_prior_mean(objective.best.mean)


class _Stop(Exception):
    """Converged (True), or at the limit of evaluations (False)."""


def _lbfgs(objective: AscentObjective, most: int, enough: float) -> bool:
    """L-BFGS-B of scipy, restarted from the best point if its line search fails.

    Args:
        objective: The objective, of thousands of values.
        most: Most evaluations.
        enough: Gain of `WINDOW` steps, in nats, below which it has converged.

    Returns:
        Whether it has converged.
    """
    best, steps = objective.start(), []
    free = [math.inf] * (len(best.u) - objective.size)
    lower = [*objective.coordinates.lower.tolist(), *(-x for x in free)]
    upper = [*objective.coordinates.upper.tolist(), *free]

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        u, top = torch.from_numpy(x.copy()), objective.best or best
        if torch.equal(u, top.u):
            return -top.value, -top.gradient.numpy()
        if objective.evaluations >= most:
            raise _Stop(False)
        at = objective.evaluate(u)
        worst = top.value - 1e3 * (1.0 + abs(top.value))
        return -(at.value if math.isfinite(at.value) else worst), -at.gradient.numpy()

    def step(_: np.ndarray) -> None:
        steps.append(_value(objective))
        if len(steps) > WINDOW and steps[-1] - steps[-1 - WINDOW] < enough:
            raise _Stop(True)

    options = {"maxcor": 20, "maxiter": 10**6, "maxfun": 10**6, "ftol": 0.0, "gtol": 0.0}
    try:
        while True:
            best, taken = objective.best or best, len(steps)
            minimize(
                negative,
                best.u.numpy().copy(),
                jac=True,
                method="L-BFGS-B",
                bounds=[*zip(lower, upper, strict=True)],
                callback=step,
                options=options,
            )
            if _value(objective) - best.value < enough or len(steps) == taken:
                return True
    except _Stop as stop:
        return bool(stop.args[0])
