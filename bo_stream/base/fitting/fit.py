"""Fitting a surrogate's hyperparameters.

Positive hyperparameters are optimised in their logarithm, where curvature is well scaled. Bounds of
gpytorch constraints are enforced by projection. A free constant mean takes its closed-form optimum
at each evaluation (MATHS 2.4). A warm fit starts from the current hyperparameters with the
curvature of the last fit. The first fit, and every fit after the data have grown several-fold, also
tries distant starts and continues from the best: the objective has several modes, and with few data
the wrong one may be the higher.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from botorch.optim.closures.core import ForwardBackwardClosure
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.mlls import MarginalLogLikelihood
from torch import Tensor

from bo_stream.base.fitting.bfgs import Ascent, AscentObjective, ascend
from bo_stream.base.fitting.coordinates import ClosedForm, Coordinates, log_prior, profiled_mean
from bo_stream.errors import InputError
from bo_stream.mathematics.shapes import shaped

__all__ = [
    "FitMemory",
    "FitReport",
    "Fittable",
    "StreamMLL",
    "check_evaluations",
    "far_starts",
    "fit_model",
    "objective_of",
]

TOLERANCE = 0.01
"""An ascent stops when the actual or predicted gain of a step is below this, in nats."""

CLOSER = 0.001
"""The tolerance of the final check, which starts without the kept curvature."""

MAX_EVALS = 200

FEW_EVALS = 6
"""Warm fits of at most this many evaluations skip the final check unless it is due."""

GROWTH = 4.0
"""Distant starts are tried again once the data have grown by this factor."""

LOOK = 1.25
"""Growth of the data after which the final check is due, whatever the number of evaluations."""

RUNGS = ((6, 4), (14, 2))
"""Stages of the multi-start: evaluations spent per start, and the number of starts kept."""

SAME = 0.3
"""Distance of coordinates within which ascents are taken to reach the same point."""

SHORT, LONG = math.log(0.3), math.log(10.0)
QUIET, LITTLE, NOISY = math.log(1e-3), math.log(0.03), math.log(0.5)

GROUPS = 6
"""Most starts with a single short lengthscale; in more dimensions, several share a start."""


@dataclass(frozen=True)
class FitReport:
    """The result of a fit.

    Attributes:
        evaluations: Number of evaluations of objective and gradient.
        value: The objective reached: evidence (or bound) plus log priors, in nats.
        converged: Whether it stopped because the gain fell below the tolerance.
    """

    evaluations: int
    value: float
    converged: bool

    def and_then(self, other: FitReport) -> FitReport:
        """This fit followed by another, as one report."""
        return replace(other, evaluations=self.evaluations + other.evaluations)


@dataclass(frozen=True)
class FitMemory:
    """The starting information of the next fit; empty before the first.

    Attributes:
        curvature: Inverse Hessian of the objective in the coordinates of a fit.
        explored: Number of data when distant starts were last tried, number of data at the last
            final check, then the coordinates at which the first fit started.
    """

    curvature: Tensor = shaped("c c")
    explored: Tensor = shaped("e")

    @classmethod
    def empty(cls) -> FitMemory:
        """Before the first fit."""
        none = torch.empty(0, dtype=torch.float64)
        return cls(none.reshape(0, 0), none)


class Fittable(Protocol):
    """The interface that a fit requires of a surrogate.

    Attributes:
        covar_module, mean_module, likelihood: Modules with the hyperparameters.
    """

    covar_module: Kernel
    mean_module: Mean
    likelihood: Likelihood

    @property
    def explores(self) -> bool:
        """Whether the objective covers all data, so that distant starts can be compared by it."""

    @property
    def num_outputs(self) -> int:
        """The number of outputs ``o``."""

    @property
    def num_observed(self) -> int:
        """Number of observations that the objective covers."""

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """The objective without priors and, with ``profile_mean``, the optimal constant means."""

    def _prepare_fit(self, coordinates: Coordinates, profile_mean: bool) -> ClosedForm | None:
        """Restrict a fit's coordinates; return its objective in closed form, if there is one."""

    def _set_prior_mean(self, means: Tensor) -> None: ...

    @property
    def stream(self) -> Any:
        """The surrogate's stream, including the `FitMemory` of the last fit."""

    def _note(self, *, fits: FitMemory) -> None: ...

    def named_priors(self) -> Iterator[Any]:
        """Priors of all hyperparameters, with gpytorch's names."""

    def train(self, mode: bool = True) -> Any:
        """Switch to training mode."""

    def eval(self) -> Any:
        """Switch to evaluation mode."""


class StreamMLL(MarginalLogLikelihood):
    """A surrogate's objective as a gpytorch `MarginalLogLikelihood`, for `fit_gpytorch_mll`.

    Calling it returns evidence plus log priors, 0-dim, in nats, not divided by the number of
    observations. Its arguments are ignored, because no targets are stored.
    """

    model: Fittable

    def __init__(self, model: Fittable) -> None:
        super().__init__(model.likelihood, model)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Evidence (or bound) plus log priors."""
        return self.model._objective(profile_mean=False)[0] + log_prior(self.model)

    def closure(self) -> Callable[[], Any]:
        """A forward-backward closure of the negative objective, for BoTorch's optimizers."""
        parameters = {n: p for n, p in self.named_parameters() if p.requires_grad}
        return ForwardBackwardClosure(lambda: -self(), parameters)

    def climb(self, optimizer: Callable[..., Any], options: Mapping[str, Any]) -> None:
        """Run a user's optimizer, which takes this module and its `closure`."""
        self.train()
        optimizer(self, closure=self.closure(), **options)
        self.eval()

    def refresh(self) -> None:
        """Take what a fit has changed besides the hyperparameters; by default nothing."""


def check_evaluations(max_evals: int | None) -> None:
    """Refuse limits below one evaluation.

    Raises:
        InputError: if ``max_evals`` is below 1.
    """
    if max_evals is not None and max_evals < 1:
        raise InputError("max_evals >= 1, or None", f"{max_evals}", "Leave it out for no limit.")


def fit_model(
    model: Fittable, max_evals: int | None = None, trust: float | None = None
) -> FitReport:
    """Maximise evidence plus log priors by projected BFGS with the model's kept curvature.

    A warm fit takes a handful of evaluations; a fit that tries distant starts takes 60 to 120. If
    interrupted, the best point seen is kept.

    Args:
        model: The surrogate.
        max_evals: Maximum number of evaluations of objective and gradient, over all starts.
        trust: Largest change of the logarithm of a positive hyperparameter; None for no limit.
            With a limit, distant starts are not tried.

    Raises:
        StateError, torch.linalg.LinAlgError: if the objective is not finite, or the covariance
            not positive definite, at the current hyperparameters, which are then unchanged.
            Trial steps to such points are rejected without an error.
    """
    check_evaluations(max_evals)
    fit = _Fit(model, trust, MAX_EVALS if max_evals is None else max_evals)
    try:
        try:
            return fit.run()
        finally:
            fit.settle()
    except BaseException:
        fit.settle()  # again: an interruption may have come during the first call
        raise


def objective_of(model: Fittable, trust: float | None = None) -> AscentObjective:
    """What a fit maximises: the objective plus log priors, in the coordinates of a surrogate."""
    profiled = profiled_mean(model)
    coordinates = Coordinates(model, profiled)
    if trust is not None:
        coordinates.confine(trust)

    def objective() -> tuple[Tensor, Tensor | None]:
        value, mean = model._objective(profile_mean=profiled)
        return value + log_prior(model), mean

    return AscentObjective(objective, coordinates, model._prepare_fit(coordinates, profiled))


class _Fit:
    """One fit in progress."""

    def __init__(self, model: Fittable, trust: float | None, most: int) -> None:
        self.model, self.most, self.objective = model, most, objective_of(model, trust)
        memory: FitMemory = model.stream.contents.fits
        self.curvature, self.explored = memory.curvature.cpu(), memory.explored.cpu()
        self.far = model.explores and trust is None
        self.path: Ascent | None = None

    @property
    def left(self) -> int:
        """Number of evaluations left."""
        return self.most - self.objective.evaluations

    def run(self) -> FitReport:
        """Ascend, from several starts if they are due, and check the result."""
        self.model.train()
        start = self.objective.start()
        if not len(start.u):
            return FitReport(1, start.value, True)
        warm = len(self.curvature) == len(start.u)
        path = Ascent(start, self.curvature if warm else None)
        starts = self._starts(start.u)
        if starts:
            path = self._best_of([path, *(Ascent(self.objective.evaluate(u)) for u in starts)])
        else:
            path = self._onward(path, self.left)
        n = float(self.model.num_observed)
        explored, looked = self.explored[:2].tolist() if len(self.explored) else (0.0, 0.0)
        if not warm or self.objective.evaluations > FEW_EVALS or n >= LOOK * looked:
            path, looked = self._looked_at_again(path), n
        now = path.at.u.new_tensor([n if starts else explored, looked])
        self.explored = torch.cat([now, self._first(start.u)])
        self.path = path
        best = start if self.objective.best is None else self.objective.best
        return FitReport(self.objective.evaluations, best.value, path.converged)

    def _first(self, now: Tensor) -> Tensor:
        """The coordinates at which the first fit started."""
        return self.explored[2:] if len(self.explored) == 2 + len(now) else now

    def _starts(self, now: Tensor) -> list[Tensor]:
        """Distant starts, as many as half the evaluations allow; none if they are not due."""
        n = self.model.num_observed
        due = n > 0 and (not len(self.explored) or n >= GROWTH * float(self.explored[0]))
        if not (self.far and due):
            return []
        made = far_starts(self.objective.coordinates, self._first(now), now)
        return made[: max(0, self.left - self.most // 2) // RUNGS[0][0]]

    def _best_of(self, paths: list[Ascent]) -> Ascent:
        """The best result of several ascents, abandoning the less promising in stages."""
        done = 1
        for evaluations, kept in RUNGS:
            paths = [self._onward(path, evaluations - done) for path in paths]
            paths = _distinct(sorted(paths, key=lambda path: -path.at.value))[:kept]
            done = evaluations
        return max((self._onward(path) for path in paths), key=lambda path: path.at.value)

    def _onward(self, path: Ascent, most: int = MAX_EVALS) -> Ascent:
        if path.converged or not math.isfinite(path.at.value):
            return path
        return ascend(self.objective, path, min(most, self.left), TOLERANCE)

    def _looked_at_again(self, path: Ascent) -> Ascent:
        """Continue without the curvature, to a closer tolerance, until nothing is gained.

        One small step under a bad inverse Hessian is mistaken for convergence otherwise.
        """
        while path.converged and self.left > 0:
            again = ascend(self.objective, Ascent(path.at), self.left, CLOSER)
            gain = again.at.value - path.at.value
            if gain < TOLERANCE:
                return Ascent(again.at, path.inverse, again.converged)
            path = again
        return path

    def settle(self) -> None:
        """Set the model to the best point seen, and store the memory for the next fit."""
        model, best = self.model, self.objective.best
        self.objective.settle()
        model.mean_module.zero_grad()  # a profiled mean is no parameter of the ascent
        if best is not None and best.mean is not None:
            model._set_prior_mean(best.mean)
        if best is not None and len(best.u):
            inverse = None if self.path is None else self.path.inverse
            empty = best.u.new_empty(0, 0)
            curvature = empty if inverse is None else inverse
            model._note(fits=FitMemory(curvature, self.explored))
        model.eval()


def _distinct(paths: list[Ascent]) -> list[Ascent]:
    """Drop ascents that are converging to the same point as an earlier one."""
    kept: list[Ascent] = []
    for path in paths:
        if all(float((path.at.u - other.at.u).abs().max()) > SAME for other in kept):
            kept.append(path)
    return kept


def far_starts(coordinates: Coordinates, first: Tensor, now: Tensor) -> list[Tensor]:
    """Coordinates to try besides the current ones, the most promising first.

    The objective of a Gaussian process has several modes: large noise with long lengthscales or
    small noise with short ones, and with ARD one for each set of relevant dimensions. Ascents do
    not pass from one mode to another: where a lengthscale is too long by a factor of twenty, the
    gradient vanishes. Besides starts with all lengthscales short or long there is one per
    dimension, with that lengthscale short and the others long. Parameters are recognised by name
    (lengthscales, output scale, noise). These few starts reach nearly all modes.

    Args:
        coordinates: The coordinates of the hyperparameters.
        first: Where the first fit started; short and long are relative to its lengthscales.
        now: The current coordinates.
    """
    lengths, scales, noises = (
        coordinates.named(name) for name in ("lengthscale", "outputscale", "noise")
    )
    if not (bool(lengths.any()) or bool(noises.any())):
        return []
    scale = float(first[scales].mean()) if bool(scales.any()) else 0.0

    def start(length: Tensor | float, noise: float) -> Tensor:
        u = first.clone()
        u[lengths] = first[lengths] + length
        u[noises] = scale + noise
        return coordinates.clip(u)

    made = [start(SHORT, NOISY), start(SHORT, QUIET), start(LONG, NOISY)]
    d = int(lengths.sum())
    for group in range(min(d, GROUPS)):
        length = first.new_full((d,), LONG)
        length[group::GROUPS] = SHORT
        made.append(start(length, LITTLE))
    made = made if torch.equal(first, now) else [first, *made]
    return [u for i, u in enumerate(made) if not any(torch.equal(u, v) for v in made[:i])]
