"""Fitting hyperparameters on a stream: a quasi-Newton method whose curvature is kept between fits.

The objective (evidence or bound plus log priors) changes little from one batch to the next, so the
inverse Hessian of the last fit is the right preconditioner for this one: a warm fit takes a handful
of evaluations. Positive hyperparameters are climbed in their logarithm, where curvature is well
scaled; bounds of gpytorch constraints are kept by projection; a free constant mean takes its
closed-form optimum at each evaluation (MATHS 2.4).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from botorch.optim.closures.core import ForwardBackwardClosure
from gpytorch.constraints import Interval
from gpytorch.means import ConstantMean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.module import Module
from torch import Tensor

from bo_stream.errors import InputError, StateError

if TYPE_CHECKING:
    from bo_stream.streaming import StreamingGP

__all__ = ["Coordinates", "FitReport", "StreamMLL", "check_evaluations", "fit_model"]

TOLERANCE = 0.01
"""A fit stops when a step gains, or promises to gain, less than this many nats."""
MAX_EVALS = 200
FEW_EVALS = 6
"""A warm fit of no more evaluations is taken at its word."""
MARGIN = 1e-6
"""Relative distance kept from the bounds of a constraint."""
LARGEST_STEP = 2.0
"""Longest move of one (log-)hyperparameter in one step."""

Objective = Callable[[Tensor], tuple[float, Tensor]]
"""Value and gradient at coordinates, to be minimised."""


@dataclass(frozen=True)
class FitReport:
    """What a fit did.

    Attributes:
        evaluations: Objective-and-gradient evaluations used.
        value: The objective reached: evidence (or bound) plus log priors, in nats.
        converged: Whether it stopped because the gain fell below tolerance.
    """

    evaluations: int
    value: float
    converged: bool


class StreamMLL(MarginalLogLikelihood):
    """A surrogate's objective as a gpytorch `MarginalLogLikelihood`, for `fit_gpytorch_mll`.

    Calling it (any arguments are ignored: there are no stored targets to compare with) gives
    evidence plus log priors, 0-dim, in nats, not divided by the number of observations.
    """

    model: StreamingGP

    def __init__(self, model: StreamingGP) -> None:
        super().__init__(model.likelihood, model)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Evidence (or bound) plus log priors."""
        return self.model._evidence(profile_mean=False) + log_prior(self.model)

    def closure(self) -> Callable[[], Any]:
        """A forward-backward closure of the negative objective, for BoTorch's optimizers."""
        parameters = {n: p for n, p in self.named_parameters() if p.requires_grad}
        return ForwardBackwardClosure(lambda: -self(), parameters)


def log_prior(model: Module) -> Tensor:
    """Sum of the log priors of all hyperparameters, 0-dim."""
    total = torch.zeros((), dtype=torch.float64)
    priors = cast(Any, model.named_priors)()
    for _, module, prior, closure, _ in priors:
        total = total + prior.log_prob(closure(module)).sum().double()
    return total


def check_evaluations(max_evals: int | None) -> None:
    """Refuse limits that leave nothing to do.

    Raises:
        InputError: accordingly.
    """
    if max_evals is not None and max_evals < 1:
        raise InputError("max_evals >= 1, or None", f"{max_evals}", "Leave it out for no limit.")


def profiled_mean(model: StreamingGP) -> bool:
    """Whether the constant mean is free, so that a fit may take its closed-form optimum."""
    mean = model.mean_module
    if not isinstance(mean, ConstantMean) or not mean.raw_constant.requires_grad:
        return False
    free = mean.constraint_for_parameter_name("raw_constant") is None
    free = free and mean.raw_constant.numel() == model.num_outputs
    return free and not any(True for _ in mean.named_priors())


class Coordinates:
    """The free hyperparameters as one vector: logarithms of positive ones, others as they are.

    Those of the modules ``covar_module``, ``likelihood`` and ``mean_module`` of any GP.
    """

    def __init__(self, model: Any, skip_mean: bool) -> None:
        self.items: list[tuple[torch.nn.Parameter, Interval | None, bool]] = []
        lower, upper = [], []
        for module in (model.covar_module, model.likelihood, model.mean_module):
            if skip_mean and module is model.mean_module:
                continue
            for _, parameter, constraint in module.named_parameters_and_constraints():
                if not parameter.requires_grad:
                    continue
                low, high = _limits(constraint)
                positive = low >= 0
                self.items.append((parameter, constraint, positive))
                lower.append(torch.full((parameter.numel(),), _log(low, True) if positive else low))
                upper.append(
                    torch.full((parameter.numel(),), _log(high, False) if positive else high)
                )
        self.lower = torch.cat(lower).double() if lower else torch.empty(0, dtype=torch.float64)
        self.upper = torch.cat(upper).double() if upper else torch.empty(0, dtype=torch.float64)

    def get(self) -> Tensor:
        """The current coordinates (float64, on the CPU)."""
        parts = []
        for parameter, constraint, positive in self.items:
            value = _value(parameter, constraint).detach().double().cpu().reshape(-1)
            parts.append(value.log() if positive else value)
        return self.clip(torch.cat(parts)) if parts else self.lower

    def confine(self, trust: float) -> None:
        """Keep positive hyperparameters within a factor ``exp(trust)`` of where they are now."""
        if not self.items:
            return
        now = self.get()
        reach = [torch.full((p.numel(),), trust if pos else math.inf) for p, _, pos in self.items]
        self.lower = torch.maximum(self.lower, now - torch.cat(reach))
        self.upper = torch.minimum(self.upper, now + torch.cat(reach))

    def set(self, u: Tensor) -> None:
        """Write coordinates to the hyperparameters."""
        start = 0
        with torch.no_grad():
            for parameter, constraint, positive in self.items:
                part = u[start : start + parameter.numel()]
                start += parameter.numel()
                value = (part.exp() if positive else part).reshape(parameter.shape).to(parameter)
                enforced = constraint if constraint is not None and constraint.enforced else None
                parameter.copy_(value if enforced is None else enforced.inverse_transform(value))

    def gradient(self) -> Tensor:
        """Chain rule from the parameters' ``grad`` to the coordinates."""
        parts = []
        for parameter, constraint, positive in self.items:
            if parameter.grad is None:
                parts.append(torch.zeros(parameter.numel(), dtype=torch.float64))
                continue
            raw = parameter.detach().clone().requires_grad_()
            with torch.enable_grad():
                value = _value(raw, constraint)
                (slope,) = torch.autograd.grad(value.sum(), raw)
            scale = value.detach() if positive else torch.ones_like(value)
            part = parameter.grad.double() * (scale / slope).double()
            parts.append(part.reshape(-1).cpu())
        return torch.cat(parts)

    def clip(self, u: Tensor) -> Tensor:
        """Project onto the constraints' bounds."""
        return torch.minimum(torch.maximum(u, self.lower), self.upper)


def fit_model(
    model: StreamingGP, max_evals: int | None = None, trust: float | None = None
) -> FitReport:
    """Maximise evidence plus log priors by projected BFGS with the model's kept curvature.

    Cost: a warm fit takes a handful of evaluations, of the family's cost each.

    Args:
        model: The surrogate.
        max_evals: Most objective-and-gradient evaluations.
        trust: Largest change of the logarithm of a positive hyperparameter; None for no limit.

    Raises:
        StateError, torch.linalg.LinAlgError: if the covariance is not positive definite at the
            hyperparameters of now. (A trial step to such a place is taken back.)
    """
    check_evaluations(max_evals)
    skip_mean = profiled_mean(model)
    coordinates = Coordinates(model, skip_mean)
    if trust is not None:
        coordinates.confine(trust)
    parameters = [p for p, _, _ in coordinates.items]

    last: list[Tensor] = []

    def objective(u: Tensor) -> tuple[float, Tensor]:
        first = not last
        coordinates.set(u)
        last[:] = [u]
        for p in parameters:
            p.grad = None
        try:
            value = model._evidence(profile_mean=skip_mean) + log_prior(model)
        except (StateError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            if first:
                raise
            return math.inf, torch.zeros_like(u)  # a trial step too far: not positive definite
        if value.requires_grad:
            value.backward()
        gradient = coordinates.gradient()
        for p in parameters:
            p.grad = None
        f = -float(value.detach())
        finite = math.isfinite(f) and bool(gradient.isfinite().all())
        return (f, -gradient) if finite else (math.inf, torch.zeros_like(gradient))

    model.train()
    try:
        if not coordinates.items:
            value = model._evidence(profile_mean=skip_mean) + log_prior(model)
            return FitReport(1, float(value.detach()), True)
        start = coordinates.get()
        kept = model.get_buffer("_curvature").cpu()
        warm = kept if len(kept) == len(start) else None
        most = MAX_EVALS if max_evals is None else max_evals
        best, report, inverse = _checked_bfgs(objective, start, coordinates.clip, warm, most)
        if best is not last[0]:  # the last evaluation was a rejected step
            coordinates.set(best)
            if skip_mean:
                with torch.no_grad():
                    model._evidence(profile_mean=True)
        model._register_state("_curvature", inverse)
        return report
    finally:
        model.eval()


def _checked_bfgs(
    objective: Objective,
    u: Tensor,
    clip: Callable[[Tensor], Tensor],
    inverse: Tensor | None,
    max_evals: int,
) -> tuple[Tensor, FitReport, Tensor]:
    """`_bfgs`, and where it took more than a few steps, again without its curvature until that
    gains nothing: one small step under a bad inverse Hessian looks like the end.
    """
    best, report, H = _bfgs(objective, u, clip, inverse, max_evals)
    evaluations, value, converged = report.evaluations, report.value, report.converged
    gain = math.inf if evaluations > FEW_EVALS or inverse is None else 0.0
    while converged and gain >= TOLERANCE and evaluations < max_evals:
        u, again, H_again = _bfgs(objective, best, clip, None, max_evals - evaluations)
        evaluations, gain = evaluations + again.evaluations, again.value - value
        converged = again.converged
        if gain > 0.0:
            best, value = u, again.value
        if gain >= TOLERANCE:
            H = H_again
    return best, FitReport(evaluations, value, converged), H


def _bfgs(
    objective: Objective,
    u: Tensor,
    clip: Callable[[Tensor], Tensor],
    inverse: Tensor | None,
    max_evals: int,
) -> tuple[Tensor, FitReport, Tensor]:
    """Minimise by projected BFGS with backtracking; returns the best point and the curvature
    there.
    """
    f, g = objective(u)
    evaluations, converged = 1, False
    warm = inverse is not None
    eye = torch.eye(len(u), dtype=u.dtype)
    H = inverse.clone() if inverse is not None else eye / max(1.0, float(g.norm()))
    while evaluations < max_evals:
        free = clip(u - 1e-3 * g.sign()) != u
        step = -_restricted(H, free) @ g
        slope = float(step @ g)
        if slope > -1e-12 or not math.isfinite(slope):
            H, warm = eye / max(1.0, float(g.norm())), False
            step = torch.where(free, -g, torch.zeros_like(g)) / max(1.0, float(g.norm()))
            slope = float(step @ g)
        if not bool(free.any()) or (warm and -0.5 * slope < TOLERANCE):
            converged = True
            break
        step = step / max(1.0, float(step.abs().max()) / LARGEST_STEP)
        t, accepted = 1.0, False
        while evaluations < max_evals:
            v = clip(u + t * step)
            f_new, g_new = objective(v)
            evaluations += 1
            if f_new <= f + 1e-4 * min(float(g @ (v - u)), 0.0):
                accepted = True
                break
            t *= 0.3
            if t < 1e-4:
                break
        if not accepted:
            converged = t < 1e-4
            break
        s, y = v - u, g_new - g
        gain, u, f, g = f - f_new, v, f_new, g_new
        sy = float(s @ y)
        if sy > 1e-10 * float(s.norm() * y.norm()):
            if not warm:
                H = eye * (sy / float(y @ y))
                warm = True
            a = eye - torch.outer(s, y) / sy
            H = a @ H @ a.T + torch.outer(s, s) / sy
        if gain < TOLERANCE:
            converged = True
            break
    return u, FitReport(evaluations, -f, converged), H


def _restricted(H: Tensor, free: Tensor) -> Tensor:
    """The inverse Hessian with the coordinates at an active bound held fixed."""
    return H * free.double().outer(free.double())


def _limits(constraint: Interval | None) -> tuple[float, float]:
    if constraint is None:
        return -math.inf, math.inf
    return float(constraint.lower_bound.max()), float(constraint.upper_bound.min())


def _log(bound: float, is_lower: bool) -> float:
    """Logarithm of a bound of a positive hyperparameter, kept inside by a relative margin."""
    if is_lower:
        return math.log(bound) + MARGIN if bound > 0 else -math.log(1e12)
    return math.log(bound) - MARGIN if math.isfinite(bound) else math.log(1e12)


def _value(raw: Tensor, constraint: Interval | None) -> Tensor:
    """A hyperparameter's value from its raw parameter."""
    return constraint.transform(raw) if constraint is not None and constraint.enforced else raw
