"""Maximisers of functions on sine features: a whole grid, then Newton's method (MATHS 12.3).

On a grid the functions are contracted with the features axis after axis, so that a value costs few
operations. The best points are improved by Newton steps with analytic derivatives.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bo_stream.mathematics.sines import Basis

__all__ = ["grid_maximisers", "polished"]

TOGETHER = 32
"""Functions whose values on the grid are held at a time."""
REACH = 1.5
"""Largest Newton step, in spacings of the grid."""
PER_AXIS = {1: 256, 2: 96}
"""Points of the grid along each axis; 28 for more inputs."""
FLAT = 1e-9
"""Smallest curvature, per squared width of the bounds."""


@torch.no_grad()
def grid_maximisers(
    basis: Basis,
    weights: Tensor,
    *,
    per_axis: int | None = None,
    steps: int = 2,
    starts: int = 1,
) -> tuple[Tensor, Tensor]:
    """Maximisers over the bounds of functions ``weights @ features`` of few inputs.

    Values on the grid take O(a per_axis^d) operations a function, in float32, for indices up to a.

    Args:
        basis: The features, of one to about four inputs.
        weights: Coefficients of ``S`` functions, ``S x f``.
        per_axis: Points of the grid along each axis; by default 256, 96 or 28 for one, two or more
            inputs.
        steps: Newton steps from the best grid point.
        starts: Number of best grid points of each function that are improved.

    Returns:
        Maximisers, ``S x d``, in units of the features' inputs, and the functions' values there.
    """
    per_axis = PER_AXIS.get(len(basis.low), 28) if per_axis is None else per_axis
    found = [_on_grid(basis, part, per_axis, starts) for part in weights.float().split(TOGETHER)]
    places = basis.low + basis.width * torch.cat(found).to(weights)
    repeated = weights.repeat_interleave(starts, 0)
    X, values = polished(
        basis, repeated, places.flatten(0, 1), steps=steps, largest=REACH / per_axis
    )
    values, best = values.view(-1, starts).max(-1)
    X = X.view(-1, starts, X.shape[-1])
    return X[torch.arange(len(X), device=X.device), best], values


@torch.no_grad()
def polished(
    basis: Basis, weights: Tensor, X: Tensor, *, steps: int, largest: float
) -> tuple[Tensor, Tensor]:
    """The best of a few safeguarded Newton iterates within the bounds, each for its own function.

    Positive curvature is taken as negative, so that steps ascend; coordinates whose gradient points
    out of the bounds stay there; a step that did not gain is repeated from its start, a quarter as
    long. O(d^2 f) operations a step and function.

    Args:
        basis: The features.
        weights: ``S x f``.
        X: Starting points, ``S x d``.
        steps: Number of steps.
        largest: Largest change of a coordinate in one step, in widths of the bounds.

    Returns:
        Points ``S x d``, and the functions' values there, never below those at the start.
    """
    low, high = basis.low, basis.low + basis.width
    X = torch.minimum(torch.maximum(X, low), high)
    if not steps:
        return X, (basis.features(X) * weights).sum(-1)
    best, most, reach = X, X.new_full((len(X),), -torch.inf), X.new_full((len(X), 1), largest)
    slope, curvature = torch.zeros_like(X), X.new_zeros(*X.shape, X.shape[-1])
    for _ in range(steps):
        values, g, H = _derivatives(basis, weights, X)
        better = (values > most).unsqueeze(-1)
        best, most = torch.where(better, X, best), torch.maximum(values, most)
        slope = torch.where(better, g, slope)
        curvature = torch.where(better.unsqueeze(-1), H, curvature)
        reach = torch.where(better, (2.0 * reach).clamp_max(largest), 0.25 * reach)
        room = (low - best) / basis.width, (high - best) / basis.width
        step = _newton_step(slope, curvature, room, reach)
        X = torch.minimum(torch.maximum(best + step * basis.width, low), high)
    values = (basis.features(X) * weights).sum(-1)
    better = values > most
    return torch.where(better.unsqueeze(-1), X, best), torch.where(better, values, most)


def _on_grid(basis: Basis, weights: Tensor, per_axis: int, starts: int) -> Tensor:
    """The best points of a grid of cell centres in the unit cube: ``S x starts x d``, float32."""
    d, main = basis.alpha.shape[-1], basis.main
    axis = (torch.arange(per_axis, dtype=torch.float64, device=basis.low.device) + 0.5) / per_axis
    points = basis.low + basis.width * axis.unsqueeze(-1)
    waves = basis.tables(points.expand(-1, d), 1)[:, 0].float()
    highest = basis.joint.amax(0).tolist()
    joint = [wave[1 : most + 1] for wave, most in zip(waves, highest, strict=True)]
    alone = weights[:, : d * main].unflatten(-1, (d, main)) if main else None
    T = _contracted(basis, weights[:, d * main :], joint)
    if alone is not None and d > 1:
        rest: Tensor | None = None
        for k in range(1, d):
            own = alone[:, k] @ waves[k][1 : main + 1]
            rest = own if rest is None else rest.unsqueeze(-1) + own[:, *(None,) * (rest.ndim - 1)]
        T = torch.cat([T, torch.as_tensor(rest).reshape(len(T), 1, -1)], 1)
        joint[0] = torch.cat([joint[0], torch.ones_like(joint[0][:1])])
    values = joint[0].T @ T  # S x per_axis x the other axes
    if alone is not None:
        values.add_((alone[:, 0] @ waves[0][1 : main + 1]).unsqueeze(-1))
    flat = _places_of_best(values, starts)
    found = []
    for _ in range(d):
        found.append(axis[flat % per_axis])
        flat = flat // per_axis
    return torch.stack(found[::-1], -1).float()


def _contracted(basis: Basis, weights: Tensor, joint: list[Tensor]) -> Tensor:
    """Functions of all inputs with all axes but the first on the grid: ``S x a x others``."""
    shape, flat = [len(wave) for wave in joint], torch.zeros_like(basis.joint[:, 0])
    for k, size in enumerate(shape):
        flat = flat * size + basis.joint[:, k] - 1
    S = len(weights)
    T = weights.new_zeros(S, int(torch.tensor(shape).prod()))
    T.index_copy_(1, flat, weights)
    for k in reversed(range(1, len(shape))):
        T = T.view(S, *shape[:k], shape[k], -1)
        T = joint[k].T @ T if T.shape[-1] > 1 else (T.squeeze(-1) @ joint[k]).unsqueeze(-1)
        T = T.reshape(S, -1)
    return T.view(S, shape[0], -1)


def _places_of_best(values: Tensor, starts: int) -> Tensor:
    """Places of the largest values among those of each function: ``S x starts``."""
    if starts > 1:
        return values.flatten(1).topk(starts, -1).indices
    first = values.amax(-1).argmax(-1, keepdim=True)
    slabs = values.gather(1, first.unsqueeze(-1).expand(-1, 1, values.shape[-1])).squeeze(1)
    return first * values.shape[-1] + slabs.argmax(-1, keepdim=True)


def _derivatives(basis: Basis, weights: Tensor, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values ``S``, gradients ``S x d`` and Hessians ``S x d x d``, per width of the bounds."""
    orders: list[tuple[int, ...]] = [()]
    rows, low = weights.mT.unsqueeze(0), 1  # up to row `low` there is at most one slope
    for value, slope, curve in basis.factors(X, 3):
        same, once, twice = rows * value, rows[:low] * slope, rows[:1] * curve
        rows = torch.cat([same[:low], once[:1], same[low:], once[1:], twice])
        zero, one, two = ([(*order, j) for order in orders] for j in range(3))
        orders = [*zero[:low], *one[:1], *zero[low:], *one[1:low], *two[:1]]
        low += 1
    totals, d, w = rows.sum(1).mT, X.shape[-1], basis.width
    place = {order: i for i, order in enumerate(orders)}

    def at(*axes: int) -> int:
        return place[tuple(axes.count(k) for k in range(d))]

    slope = totals[:, [at(k) for k in range(d)]] * w
    pairs = [at(k, i) for k in range(d) for i in range(d)]
    curvature = totals[:, pairs].unflatten(-1, (d, d)) * torch.outer(w, w)
    return totals[:, at()], slope, curvature


def _newton_step(
    slope: Tensor, curvature: Tensor, room: tuple[Tensor, Tensor], reach: Tensor
) -> Tensor:
    """Ascending steps ``S x d`` between ``room`` of which no coordinate exceeds ``reach``.

    Coordinates that would leave the bounds go there, and the others' step is computed again.

    Args:
        slope: Gradients, ``S x d``.
        curvature: Hessians, ``S x d x d``.
        room: Steps to the lower (at most zero) and the upper bounds (at least zero), ``S x d``.
        reach: ``S x 1``.
    """
    held = ((room[0] >= 0.0) & (slope <= 0.0)) | ((room[1] <= 0.0) & (slope >= 0.0))
    step = _free_step(slope, curvature, held, reach)
    within = torch.minimum(torch.maximum(step, room[0]), room[1])
    leaving = within != step
    if not bool(leaving.any()):
        return step
    fixed = torch.where(leaving, within, 0.0)
    slope = slope + (curvature @ fixed.unsqueeze(-1)).squeeze(-1)
    step = fixed + _free_step(slope, curvature, held | leaving, reach)
    return torch.minimum(torch.maximum(step, room[0]), room[1])


def _free_step(slope: Tensor, curvature: Tensor, held: Tensor, reach: Tensor) -> Tensor:
    """Newton steps of the coordinates that are not held."""
    slope = slope.masked_fill(held, 0.0)
    curvature = curvature.masked_fill(held.unsqueeze(-1) | held.unsqueeze(-2), 0.0)
    sizes, V = torch.linalg.eigh(curvature)
    across = (V.mT @ slope.unsqueeze(-1)).squeeze(-1) / sizes.abs().clamp_min(FLAT)
    step = (V @ across.unsqueeze(-1)).squeeze(-1)
    long = step.abs().amax(-1, keepdim=True).clamp_min(1e-300)
    return step * (reach / long).clamp_max(1.0)
