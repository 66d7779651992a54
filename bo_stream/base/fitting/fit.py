"""Fitting a surrogate's hyperparameters: where from, how far, and what is kept.

Positive hyperparameters are climbed in their logarithm, where curvature is well scaled; bounds of
gpytorch constraints are kept by projection; a free constant mean takes its closed-form optimum at
each evaluation (MATHS 2.4). A warm fit climbs from where the hyperparameters are with the curvature
kept from the last one. The first fit, and one after the data have grown several-fold, starts from
other places too and goes on from the best: an objective has several modes, and with few data the
wrong one may be the higher.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bo_stream.base.fitting.bfgs import Ascent, ascend
from bo_stream.base.fitting.climb import Climb
from bo_stream.base.fitting.coordinates import Coordinates
from bo_stream.base.fitting.memory import FitMemory
from bo_stream.base.fitting.objective import Climbed, check_evaluations, log_prior, profiled_mean
from bo_stream.base.fitting.report import FitReport
from bo_stream.base.fitting.starts import far_starts

__all__ = ["fit_model"]

TOLERANCE = 0.01
"""A climb stops when a step gains, or promises to gain, less than this many nats."""

CLOSER = 0.001
"""The same for the last climb, without the curvature, before a fit is said to have converged."""

MAX_EVALS = 200

FEW_EVALS = 6
"""A warm fit of no more evaluations needs no second look unless its gradient is large."""

GROWTH = 4.0
"""Far starts are tried again when there are this many times the data of the last time."""

LOOK = 1.25

RUNGS = ((6, 4), (14, 2))
"""Evaluations that climbs from far starts have had, and how many of them then go on."""

SAME = 0.3


def fit_model(
    model: Climbed, max_evals: int | None = None, trust: float | None = None
) -> FitReport:
    """Maximise evidence plus log priors by projected BFGS with the model's kept curvature.

    Cost: a warm fit takes a handful of evaluations, of the family's cost each; a fit that tries far
    starts 60 to 120. Interrupted at any moment, it leaves the best point seen.

    Args:
        model: The surrogate.
        max_evals: Most objective-and-gradient evaluations, all starts together.
        trust: Largest change of the logarithm of a positive hyperparameter; None for no limit. With
            a limit there are no far starts.

    Raises:
        StateError, torch.linalg.LinAlgError: if the objective is not finite, or the covariance not
            positive definite, at the hyperparameters of now: nothing has changed then. (A trial
            step to such a place is taken back.)
    """
    check_evaluations(max_evals)
    fit = _Fit(model, trust, MAX_EVALS if max_evals is None else max_evals)
    try:
        try:
            return fit.run()
        finally:
            fit.settle()
    except BaseException:
        fit.settle()  # again: an interruption may have come while it was settling
        raise


class _Fit:
    """One fit under way: what it climbs, and what it will leave behind."""

    def __init__(self, model: Climbed, trust: float | None, most: int) -> None:
        skip_mean = profiled_mean(model)
        coordinates = Coordinates(model, skip_mean)
        if trust is not None:
            coordinates.confine(trust)

        def objective() -> tuple[Tensor, Tensor | None]:
            value, mean = model._objective(profile_mean=skip_mean)
            return value + log_prior(model), mean

        self.model, self.most = model, most
        self.climb = Climb(objective, coordinates)
        memory: FitMemory = model.stream.contents.fits
        self.curvature, self.explored = memory.curvature.cpu(), memory.explored.cpu()
        self.far = model.explores and trust is None
        self.path: Ascent | None = None

    @property
    def left(self) -> int:
        """Evaluations that may still be made."""
        return self.most - self.climb.evaluations

    def run(self) -> FitReport:
        """Climb, from several starts if they are due, and look again before it is enough."""
        self.model.train()
        start = self.climb.start()
        if not len(start.u):
            return FitReport(1, start.value, True)
        warm = len(self.curvature) == len(start.u)
        path = Ascent(start, self.curvature if warm else None)
        starts = self._starts(start.u)
        if starts:
            path = self._best_of([path, *(Ascent(self.climb.evaluate(u)) for u in starts)])
        else:
            path = self._onward(path, self.left)
        n = float(self.model.num_observed)
        explored, looked = self.explored[:2].tolist() if len(self.explored) else (0.0, 0.0)
        if not warm or self.climb.evaluations > FEW_EVALS or n >= LOOK * looked:
            path, looked = self._looked_at_again(path), n
        now = path.at.u.new_tensor([n if starts else explored, looked])
        self.explored = torch.cat([now, self._first(start.u)])
        self.path = path
        best = start if self.climb.best is None else self.climb.best
        return FitReport(self.climb.evaluations, best.value, path.converged)

    def _first(self, now: Tensor) -> Tensor:
        """Where the first fit started."""
        return self.explored[2:] if len(self.explored) == 2 + len(now) else now

    def _starts(self, now: Tensor) -> list[Tensor]:
        """Far starts, as many as half the evaluations allow; none if they are not due."""
        n = self.model.num_observed
        due = n > 0 and (not len(self.explored) or n >= GROWTH * float(self.explored[0]))
        if not (self.far and due):
            return []
        made = far_starts(self.climb.coordinates, self._first(now), now)
        return made[: max(0, self.left - self.most // 2) // RUNGS[0][0]]

    def _best_of(self, paths: list[Ascent]) -> Ascent:
        """The best end of several climbs, of which the less promising are given up on the way."""
        done = 1
        for evaluations, kept in RUNGS:
            paths = [self._onward(path, evaluations - done) for path in paths]
            paths = _distinct(sorted(paths, key=lambda path: -path.at.value))[:kept]
            done = evaluations
        return max((self._onward(path) for path in paths), key=lambda path: path.at.value)

    def _onward(self, path: Ascent, most: int = MAX_EVALS) -> Ascent:
        if path.converged or not math.isfinite(path.at.value):
            return path
        return ascend(self.climb, path, min(most, self.left), TOLERANCE)

    def _looked_at_again(self, path: Ascent) -> Ascent:
        """Climb on without the curvature, to a closer tolerance, until that gains nothing: one
        small step under a bad inverse Hessian looks like the end.
        """
        while path.converged and self.left > 0:
            again = ascend(self.climb, Ascent(path.at), self.left, CLOSER)
            gain = again.at.value - path.at.value
            if gain < TOLERANCE:
                return Ascent(again.at, path.inverse, again.converged)
            path = again
        return path

    def settle(self) -> None:
        """Leave the best point seen in the model, and what the next fit goes on from."""
        model, best = self.model, self.climb.best
        self.climb.settle()
        model.mean_module.zero_grad()  # a profiled mean is none of the climb's parameters
        if best is not None and best.mean is not None:
            model._set_prior_mean(best.mean)
        if best is not None and len(best.u):
            inverse = None if self.path is None else self.path.inverse
            empty = best.u.new_empty(0, 0)
            curvature = empty if inverse is None else inverse
            model._note(fits=FitMemory(curvature, self.explored))
        model.eval()


def _distinct(paths: list[Ascent]) -> list[Ascent]:
    """Climbs that are not about to end where an earlier one does."""
    kept: list[Ascent] = []
    for path in paths:
        if all(float((path.at.u - other.at.u).abs().max()) > SAME for other in kept):
            kept.append(path)
    return kept
