"""Many functions maximised at once, by a projected BFGS whose steps are batched.

An evaluation costs one call for all points, whatever their number. Each has an inverse Hessian and
a step length of its own, and no point ever gets worse.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from acquisitions.domain import Domain

__all__ = ["climb"]

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
