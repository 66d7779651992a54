"""Maximisers of functions on sine features: a whole grid, then Newton's method (MATHS 12.3).

On a grid the functions are contracted with the features axis after axis, so that a value costs few
operations. The best points are improved by Newton steps with analytic derivatives.
"""

from __future__ import annotations

from functools import reduce
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from bo_stream.mathematics.sines import Basis

__all__ = ["grid_maximisers", "polished"]

TOGETHER = 32
"""Functions whose values on the grid are held at a time."""
REACH = 1.5
"""Largest Newton step, in spacings of the grid."""
FLAT = 1e-9
"""Smallest curvature, per squared width of the bounds."""


@torch.no_grad()
def grid_maximisers(
    basis: Basis, weights: Tensor, *, per_axis: int, steps: int = 2, starts: int = 1
) -> tuple[Tensor, Tensor]:
    """Maximisers over the bounds of functions ``weights @ features`` of few inputs.

    Values on the grid take O(a per_axis^d) operations a function, in float32, for indices up to a.

    Args:
        basis: The features, of one to about four inputs.
        weights: Coefficients of ``S`` functions, ``S x f``.
        per_axis: Points of the grid along each axis.
        steps: Newton steps from the best grid points.
        starts: Number of grid points of each function that are improved, with different values of
            the first input.

    Returns:
        Maximisers, ``S x d``, in units of the features' inputs, and the functions' values there.
    """
    found = [_on_grid(basis, part, per_axis, starts) for part in weights.float().split(TOGETHER)]
    places = basis.low + basis.width * torch.cat(found).flatten(0, 1)
    repeated = weights.repeat_interleave(starts, 0)
    X, values = polished(basis, repeated, places, steps=steps, largest=REACH / per_axis)
    values, best = values.view(-1, starts).max(-1)
    return X.view(-1, starts, X.shape[-1])[torch.arange(len(best), device=X.device), best], values


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
    """The best points of a grid of cell centres in the unit cube: ``S x starts x d``."""
    S, d, main = len(weights), len(basis.low), basis.main
    axis = (torch.arange(per_axis, dtype=torch.float64, device=basis.low.device) + 0.5) / per_axis
    waves = basis.tables(basis.low + basis.width * axis.unsqueeze(-1), 1)[:, 0].float()
    highest = basis.joint.amax(0).tolist()
    T = weights.new_zeros(S, *highest)
    T[:, *(basis.joint.mT - 1)] = weights[:, d * main :]
    first, *others = (wave[1 : most + 1] for wave, most in zip(waves, highest, strict=True))
    for wave in reversed(others):
        T = (T @ wave).movedim(-1, 1)  # in the end S x the other axes x indices of the first
    T = T.reshape(S, -1, highest[0])
    alone = weights[:, : d * main].unflatten(-1, (d, main)).movedim(1, 0)
    effect, *effects = alone @ waves[:, 1 : main + 1]
    rest = weights.new_zeros(S)
    for other in effects:
        rest = rest.unsqueeze(-1) + other[:, *(None,) * (rest.ndim - 1)]
    T = torch.cat([T, rest.view(S, -1, 1)], -1)
    values = torch.cat([first, torch.ones_like(first[:1])]).mT @ T.mT  # S x per_axis x others
    layers = (values.amax(-1) + effect).topk(starts).indices
    inside = values.gather(1, layers.unsqueeze(-1).expand(-1, -1, values.shape[-1])).argmax(-1)
    found = torch.unravel_index(layers * values.shape[-1] + inside, (per_axis,) * d)
    return axis[torch.stack(found, -1)]


def _derivatives(basis: Basis, weights: Tensor, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values ``S``, gradients ``S x d`` and Hessians ``S x d x d``, per width of the bounds."""
    d, w = X.shape[-1], basis.width
    first, *others = basis.factors(X, 3)
    factors = [first * weights.mT, *others]

    def derivative(*inputs: int) -> Tensor:
        orders = [inputs.count(k) for k in range(d)]
        parts = [factor[order] for factor, order in zip(factors, orders, strict=True)]
        return reduce(torch.mul, parts).sum(0)

    curvature = X.new_empty(len(X), d, d)
    for k, i in combinations_with_replacement(range(d), 2):
        curvature[:, k, i] = curvature[:, i, k] = derivative(k, i)
    slope = torch.stack([derivative(k) for k in range(d)], -1)
    return derivative(), slope * w, curvature * torch.outer(w, w)


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
    fixed = ((room[0] >= 0.0) & (slope <= 0.0)) | ((room[1] <= 0.0) & (slope >= 0.0))
    start = torch.zeros_like(slope)
    for _ in range(2):
        ahead = slope + (curvature @ start.unsqueeze(-1)).squeeze(-1)
        step = start + _free_step(ahead, curvature, fixed, reach)
        within = torch.minimum(torch.maximum(step, room[0]), room[1])
        leaving = within != step
        if not bool(leaving.any()):
            break
        fixed, start = fixed | leaving, torch.where(leaving, within, start)
    return within


def _free_step(slope: Tensor, curvature: Tensor, fixed: Tensor, reach: Tensor) -> Tensor:
    """Newton steps of the coordinates that are not fixed."""
    slope = slope.masked_fill(fixed, 0.0)
    curvature = curvature.masked_fill(fixed.unsqueeze(-1) | fixed.unsqueeze(-2), 0.0)
    sizes, V = torch.linalg.eigh(curvature)
    across = (V.mT @ slope.unsqueeze(-1)).squeeze(-1) / sizes.abs().clamp_min(FLAT)
    step = (V @ across.unsqueeze(-1)).squeeze(-1)
    long = step.abs().amax(-1, keepdim=True).clamp_min(1e-300)
    return step * (reach / long).clamp_max(1.0)
