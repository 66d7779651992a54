"""Fitting a surrogate's hyperparameters, and when that is due.

Positive hyperparameters are optimised in their logarithm, where curvature is well scaled. Bounds of
gpytorch constraints are enforced by projection. A free constant mean takes its closed-form optimum
at each evaluation (MATHS 2.4). A warm fit starts from the current hyperparameters with the
curvature of the last fit. The first fit, and every fit after the data have grown several-fold, also
tries distant starts and continues from the best: the objective has several modes, and with few data
the wrong one may be the higher.

The objective (evidence or bound plus log priors) changes little from one batch to the next, so the
inverse Hessian of the last fit is a good preconditioner: a warm fit takes a handful of evaluations
of projected BFGS. Where the objective cannot be computed (the covariance does not factorise, or a
value or gradient is not finite) its value is minus infinity. At the start of a fit this is an error
instead.

A refit is due after growth of the data, or when predictions are worse than expected. One of a
family that keeps its data costs a pass over all of them. A loop that checks `refit_due` after each
`observe` fits about log(n) times, and whenever predictions turn out poor.

Before a batch is absorbed, the model predicts it, and its prediction implies an expected log
density. With whitened residuals ``w ~ N(0, I_k)`` the log density falls short of its expectation by
``(|w|^2 - k) / 2`` nats, with variance ``k / 2``. Over a stream these shortfalls average to zero if
the model is right, and grow with every batch if it is overconfident.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import ScaleKernel
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.module import Module
from gpytorch.priors import LogNormalPrior
from torch import Tensor, nn

from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.base.stream import Changeable, FitMemory, Stream, StreamBuffers
from bo_stream.errors import InputError, StateError
from bo_stream.mathematics.data_evidence import Correlations, DataEvidence, correlations_at
from bo_stream.mathematics.kernels import Scaled, stationary
from bo_stream.mathematics.shapes import Rows

__all__ = [
    "Ascent",
    "AscentObjective",
    "ClosedForm",
    "Correlated",
    "Coordinates",
    "Evaluated",
    "FitReport",
    "Fittable",
    "LogNormals",
    "Selections",
    "StreamMLL",
    "Surprise",
    "ascend",
    "check_evaluations",
    "far_starts",
    "fit_model",
    "log_prior",
    "objective_of",
    "profiled_mean",
    "shortfall",
]

ClosedForm = Callable[[Tensor], tuple[Tensor, Tensor, Tensor | None]]
"""From coordinates to the objective (0-dim), its gradient, and the optimal means, if profiled."""

MARGIN = 1e-6
"""Relative distance kept from the bounds of a constraint."""

FARTHEST = math.log(1e12)
"""Largest logarithm of a hyperparameter without bounds."""


@dataclass(frozen=True)
class Hyperparameter:
    """A free hyperparameter among coordinates.

    Attributes:
        name: Its name in its module.
        parameter: The raw parameter.
        constraint: The constraint that transforms it, if one does.
        positive: Whether its logarithm is the coordinate.
        part: Where its coordinates are.
    """

    name: str
    parameter: nn.Parameter
    constraint: Interval | None
    positive: bool
    part: slice


class Coordinates:
    """The free hyperparameters of a GP's kernel, likelihood and mean as one vector.

    Positive hyperparameters are represented by their logarithm, others unchanged.
    """

    def __init__(self, model: Fittable, skip_mean: bool) -> None:
        self.items: list[Hyperparameter] = []
        self.lower = self.upper = torch.empty(0, dtype=torch.float64)
        for module in (model.covar_module, model.likelihood, model.mean_module):
            if not (skip_mean and module is model.mean_module):
                for name, parameter, constraint in module.named_parameters_and_constraints():
                    self.add(parameter, name.rpartition(".")[2], constraint)

    def add(self, parameter: nn.Parameter, name: str, constraint: Interval | None = None) -> None:
        """Append a parameter, if it is free."""
        if not parameter.requires_grad:
            return
        low, high = -math.inf, math.inf
        if constraint is not None:
            low, high = float(constraint.lower_bound.max()), float(constraint.upper_bound.min())
        positive = low >= 0
        if positive:  # bounds of the logarithm, a little inside
            low = math.log(low) + MARGIN if low > 0 else -FARTHEST
            high = math.log(high) - MARGIN if high < math.inf else FARTHEST
        enforced = constraint if constraint is not None and constraint.enforced else None
        part = slice(len(self.lower), len(self.lower) + parameter.numel())
        self.items.append(Hyperparameter(name, parameter, enforced, positive, part))
        lower, upper = (self.lower.new_full((parameter.numel(),), bound) for bound in (low, high))
        self.lower, self.upper = torch.cat([self.lower, lower]), torch.cat([self.upper, upper])

    def named(self, word: str) -> Tensor:
        """A mask of the positive hyperparameters whose names contain a word."""
        mask = torch.zeros(len(self.lower), dtype=torch.bool)
        for item in self.items:
            mask[item.part] = item.positive and word in item.name
        return mask

    def place(self, parameter: nn.Parameter) -> slice | None:
        """Where a positive hyperparameter's coordinates are; None if it is not among them."""
        places = (item.part for item in self.items if item.parameter is parameter and item.positive)
        return next(places, None)

    def selection(self, parameters: Sequence[nn.Parameter], outputs: int) -> Tensor | None:
        """Weights that give the logarithm of a product of positive parameters from coordinates.

        Args:
            parameters: Raw parameters: of no or one value an output, or of ``k`` columns; outputs
                may share them.
            outputs: Number of outputs.

        Returns:
            ``o x k x p`` for ``p`` coordinates; None if a parameter is fixed.
        """
        size = len(self.lower)
        total = self.lower.new_zeros(outputs, 1, size)
        for parameter in parameters:
            own = self.place(parameter)
            if own is None:
                return None
            width = parameter.shape[-1] if parameter.ndim > 1 else 1
            places = torch.arange(own.start, own.stop).view(-1, width).expand(outputs, -1)
            total = total + nn.functional.one_hot(places, size)
        return total

    def keep_above(self, parameter: nn.Parameter, least: Tensor) -> None:
        """Raise the lower bounds of a positive hyperparameter, if it is free: to its current value
        at most.

        Args:
            parameter: The raw parameter.
            least: Its smallest values, of a shape that expands to the parameter's.
        """
        own = self.place(parameter)
        if own is None:
            return
        floor = least.double().cpu().log().expand(parameter.shape).reshape(-1)
        floor = torch.minimum(floor, self.get()[own])
        self.lower[own] = torch.maximum(self.lower[own], floor)

    def get(self) -> Tensor:
        """The current coordinates (float64, on the CPU)."""
        parts = []
        for item in self.items:
            raw = item.parameter
            value = raw if item.constraint is None else item.constraint.transform(raw)
            value = value.detach().double().cpu().reshape(-1)
            parts.append(value.log() if item.positive else value)
        return self.clip(torch.cat(parts)) if parts else self.lower

    def confine(self, trust: float) -> None:
        """Keep positive hyperparameters within a factor ``exp(trust)`` of their current values."""
        now, reach = self.get(), torch.where(self.named(""), trust, math.inf)
        self.lower = torch.maximum(self.lower, now - reach)
        self.upper = torch.minimum(self.upper, now + reach)

    def set(self, u: Tensor) -> None:
        """Set the hyperparameters from coordinates."""
        with torch.no_grad():
            for item, raw in zip(self.items, self._raw(u), strict=True):
                item.parameter.copy_(raw)

    def gradient(self, value: Tensor, u: Tensor) -> Tensor:
        """The gradient in coordinates, by the chain rule.

        Args:
            value: A function of the hyperparameters, 0-dim.
            u: Their coordinates.
        """
        if not (len(u) and value.requires_grad):
            return torch.zeros_like(u)
        with torch.enable_grad():
            u = u.detach().requires_grad_()
            raw, parameters = self._raw(u), [item.parameter for item in self.items]
        slopes = torch.autograd.grad(
            value, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        return torch.autograd.grad(raw, u, slopes)[0]

    def _raw(self, u: Tensor) -> list[Tensor]:
        """The parameters at coordinates, differentiable."""
        raw = []
        for item in self.items:
            value = u[item.part].exp() if item.positive else u[item.part]
            value = value.reshape(item.parameter.shape).to(item.parameter)
            raw.append(item.constraint.inverse_transform(value) if item.constraint else value)
        return raw

    def clip(self, u: Tensor) -> Tensor:
        """Project onto the constraints' bounds."""
        return torch.minimum(torch.maximum(u, self.lower), self.upper)


def log_prior(model: Module) -> Tensor:
    """Sum of the log priors of all hyperparameters of a module, 0-dim."""
    total = torch.zeros((), dtype=torch.float64)
    for _, module, prior, closure, _ in model.named_priors():
        total = total + prior.log_prob(closure(module)).sum().double()
    return total


def profiled_mean(model: Fittable) -> bool:
    """Whether the constant mean of a surrogate is free, so that a fit can profile it out."""
    mean = model.mean_module
    if not isinstance(mean, ConstantMean) or not mean.raw_constant.requires_grad:
        return False
    free = mean.constraint_for_parameter_name("raw_constant") is None
    free = free and mean.raw_constant.numel() == model.num_outputs
    return free and not any(True for _ in mean.named_priors())


@dataclass(frozen=True)
class LogNormals:
    """Log-normal priors of some coordinates, logarithms of hyperparameters.

    In a logarithm u, the Jacobian completes the square: ``-(u - l)^2 / (2 s^2) - u`` is largest at
    ``l - s^2``.

    Attributes:
        top: The logarithms where their densities are largest; zero where there is no prior.
        precision: Inverse variances of the logarithms; likewise.
        constant: The log densities there, summed, in nats.
    """

    top: Tensor
    precision: Tensor
    constant: float

    @classmethod
    def of(cls, model: Fittable, coordinates: Coordinates) -> LogNormals | None:
        """The priors of a model; None if some are of another kind or on a fixed parameter."""
        top, precision = torch.zeros_like(coordinates.lower), torch.zeros_like(coordinates.lower)
        constant = 0.0
        for name, module, prior, _, _ in cast(Module, model).named_priors():
            short = name.rpartition(".")[2].removesuffix("_prior")
            raw = getattr(module, f"raw_{short}", None)
            own = None if raw is None else coordinates.place(raw)
            if type(prior) is not LogNormalPrior or own is None or bool(precision[own].any()):
                return None
            location, sd = (t.double().cpu().reshape(-1) for t in (prior.loc, prior.scale))
            top[own], precision[own] = location - sd**2, sd**-2
            each = 0.5 * sd**2 - location - (sd * math.sqrt(2.0 * math.pi)).log()
            constant += float(each.expand(own.stop - own.start).sum())
        return cls(top, precision, constant)

    def add(self, u: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        """The value plus log priors; theirs are added to the gradient in place."""
        away = u - self.top
        pull = self.precision * away
        gradient.sub_(pull)
        return value + (self.constant - 0.5 * (pull @ away))


@dataclass(frozen=True)
class Selections:
    """Logarithms of hyperparameters as products of matrices and coordinates.

    Attributes:
        parts: Weights of lengthscales (``o x k x p``) and scales (``o x 1 x p``) of a kernel's
            parts.
        noise: Those of noise scales, ``o x 1 x p``.
        priors: The priors.
    """

    parts: list[tuple[Tensor, Tensor]]
    noise: Tensor
    priors: LogNormals

    @classmethod
    def of(
        cls, model: Fittable, parts: Sequence[Scaled], coordinates: Coordinates, profile: bool
    ) -> Selections | None:
        """Those of a model whose kernel has these parts, for a fit of these coordinates.

        Returns:
            None where hyperparameters are fixed, priors are not log-normal, the mean is a
            coordinate, or the model is not on the CPU.
        """
        o, priors = model.num_outputs, LogNormals.of(model, coordinates)
        groups = [[part.base.raw_lengthscale] for part in parts]
        groups += [[scale.raw_outputscale for scale in part.scales] for part in parts]
        groups.append([*model.likelihood.noise_covar.parameters()])
        found = [coordinates.selection(group, o) for group in groups]
        chosen, n = [each for each in found if each is not None], len(parts)
        known_mean = profile or isinstance(model.mean_module, ZeroMean)
        on_cpu = model.stream.noise_sum.device.type == "cpu"
        if priors is None or len(chosen) < len(found) or not (known_mean and on_cpu):
            return None
        return cls([*zip(chosen[:n], chosen[n:-1], strict=True)], chosen[-1], priors)


Correlated = Callable[[Rows, float], Correlations]
"""From rows, and the smoothness of a kernel, to its correlations of them."""


def data_form(
    model: Fittable,
    rows: Rows,
    coordinates: Coordinates,
    profile: bool,
    correlated: Correlated = correlations_at,
) -> ClosedForm | None:
    """The log evidence of rows plus log priors: O(n^3), in a tenth of the time of autograd.

    Returns:
        None without rows, for several outputs, and kernels that are no RBF or Matern kernel of all
        inputs; and as `Selections.of`.
    """
    dim = rows.X.shape[-1]
    kernel = stationary(model.covar_module, dim) if len(rows) and len(rows.Y) == 1 else None
    made = None if kernel is None else Selections.of(model, [kernel], coordinates, profile)
    if kernel is None or made is None:
        return None
    ((lengths, scales),), priors = made.parts, made.priors
    weights = torch.cat([lengths[0].expand(dim, -1), scales[0], made.noise[0]]).numpy()
    evidence = DataEvidence(correlated(rows, kernel.nu), rows.y.numpy(), rows.r.numpy())
    mean = None if profile else 0.0

    def objective(u: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        value, slopes, best = evidence(weights @ u.numpy(), mean)
        gradient = torch.from_numpy(slopes @ weights)
        total = priors.add(u, u.new_tensor(value), gradient)
        return total, gradient, u.new_tensor([best]) if profile else None

    return objective


Objective = Callable[[], tuple[Tensor, Tensor | None]]
"""The objective at the current parameters (0-dim, differentiable), and its optimal means."""

MAX_EVALS = 200
"""Most evaluations of a fit."""

LARGEST_STEP = 2.0
"""Largest change of one (log-)hyperparameter in one step."""

SMALLEST_STEP = 1e-4
"""Smallest fraction of a step that the line search tries."""


@dataclass(frozen=True)
class Evaluated:
    """An objective at one point.

    Attributes:
        u: The point.
        value: The objective in nats; minus infinity where it cannot be computed.
        gradient: Its gradient; zeros where it cannot be computed.
        mean: The optimal constant means (``o``), if the objective profiles them out.
    """

    u: Tensor
    value: float
    gradient: Tensor
    mean: Tensor | None


class AscentObjective:
    """An objective as a function of one vector; counts evaluations and keeps the best point.

    Args:
        objective: Returns the objective at the current parameters and changes nothing.
        coordinates: The coordinates of the hyperparameters.
        closed_form: The objective with its gradient at given coordinates, in place of `objective`.
        most: Maximum number of evaluations of ascents.

    Attributes:
        evaluations: Evaluations of objective and gradient so far.
        best: The best point so far; None before the first evaluation.
    """

    def __init__(
        self,
        objective: Objective,
        coordinates: Coordinates,
        closed_form: ClosedForm | None = None,
        most: int = MAX_EVALS,
    ) -> None:
        self.objective, self.coordinates, self.closed_form = objective, coordinates, closed_form
        self.most, self.evaluations = most, 0
        self.before = [item.parameter.detach().clone() for item in coordinates.items]
        self.best: Evaluated | None = None

    def start(self) -> Evaluated:
        """Evaluate the objective at the current parameters.

        Raises:
            StateError: if it is not finite; `settle` then restores the parameters.
            torch.linalg.LinAlgError: if the covariance does not factorise; likewise.
        """
        self.best = self._at(self.coordinates.get())
        return self.best

    def evaluate(self, u: Tensor) -> Evaluated:
        """Evaluate the objective at a vector; minus infinity where it cannot be computed."""
        try:
            found = self._at(u)
        except (StateError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            return Evaluated(u, -math.inf, torch.zeros_like(u), None)
        if self.best is None or found.value > self.best.value:
            self.best = found
        return found

    def settle(self) -> None:
        """Set the parameters to the best point, or to their initial values if there is none."""
        if self.best is not None:
            self.coordinates.set(self.best.u)
            return
        with torch.no_grad():
            for item, value in zip(self.coordinates.items, self.before, strict=True):
                item.parameter.copy_(value)

    def _at(self, u: Tensor) -> Evaluated:
        self.evaluations += 1
        value, gradient, mean = (self.closed_form or self._differentiated)(u)
        found = Evaluated(u, float(value.detach()), gradient, mean)
        if not (math.isfinite(found.value) and bool(gradient.isfinite().all())):
            raise StateError(
                "a finite objective, with a finite gradient, at the current hyperparameters",
                "an infinite or undefined one",
                "Standardize the outcomes (outcome_transform=Standardize(m)) or start from other "
                "hyperparameters.",
            )
        return found

    def _differentiated(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        self.coordinates.set(u)
        value, mean = self.objective()
        return value, self.coordinates.gradient(value, u), mean


@dataclass(frozen=True)
class Ascent:
    """The progress of an ascent from one start.

    Attributes:
        at: The current point.
        inverse: The inverse Hessian of the negative objective; None before the first step.
        converged: Whether the actual or predicted gain of a step is below the tolerance.
    """

    at: Evaluated
    inverse: Tensor | None = None
    converged: bool = False


def ascend(objective: AscentObjective, path: Ascent, most: int, tolerance: float) -> Ascent:
    """Continue an ascent by projected BFGS with backtracking.

    Args:
        objective: The objective.
        path: The current point and curvature; returned as it is if it has converged, or if the
            objective cannot be computed there.
        most: Maximum number of further evaluations.
        tolerance: Converged once a step's predicted gain, or the actual gain of two steps in a
            row, is below this, in nats.
    """
    last, small = min(objective.evaluations + most, objective.most), 0
    while math.isfinite(path.at.value) and not path.converged and objective.evaluations < last:
        at, H = path.at, path.inverse
        free = objective.coordinates.clip(at.u + 1e-3 * at.gradient.sign()) != at.u
        step, promised = _step(at, H, free)
        if not bool(free.any()) or (H is not None and 0.5 * promised < tolerance):
            return replace(path, converged=True)
        found = _searched(objective, at, step, last)
        if found is not None:
            small = small + 1 if found.value - at.value < tolerance else 0
            inverse = _updated(H, found.u - at.u, at.gradient - found.gradient)
            path = Ascent(found, inverse, converged=small == 2)
        elif objective.evaluations < last:  # no ascent direction: once more without the curvature
            path = Ascent(at, converged=H is None)
    return path


def _step(at: Evaluated, H: Tensor | None, free: Tensor) -> tuple[Tensor, float]:
    """The step to try and its slope, with coordinates at an active bound held fixed."""
    g = torch.where(free, at.gradient, torch.zeros_like(at.gradient))
    step = g / max(1.0, float(at.gradient.norm())) if H is None else torch.where(free, H @ g, 0.0)
    slope = float(step @ g)
    if H is not None and not (slope >= 0.0 and math.isfinite(slope)):
        return _step(at, None, free)
    return step / max(1.0, float(step.abs().max()) / LARGEST_STEP), slope


def _searched(
    objective: AscentObjective, at: Evaluated, step: Tensor, last: int
) -> Evaluated | None:
    """Backtrack along a step until a point gains enough; None if no point does."""
    t = 1.0
    while objective.evaluations < last and t >= SMALLEST_STEP:
        u = objective.coordinates.clip(at.u + t * step)
        found, slope = objective.evaluate(u), float(at.gradient @ (u - at.u))
        if found.value >= at.value + 1e-4 * max(slope, 0.0):
            return found
        short = at.value + slope - found.value  # shortfall from the tangent, for the parabola
        t *= min(0.5, max(0.1, 0.5 * slope / short)) if math.isfinite(short) and short > 0 else 0.3
    return None


def _updated(H: Tensor | None, s: Tensor, y: Tensor) -> Tensor | None:
    """BFGS update of the inverse Hessian for a step ``s`` and a gradient decrease ``y``."""
    sy = float(s @ y)
    if sy <= 1e-10 * float(s.norm() * y.norm()):
        return H
    eye = torch.eye(len(s), dtype=s.dtype)
    H = eye * (sy / float(y @ y)) if H is None else H
    a = eye - torch.outer(s, y) / sy
    return a @ H @ a.T + torch.outer(s, s) / sy


TOLERANCE = 0.01
"""An ascent stops when the actual or predicted gain of a step is below this, in nats."""

CLOSER = 0.001
"""The tolerance of the final check, which starts without the kept curvature."""

FEW_EVALS = 6
"""Warm fits of at most this many evaluations skip the final check unless it is due."""

GROWTH = 4.0
"""Distant starts are tried again once the data have grown by this factor."""

LOOK = 1.25
"""Growth of the data after which the final check is due, whatever the number of evaluations."""

RUNGS = ((3, 3), (6, 2))
"""Stages of the multi-start: further evaluations per start, and the number of starts kept."""

SCOUTS_RUNGS = ((5, 4), (8, 4))
"""Those where starts are compared on fewer rows."""

SCOUTED = 128
"""Rows on which distant starts are compared, where the objective is not cheap."""

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


class Fittable(Changeable, GaussianModel):
    """A model with a stream whose hyperparameters can be fitted."""

    stream: StreamBuffers[Stream]

    @abstractmethod
    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """The objective of the hyperparameters, without priors: 0-dim, differentiable.

        It is evaluated at the current means, and None is returned; or, with ``profile_mean``, at
        the optimal ones, which are returned (``o``, detached; None if nothing determines them).
        """

    def _log_priors(self) -> Tensor:
        """Log densities of all priors of the hyperparameters, 0-dim, differentiable."""
        return log_prior(self)

    def _prepare_fit(self, coordinates: Coordinates, profile_mean: bool) -> ClosedForm | None:
        """Restrict a fit's coordinates; return its objective in closed form, if there is one."""
        rows, correlated = self._rows_of_fit()
        if rows is None or correlated is None:
            return None
        return data_form(self, rows, coordinates, profile_mean, correlated)

    def _rows_of_fit(self) -> tuple[Rows | None, Correlated | None]:
        """Rows that are held, and the correlations under which their evidence is the objective."""
        return None, None

    def _can_select(self) -> bool:
        """Whether other features can be selected."""
        return False

    def _reselected(self) -> bool:
        """Select features for the current hyperparameters, if others than those in use suit these
        and can be selected.

        Returns:
            Whether they were.
        """
        return False

    def _note(self, **changes: Any) -> None:
        """Replace parts of the stream that posteriors do not depend on."""
        self._set("stream", self.stream.replaced(self.stream.version, **changes))

    def _set_prior_mean(self, means: Tensor) -> None:
        """Set the constant prior means (``o``) of the mean module; a change that fails restores
        them.
        """
        module = cast(ConstantMean, self.mean_module)
        self._lock.restores(module.parameters())
        module.constant = means.reshape(module.constant.shape).to(module.constant)


class StreamMLL(MarginalLogLikelihood):
    """A surrogate's objective as a gpytorch `MarginalLogLikelihood`, for `fit_gpytorch_mll`.

    Calling it returns evidence plus log priors, 0-dim, in nats, not divided by the number of
    observations. Its arguments are ignored, because no targets are stored.
    """

    model: Fittable

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Evidence (or bound) plus log priors."""
        return self.model._objective(profile_mean=False)[0] + self.model._log_priors()


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

    A warm fit takes a handful of evaluations; a fit that tries distant starts takes 50 to 80. If
    interrupted, the best point seen is kept.

    Args:
        model: The surrogate.
        max_evals: Maximum number of evaluations of objective and gradient, over all starts. Those
            of the exact evidence of held rows, which may compare distant starts, come on top.
        trust: Largest change of the logarithm of a positive hyperparameter; None for no limit.
            With a limit, distant starts are not tried.

    Raises:
        StateError, torch.linalg.LinAlgError: if the objective is not finite, or the covariance
            not positive definite, at the current hyperparameters, which are then unchanged.
            Trial steps to such points are rejected without an error.
    """
    fit = _Fit(model, trust, MAX_EVALS if max_evals is None else max_evals)
    try:
        try:
            return fit.run()
        finally:
            fit.settle()
    except BaseException:
        fit.settle()  # again: an interruption may have come during the first call
        raise


def objective_of(
    model: Fittable, trust: float | None = None, most: int = MAX_EVALS
) -> AscentObjective:
    """What a fit maximises: the objective plus log priors, in the coordinates of a surrogate.

    Where mean and noise are learned, the output scale of a `ScaleKernel` stays at the squared
    standard error of the mean or above.
    """
    profiled = profiled_mean(model)
    coordinates = Coordinates(model, profiled)
    if trust is not None:
        coordinates.confine(trust)
    kernel = model.covar_module
    if profiled and model.noise_mode == "learned" and isinstance(kernel, ScaleKernel):
        total = (kernel.outputscale + model.likelihood.noise.mean()).detach()
        coordinates.keep_above(kernel.raw_outputscale, total / model.stream.count.clamp_min(1.0))

    def objective() -> tuple[Tensor, Tensor | None]:
        value, mean = model._objective(profile_mean=profiled)
        return value + model._log_priors(), mean

    form = model._prepare_fit(coordinates, profiled)
    return AscentObjective(objective, coordinates, form, most)


class _Fit:
    """One fit in progress."""

    def __init__(self, model: Fittable, trust: float | None, most: int) -> None:
        self.model, self.objective = model, objective_of(model, trust, most)
        memory = model.stream.contents.fits
        self.curvature, self.explored = memory.curvature.cpu(), memory.explored.cpu()
        self.memory = replace(FitMemory.empty(), explored=self.explored)
        self.far = trust is None

    def run(self) -> FitReport:
        """Ascend, from several starts if they are due, and check the result."""
        self.model.train()
        objective, n = self.objective, float(self.model.stream.count)
        start = objective.start()
        if not len(start.u):
            return FitReport(1, start.value, True)
        warm = len(self.curvature) == len(start.u)
        path = Ascent(start, self.curvature if warm else None)
        tried, looked, *before = self.explored.tolist() or (0.0, 0.0)
        first = start.u.new_tensor(before) if len(before) == len(start.u) else start.u
        if self.far and n > 0 and n >= GROWTH * tried:
            starts = far_starts(objective.coordinates, first, start.u)
            most = max(0, objective.most - objective.most // 2 - 1) // (1 + RUNGS[0][0])
            if starts[:most]:
                path, tried = self._explored(path, starts[:most]), n
                objective = self.objective
        path = ascend(objective, path, objective.most, TOLERANCE)
        if not warm or objective.evaluations > FEW_EVALS or n >= LOOK * looked:
            path, looked = _looked_at_again(objective, path), n
        inverse = self.memory.curvature if path.inverse is None else path.inverse
        self.memory = FitMemory(inverse, torch.cat([first.new_tensor([tried, looked]), first]))
        best = start if objective.best is None else objective.best
        return FitReport(objective.evaluations, best.value, path.converged)

    def _scouts(self) -> AscentObjective:
        """The exact evidence of rows, where the objective is not that of the rows itself or is on
        features that can be selected: of some rows, where all are not cheap.
        """
        mine, (rows, correlated) = self.objective, self.model._rows_of_fit()
        if rows is None or (correlated is not None and not self.model._can_select()):
            return mine
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
        rows = rows[order[:SCOUTED].sort().values] if correlated is None else rows
        form = data_form(self.model, rows, mine.coordinates, profiled_mean(self.model))
        made = mine.objective, mine.coordinates, form, mine.most
        return mine if form is None else AscentObjective(*made)

    def _explored(self, path: Ascent, starts: list[Tensor]) -> Ascent:
        """The best of the present path and the best ends of ascents by scouts.

        They are compared on the features that suit the best end: others may not resolve it.
        """
        mine, scouts = self.objective, self._scouts()
        begun = path if scouts is mine else Ascent(scouts.evaluate(path.at.u))
        paths = [begun, *(Ascent(scouts.evaluate(u)) for u in starts)]
        few = scouts is not mine and self.model._rows_of_fit()[1] is None  # of the rows
        ends = _ends(scouts, paths, SCOUTS_RUNGS if few else RUNGS)
        if scouts is mine:
            return max([path, *ends], key=lambda each: each.at.value)
        ends = [_looked_at_again(scouts, end) for end in ends] if few else ends
        mine.coordinates.set(max(ends, key=lambda each: each.at.value).at.u)
        if self.model._reselected():
            self.objective = objective_of(self.model, most=mine.most)
            self.objective.evaluations = mine.evaluations
            path = Ascent(self.objective.evaluate(path.at.u), path.inverse)
        scale = SCOUTED / max(SCOUTED, int(self.model.stream.count)) if few else 1.0
        for end in ends:
            inverse = None if end.inverse is None else scale * end.inverse
            end = Ascent(self.objective.evaluate(end.at.u), inverse)
            path = max(path, end, key=lambda each: each.at.value)
        return path

    def settle(self) -> None:
        """Set the model to the best point seen, and store the memory for the next fit."""
        model, best = self.model, self.objective.best
        self.objective.settle()
        if best is not None and best.mean is not None:
            model._set_prior_mean(best.mean)
        if best is not None and len(best.u):
            model._note(fits=self.memory)
        model.eval()


def _ends(
    objective: AscentObjective, paths: list[Ascent], rungs: Sequence[tuple[int, int]]
) -> list[Ascent]:
    """The best ends of several ascents, abandoning the less promising in stages."""
    for more, kept in rungs:
        paths = [ascend(objective, path, more, TOLERANCE) for path in paths]
        paths = _distinct(sorted(paths, key=lambda path: -path.at.value))[:kept]
    return [ascend(objective, path, objective.most, TOLERANCE) for path in paths]


def _looked_at_again(objective: AscentObjective, path: Ascent) -> Ascent:
    """Continue without the curvature, to a closer tolerance, until nothing is gained.

    One small step under a bad inverse Hessian is mistaken for convergence otherwise.
    """
    while path.converged and objective.evaluations < objective.most:
        again = ascend(objective, Ascent(path.at), objective.most, CLOSER)
        gain = again.at.value - path.at.value
        if gain < TOLERANCE:
            return Ascent(again.at, path.inverse, again.converged)
        path = again
    return path


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


# -- when to refit ---------------------------------------------------------------------------------


SIGMAS = 4.0
"""Number of standard deviations beyond which a sum is significant."""

AT_LEAST = 5
"""Minimum number of observations before a sum is judged."""


@dataclass(frozen=True)
class Surprise:
    """A weighted sum over a stream of scores with expectation zero if the model is right.

    Recent observations weigh more: those seen when the stream was half as long have half the
    weight, so that a model can recover.

    Attributes:
        count: Number of observations.
        total: Weighted sum of scores (such as shortfalls in nats).
        variance: Variance of `total` if the model is right.

    Example:
        >>> import torch
        >>> Surprise().seen(*shortfall(torch.ones(8, dtype=torch.double)), 8).behind
        False
        >>> Surprise().seen(*shortfall(torch.full((8,), 3.0, dtype=torch.double)), 8).behind
        True
    """

    count: int = 0
    total: float = 0.0
    variance: float = 0.0

    def seen(self, score: Tensor, variance: Tensor, count: int) -> Surprise:
        """The sum with one more batch.

        Args:
            score: A score with expectation zero, 0-dim.
            variance: Its variance if the model is right, 0-dim.
            count: Number of observations in the batch.
        """
        fade = self.count / (self.count + count)
        total = fade * self.total + float(score)
        return Surprise(self.count + count, total, fade**2 * self.variance + float(variance))

    @property
    def behind(self) -> bool:
        """Whether the model does significantly worse than its own predictions imply."""
        return self.count >= AT_LEAST and self.total > SIGMAS * math.sqrt(self.variance)


def shortfall(whitened: Tensor) -> tuple[Tensor, Tensor]:
    """The shortfall of a log density from its expectation, in nats, and its variance.

    Args:
        whitened: ``L^-1 (y - mean)`` of any shape, for a predictive covariance ``L L'`` with noise.
    """
    k = whitened.numel()
    return 0.5 * (whitened.square().sum() - k), whitened.new_tensor(0.5 * k)
