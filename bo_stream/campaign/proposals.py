"""Where to measure next: an acquisition function maximised over a box or over the rows of a pool.

Acquisition functions are named (`acquisitions.build`, imported when one is needed) or are the
user's own callables; trials under way are pending points for every one of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.optim.optimize import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from bo_stream.campaign.space import Box, Pool, Space
from bo_stream.core.streaming import StreamingGP
from bo_stream.errors import InputError

__all__ = ["Build", "Optimiser", "design", "elsewhere", "named", "propose", "ranked"]

BASELINE = 64
"""Observed points of the highest posterior mean that an acquisition function is told of."""

TARGETS = 1024
"""Most places over which the variance is integrated, unless they are given."""


class Build(Protocol):
    """What makes an acquisition function."""

    def __call__(self, model: StreamingGP, **known: Any) -> AcquisitionFunction:
        """Of the surrogate and what the campaign knows: ``X_baseline``, ``best_f``, ``X_pending``,
        ``mc_points``.
        """
        ...


@dataclass(frozen=True)
class Optimiser:
    """How hard an acquisition function is maximised over a box.

    Attributes:
        num_restarts: Starting points that `optimize_acqf` climbs from.
        raw_samples: Random points out of which it chooses them.
        options: Its further options.
    """

    num_restarts: int = 10
    raw_samples: int = 512
    options: Mapping[str, Any] | None = None


def named(name: str, **options: Any) -> Build:
    """An acquisition function of `acquisitions` by name."""
    from acquisitions import build  # here: acquisitions stand on bo_stream

    return partial(build, name, **options)


def design(space: Space, seed: int, done: int, q: int, free: Tensor) -> Tensor:
    """Points to begin with: ``q`` after ``done`` earlier ones.

    Args:
        space: A box gives points of one Sobol sequence, ``q x d``; a pool places at random, ``q``
            indices into ``free``.
        seed: Of either.
        done: How many have been given.
        q: How many to give.
        free: Rows of the pool that may be measured.
    """
    if isinstance(space, Pool):
        generator = torch.Generator().manual_seed(seed + done)
        return torch.randperm(len(free), generator=generator)[:q]
    points = draw_sobol_samples(space.tensor_bounds, n=done + q, q=1, seed=seed)
    return points[done:, 0]


def propose(
    space: Space,
    model: StreamingGP,
    build: Build,
    optimiser: Optimiser,
    q: int,
    *,
    seen: Tensor,
    pending: Tensor,
    free: Tensor,
    targets: Tensor | None,
) -> Tensor:
    """The maximiser of an acquisition function.

    Args:
        space: Where to look.
        model: The surrogate.
        build: Makes the acquisition function.
        optimiser: For boxes.
        q: How many points.
        seen: ``n x d`` points observed.
        pending: ``n' x d`` points under way.
        free: Rows of the pool that may be measured.
        targets: Places over which variance is integrated; None: the pool, or a Sobol sample.

    Returns:
        ``q x d`` points of a box, or ``q`` indices into ``free``.
    """
    if targets is None:
        targets = _targets(space)
    baseline, best = ranked(model, seen)
    known = {"X_baseline": baseline, "best_f": best, "mc_points": targets}
    if len(pending):
        known["X_pending"] = pending
    acqf = _called(build, model, known)
    if isinstance(space, Box):
        options = dict(optimiser.options or {})
        X, _ = optimize_acqf(
            acqf,
            space.tensor_bounds,
            q=q,
            num_restarts=optimiser.num_restarts,
            raw_samples=optimiser.raw_samples,
            options=options,
        )
        return X
    from acquisitions import select_from_pool

    return select_from_pool(acqf, space.points[free], q)[0]


@torch.no_grad()
def ranked(model: StreamingGP, points: Tensor, size: int = BASELINE) -> tuple[Tensor, float]:
    """The points of highest posterior mean, best first, and the best mean."""
    parts = points.split(size)
    means = torch.cat([model.posterior(part).mean.squeeze(-1) for part in parts])
    best = means.argsort(descending=True, stable=True)[:size]
    return points[best], float(means[best[0]])


def _called(build: Build, model: StreamingGP, known: dict[str, Any]) -> AcquisitionFunction:
    """The acquisition function; a callable of the user's gets what it has parameters for."""
    parameters = inspect.signature(build).parameters.values()
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        names = {p.name for p in parameters}
        pending = known.get("X_pending")
        known = {name: value for name, value in known.items() if name in names}
        acqf = build(model, **known)
        if pending is not None and "X_pending" not in names:
            acqf.set_X_pending(pending)
        return _checked(acqf)
    return _checked(build(model, **known))


def _checked(acqf: Any) -> AcquisitionFunction:
    if not isinstance(acqf, AcquisitionFunction):
        raise InputError(
            "an acquisition function of BoTorch",
            type(acqf).__name__,
            "Return one from the callable: (model, *, X_baseline, best_f, X_pending, mc_points).",
        )
    return acqf


def _targets(space: Space) -> Tensor:
    """Places over which variance is integrated by default."""
    if isinstance(space, Box):
        return draw_sobol_samples(space.tensor_bounds, n=TARGETS, q=1, seed=0).squeeze(-2)
    points = space.points
    if len(points) <= TARGETS:
        return points
    return points[torch.randperm(len(points), generator=torch.Generator().manual_seed(0))[:TARGETS]]


SAME = 1e-3
"""Points closer than this share of the box, in every coordinate, count as the same."""


def elsewhere(space: Box, X: Tensor, failed: Tensor) -> Tensor:
    """Points like these, but for those that failed before: a random one for each of them."""
    if not len(failed):
        return X
    low, high = space.tensor_bounds
    near = ((X.unsqueeze(-2) - failed).abs() <= SAME * (high - low)).all(-1).any(-1)
    return torch.where(near.unsqueeze(-1), low + (high - low) * torch.rand_like(X), X)
