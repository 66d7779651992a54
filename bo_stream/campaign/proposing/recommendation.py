"""The settings that a campaign recommends: those of the highest posterior mean over its space.

The best outcome told is an optimistic choice under noise, and lies where a trial happened to be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from bo_stream.base.ensemble import KernelEnsemble
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.outcomes.observations import Observations
from bo_stream.campaign.space import Pool
from bo_stream.campaign.space.feasible import FeasibleSet
from bo_stream.errors import check_not_shadowed
from bo_stream.scores import marginals

__all__ = ["improvements", "largest_gains", "recommended", "region_of_best"]

OVERVIEW = 4096
"""Points over a box among which further recommendations are found."""

STEPS, STARTS, TRIES = (0.1, 0.03, 0.01, 0.003), 16, 16
"""Widths of the steps, in those of the box, by which expected improvements are maximised; points
that are moved, and how often."""

MANY = 200
"""Number of outcomes from which on polynomials are fitted about the best point."""

APART = 0.05
"""Least distance of two recommendations in some input, in widths of the box."""


@torch.no_grad()
def recommended(
    model: StreamingGP,
    feasible: FeasibleSet,
    data: Observations,
    ensemble: KernelEnsemble | None,
    count: int,
) -> Tensor:
    """Points of a box, ``k x d`` for some ``k`` up to the count, or indices of rows of a pool.

    They have the highest posterior means, the highest first. With many outcomes the first is that
    of a polynomial fitted about it, where that is known better.

    Args:
        model: The surrogate, of outcomes to be maximised.
        feasible: Where to look; points of a box differ in some input.
        data: All outcomes.
        ensemble: Kernels beside the surrogate's; the mean of all of them is maximised.
        count: Number of points.
    """
    space = feasible.space
    if isinstance(space, Pool):
        points = space.points.to(data.X)
        rows = torch.from_numpy(feasible.holds(space.place_values)).nonzero()[:, 0]
        return rows[marginals(model, points[rows])[0].topk(min(count, len(rows))).indices]
    bounds = space.tensor_bounds.to(data.X)
    best, _ = _best(model, feasible, data, ensemble)
    if count == 1:
        return best
    others = data.candidates()
    if feasible.is_box:
        spread = draw_sobol_samples(bounds, n=OVERVIEW, q=1, seed=0)[:, 0]
    else:
        spread = feasible.domain.sequence(0, 0, OVERVIEW)
        others = others[feasible.domain.contains(others)]
    others = torch.cat([others, spread])
    others = others[marginals(model, others)[0].argsort(descending=True)]
    chosen, least = best, APART * (bounds[1] - bounds[0])
    while len(chosen) < count:
        others = others[((others - chosen[-1]).abs() > least).any(-1)]
        if not len(others):
            break
        chosen = torch.cat([chosen, others[:1]])
    return chosen


def region_of_best(model: StreamingGP, feasible: FeasibleSet, data: Observations) -> Tensor | None:
    """The recommended point and the radii of the window of the polynomial that found it, ``2 x d``.

    None where the recommendation is no polynomial's.
    """
    few = len(data.X) < MANY or data.counts
    if few or isinstance(feasible.space, Pool) or not feasible.is_box:
        return None
    return _best(model, feasible, data, None)[1]


def _best(
    model: StreamingGP, feasible: FeasibleSet, data: Observations, ensemble: KernelEnsemble | None
) -> tuple[Tensor, Tensor | None]:
    """The recommended point of a box, ``1 x d``, and its region if a polynomial found it."""
    own = getattr(model, "recommendation", None)  # of a surrogate that is local to a region
    if own is not None:
        return cast(Tensor, own[0]).to(data.X).unsqueeze(0), None
    check_not_shadowed("acquisitions")
    from acquisitions import ThompsonSampling  # not at the top: it imports bo_stream
    from acquisitions.refinement import refined

    bounds = feasible.space.tensor_bounds.to(data.X)
    domain = None if feasible.is_box else feasible.domain
    near = data.best()
    sampling = ThompsonSampling(model, bounds, near=near, ensemble=ensemble, domain=domain)
    best, region = sampling.recommend(), None
    if len(data.X) >= MANY and feasible.is_box and not data.counts:
        region = refined(model, best, bounds, data.X, data.Y[:, 0])
    return (best if region is None else region[0]).unsqueeze(0), region


@torch.no_grad()
def largest_gains(
    gains: Callable[[Tensor], Tensor], feasible: FeasibleSet, observed: Tensor
) -> Tensor:
    """The largest of expected gains over the space, ``k``.

    Args:
        gains: Of points ``n x d``: ``k`` kinds of expected gains, ``k x n``.
        feasible: Where to look.
        observed: Points with outcomes, ``n x d``.
    """
    space = feasible.space
    if isinstance(space, Pool):
        X = space.points.to(observed)[torch.from_numpy(feasible.holds(space.place_values))]
    elif feasible.is_box:
        X = draw_sobol_samples(space.tensor_bounds.to(observed), n=OVERVIEW, q=1, seed=0)[:, 0]
        X = torch.cat([observed, X])
    else:
        X = feasible.domain.sequence(0, 0, OVERVIEW).to(observed)
    found = gains(X)
    if not feasible.is_box or isinstance(space, Pool):
        return found.amax(-1)
    (low, high), generator = space.tensor_bounds.to(X), torch.Generator().manual_seed(0)
    first = found[0]
    for step in STEPS:  # around the best points so far
        best = X[first.topk(STARTS).indices]
        moves = torch.randn(STARTS, TRIES, space.dim, generator=generator, dtype=torch.float64)
        near = best.unsqueeze(1) + step * (high - low) * moves.to(X)
        X = torch.cat([best, near.reshape(-1, space.dim).minimum(high).maximum(low)])
        new = gains(X)
        first, found = new[0], torch.cat([found, new], -1)
    return found.amax(-1)


def improvements(mean: Tensor, sd: Tensor, targets: Tensor) -> Tensor:
    """Expected improvements ``k x n`` over targets, ``k``.

    Args:
        mean: Means of the outcome, to be maximised, ``n``.
        sd: Standard deviations, ``n``.
        targets: The targets.
    """
    sd = sd.clamp_min(1e-300)
    u = (mean - targets.unsqueeze(-1)) / sd
    density = torch.exp(-0.5 * u.square()) / math.sqrt(2.0 * math.pi)
    return (sd * (density + u * torch.special.ndtr(u))).clamp_min(0.0)
