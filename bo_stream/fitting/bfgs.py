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
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bo_stream.errors import StateError

if TYPE_CHECKING:
    from bo_stream.core.streaming import StreamingGP
from bo_stream.fitting.coordinates import Coordinates
from bo_stream.fitting.objective import check_evaluations, log_prior, profiled_mean
from bo_stream.fitting.report import FitReport

__all__ = ["Objective", "fit_model"]


TOLERANCE = 0.01
"""A fit stops when a step gains, or promises to gain, less than this many nats."""


MAX_EVALS = 200


FEW_EVALS = 6
"""A warm fit of no more evaluations is taken at its word."""


LARGEST_STEP = 2.0
"""Longest move of one (log-)hyperparameter in one step."""


Objective = Callable[[Tensor], tuple[float, Tensor]]
"""Value and gradient at coordinates, to be minimised."""


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
    means: list[Tensor | None] = []

    def objective(u: Tensor) -> tuple[float, Tensor]:
        first = not last
        coordinates.set(u)
        last[:] = [u]
        for p in parameters:
            p.grad = None
        try:
            value, mean = model._objective(profile_mean=skip_mean)
            value = value + log_prior(model)
        except (StateError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            if first:
                raise
            means[:] = [None]
            return math.inf, torch.zeros_like(u)  # a trial step too far: not positive definite
        means[:] = [mean]
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
            value, best_mean = model._objective(profile_mean=skip_mean)
            if best_mean is not None:
                model._set_prior_mean(best_mean)
            value = value + log_prior(model)
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
                    means = [model._objective(profile_mean=True)[1]]
        if means[0] is not None:
            model._set_prior_mean(means[0])
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
