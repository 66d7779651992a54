"""Maximising over continuous and discrete inputs, inside constraints.

Continuous inputs climb while discrete ones are held; then single discrete inputs change where that
is better; both in turn, for many points at once, as in [Daulton2022]. Every point stays feasible.
A climb is a projected BFGS whose steps are batched: an evaluation costs one call for all points,
each has an inverse Hessian and a step length of its own, and none ever gets worse.

References:
    [Daulton2022] S. Daulton, X. Wan, D. Eriksson, M. Balandat, M. A. Osborne, E. Bakshy. Bayesian
        Optimization over Discrete and Mixed Spaces via Probabilistic Reparameterization. NeurIPS
        2022, appendix on alternating optimisation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor

from acquisitions.domain import Domain

__all__ = ["alternate", "climb", "maximise_in_turn", "repeats_tell"]

ROUNDS = 12
"""Largest number of changes of discrete inputs."""
STARTS, EVALUATIONS = 10, 24
"""Points that a search starts from, and evaluations of their first climb."""
SPREAD = 512
"""Candidates over the feasible set."""
SCALES = (-3.0, -0.3)
"""Decimal logarithms of the smallest and largest local steps, in widths of the box."""
NEGLIGIBLE = 1e-3
"""Noise variance, in variances of the outcomes, below which a repeated evaluation tells nothing."""
SAME = 1e-9
"""Points closer than this share of the width in every input are the same."""
FIRST = 0.03
"""Largest coordinate of the first step, in widths of the box."""
LARGEST = 0.2
"""That of later ones."""
GAIN = 1e-4
"""Share of the gain promised by the slope from which a step is accepted."""
SHORTER = (0.1, 0.5)
"""Least and largest factor by which a step that was not accepted is shortened."""
TINY = 1e-300


@torch.no_grad()
def climb(
    value: Callable[[Tensor], Tensor], X: Tensor, domain: Domain, evaluations: int
) -> tuple[Tensor, Tensor]:
    """Climb from feasible points: the best ones found, and their values.

    Discrete inputs keep their values.

    Args:
        value: Values ``batch x k`` of points ``batch x k x d``, each of its own point alone;
            differentiable in the continuous inputs.
        X: Where to start.
        domain: The feasible set.
        evaluations: Number of evaluations of values and gradients.
    """
    w, free = domain.width, domain.continuous
    if not bool(free.any()):
        return X, value(X)
    f, g = _evaluated(value, X)
    g = g * w * free
    eye = torch.eye(domain.dim, dtype=X.dtype, device=X.device)
    H = eye.expand(*X.shape, -1) * FIRST / g.abs().amax(-1)[..., None, None].clamp_min(TINY)
    fresh = torch.ones_like(f, dtype=torch.bool)  # H has no curvature yet
    t = torch.ones_like(f)
    for _ in range(evaluations - 1):
        P = (H @ g.unsqueeze(-1)).squeeze(-1)
        P = P * (LARGEST / P.abs().amax(-1, keepdim=True).clamp_min(LARGEST))
        P = domain.along(X, P * w) / w
        lost = (P * g).sum(-1) <= 0.0  # along a bound H may lead down: the gradient does not
        steepest = FIRST * g / g.abs().amax(-1, keepdim=True).clamp_min(TINY)
        if bool(lost.any()):
            P = torch.where(lost.unsqueeze(-1), domain.along(X, steepest * w) / w, P)
        there = domain.stepped(X, t.unsqueeze(-1) * P * w)
        f_there, g_there = _evaluated(value, there)
        g_there = g_there * w * free
        s, y = (there - X) / w, g - g_there
        slope = (s * g).sum(-1).clamp_min(TINY)
        better = f_there >= f + GAIN * slope
        sy = (s * y).sum(-1)
        curved = better & (sy > 1e-8 * s.norm(dim=-1) * y.norm(dim=-1))
        scale = torch.where(fresh, sy / y.square().sum(-1).clamp_min(TINY), 1.0)
        start = torch.where(fresh[..., None, None], eye, H) * scale[..., None, None]
        H = torch.where(curved[..., None, None], _updated(start, s, y, sy, eye), H)
        fresh &= ~curved
        # where a step fails, the vertex of the parabola through the slope and both values
        vertex = (0.5 * slope / (slope + f - f_there)).nan_to_num(0.0).clamp(*SHORTER)
        t = torch.where(better, 1.0, vertex * t)
        X = torch.where(better.unsqueeze(-1), there, X)
        f, g = torch.where(better, f_there, f), torch.where(better.unsqueeze(-1), g_there, g)
    return X, f


def _evaluated(value: Callable[[Tensor], Tensor], X: Tensor) -> tuple[Tensor, Tensor]:
    """Values, and the gradient of each in its point."""
    with torch.enable_grad():
        points = X.detach().requires_grad_()
        values = value(points)
        (slopes,) = torch.autograd.grad(values.sum(), points)
    return values.detach(), slopes


def _updated(H: Tensor, s: Tensor, y: Tensor, sy: Tensor, eye: Tensor) -> Tensor:
    """The BFGS update of inverse Hessians of the negative functions, ``batch x d x d``."""
    rho = 1.0 / sy[..., None, None]
    a = eye - rho * s.unsqueeze(-1) * y.unsqueeze(-2)
    return a @ H @ a.mT + rho * s.unsqueeze(-1) * s.unsqueeze(-2)


@torch.no_grad()
def alternate(
    value: Callable[[Tensor], Tensor], X: Tensor, domain: Domain, evaluations: int
) -> tuple[Tensor, Tensor]:
    """Local maxima from feasible points, ``batch x k x d``, and their values, ``batch x k``.

    Args:
        value: Differentiable values ``batch x k`` of points ``batch x k x d``, each of its own
            point alone.
        X: Where to start.
        domain: The feasible set.
        evaluations: Evaluations of values and gradients in the first climb; later ones have half.
    """
    X, f = climb(value, X, domain, evaluations)
    if not domain.choices:
        return X, f
    for _ in range(ROUNDS):
        N = domain.neighbours(X)
        values = value(N.flatten(-3, -2)).unflatten(-1, N.shape[-3:-1])
        best, place = values.max(-1)
        better = best > f + 1e-9 * f.abs()
        if not bool(better.any()):
            break
        there = N.gather(-2, place[..., None, None].expand(*place.shape, 1, domain.dim)).squeeze(-2)
        X = torch.where(better.unsqueeze(-1), there, X)
        f = torch.where(better, best, f)
        if bool(domain.continuous.any()):
            X, f = climb(value, X, domain, evaluations // 2)
    return X, f


@torch.no_grad()
def maximise_in_turn(
    acquisition: AcquisitionFunction,
    domain: Domain,
    q: int,
    near: Tensor,
    seen: Tensor,
    starts: int = STARTS,
    spread: int = SPREAD,
    unit: Tensor | None = None,
) -> Tensor:
    """Maximisers of an acquisition function, ``q x d``, one after another.

    Points chosen earlier are pending for later ones.

    Args:
        acquisition: Of one point, or of several with pending ones.
        domain: The feasible set.
        q: Number of points.
        near: Good points, about which some candidates are drawn, ``n' x d``.
        seen: Points that are not to be repeated, ``n x d``.
        starts: Points that a search starts from.
        spread: Candidates over the feasible set; half as many are about good points.
        unit: Unit of local steps, in widths of the box, ``d``; by default 1.
    """
    pending = acquisition.X_pending if q > 1 else None
    chosen = domain.bounds[:0]

    def value(X: Tensor) -> Tensor:
        flat: Tensor = acquisition(X.reshape(-1, 1, X.shape[-1]).to(near))
        return flat.to(X).reshape(X.shape[:-1])

    for _ in range(q):
        X = domain.spread(spread)
        if len(near):
            X = torch.cat([X, _about(domain, near.to(X), unit, spread // 2)])
        f = value(X)
        first = X[_starts(f, spread, starts)]
        found, reached = alternate(value, first.unsqueeze(0), domain, EVALUATIONS)
        order = torch.cat([reached[0], f]).argsort(descending=True, stable=True)
        X = torch.cat([found[0], X])[order]
        X = _unseen(X, torch.cat([seen.to(chosen), chosen]), domain)[:1]
        chosen = torch.cat([chosen, X])
        if len(chosen) < q:
            parts = [chosen.to(near)] if pending is None else [pending, chosen.to(near)]
            acquisition.set_X_pending(torch.cat(parts))
    return chosen.to(near)


def _about(domain: Domain, near: Tensor, unit: Tensor | None, count: int) -> Tensor:
    """Steps of many sizes from good points, in some inputs."""
    X = near[torch.randint(len(near), (count,))]
    low, high = SCALES
    sd = 10.0 ** (low + (high - low) * torch.rand(count, 1).to(X))
    return domain.perturbed(X, sd if unit is None else sd * unit, max(0.4, 2.0 / domain.dim))


def _starts(values: Tensor, spread: int, count: int) -> Tensor:
    """Rows to start from: the best over the set and about good points, and others by chance."""
    best = [int(values[:spread].argmax())]
    if len(values) > spread:
        best.append(spread + int(values[spread:].argmax()))
    z = (values - values.mean()) / values.std().clamp_min(1e-300)
    weights = z.nan_to_num(0.0).exp()
    weights[best] = 0.0
    others = min(count, len(values)) - len(best)
    first = torch.tensor(best, device=values.device)
    return torch.cat([first, torch.multinomial(weights, others)]) if others > 0 else first[:count]


def _unseen(X: Tensor, seen: Tensor, domain: Domain) -> Tensor:
    """The points that were not seen, in order; all of them if every one was seen."""
    if not len(seen):
        return X
    apart = (X.unsqueeze(-2) - seen).abs() > SAME * domain.width
    new = apart.any(-1).all(-1)
    return X[new] if bool(new.any()) else X


def repeats_tell(model: Model, domain: Domain) -> bool:
    """Whether a point may be evaluated again: under noise, where all inputs are discrete.

    With a continuous input, a point close by tells as much.
    """
    noise = getattr(getattr(model, "likelihood", None), "noise", None)
    exact = noise is not None and float(noise.detach().max()) < NEGLIGIBLE
    return not exact and not bool(domain.continuous.any())
