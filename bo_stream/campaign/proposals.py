"""Where to measure next: an acquisition function maximised over a box or over the rows of a pool.

Acquisition functions are named (`acquisitions.build`, imported when one is needed) or are the
user's own callables; trials under way are pending points for every one of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.optim.optimize import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.space import Box, Pool, Space
from bo_stream.errors import InputError

__all__ = ["Build", "Known", "Optimiser", "Propose", "Search", "design", "ranked"]

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

    Less was tried: eight searches each with qUCB and qLogEI on WISKI with 1,000 nodes, for three
    functions and two lengths of stream. With 6 starting points, or with 25 iterations, the worst of
    qUCB's ended .1 standard deviations of the outcomes lower, with 256 raw samples as well .4. With
    ``options={"maxiter": 50}`` none of qUCB's ended lower or took less time; qLogEI's took 15 %
    less, and the worst ended .3 lower in the logarithm. So the defaults stay as they are.

    Attributes:
        num_restarts: Starting points that `optimize_acqf` climbs from.
        raw_samples: Random points out of which it chooses them.
        options: Its further options.
    """

    num_restarts: int = 10
    raw_samples: int = 512
    options: Mapping[str, Any] | None = None


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


@dataclass(frozen=True)
class Known:
    """What is known when the next trials are chosen.

    Attributes:
        seen: ``n x d`` points observed, those that matter.
        pending: ``n' x d`` points under way.
        failed: ``n" x d`` points that gave no value.
        free: Rows of the pool that may be measured.
    """

    seen: Tensor
    pending: Tensor
    failed: Tensor
    free: Tensor


class Propose(Protocol):
    """What chooses the next trials, given a surrogate."""

    def __call__(self, model: StreamingGP, q: int, known: Known) -> Tensor:
        """``q x d`` points of a box, or ``q`` indices into the free places of a pool."""
        ...


@dataclass(frozen=True)
class Search:
    """The maximiser of an acquisition function.

    Attributes:
        space: Where to look.
        build: Makes the acquisition function.
        optimiser: How hard to look, in a box.
        targets: Places over which variance is integrated; None: the pool, or a Sobol sample.
        baseline: Observed points of the highest posterior mean that the acquisition is told of.
    """

    space: Space
    build: Build
    optimiser: Optimiser
    targets: Tensor | None = None
    baseline: int = BASELINE

    def __call__(self, model: StreamingGP, q: int, known: Known) -> Tensor:
        """The points, or indices into the free places."""
        best, best_f = ranked(model, known.seen, self.baseline)
        said = {"X_baseline": best, "best_f": best_f}
        if len(known.pending):
            said["X_pending"] = known.pending
        acqf = _called(self.build, model, said, self._targets)
        if isinstance(self.space, Pool):
            from acquisitions import select_from_pool

            return select_from_pool(acqf, self.space.points.to(best)[known.free], q)[0]
        bounds = self.space.tensor_bounds.to(best)
        X, _ = optimize_acqf(
            acqf,
            bounds,
            q=q,
            num_restarts=self.optimiser.num_restarts,
            raw_samples=self.optimiser.raw_samples,
            options=dict(self.optimiser.options or {}),
        )
        return elsewhere(bounds, X, known.failed)

    def _targets(self) -> Tensor:
        """Places over which variance is integrated."""
        if self.targets is not None:
            return self.targets
        if isinstance(self.space, Box):
            return draw_sobol_samples(self.space.tensor_bounds, n=TARGETS, q=1, seed=0)[:, 0]
        points, generator = self.space.points, torch.Generator().manual_seed(0)
        some = torch.randperm(len(points), generator=generator)[:TARGETS]
        return points if len(points) <= TARGETS else points[some]


@torch.no_grad()
def ranked(model: StreamingGP, points: Tensor, size: int) -> tuple[Tensor, float]:
    """The points of highest posterior mean, best first, and the best mean."""
    parts = points.split(size)
    means = torch.cat([model.posterior(part).mean.squeeze(-1) for part in parts])
    best = means.argsort(descending=True, stable=True)[:size]
    return points[best], float(means[best[0]])


def _called(
    build: Build, model: StreamingGP, known: dict[str, Any], targets: Callable[[], Tensor]
) -> AcquisitionFunction:
    """The acquisition function; a callable of the user's gets what it has parameters for."""
    parameters = inspect.signature(build).parameters.values()
    names = {p.name for p in parameters}
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    given = build.keywords if isinstance(build, partial) else {}
    if "mc_points" in names and "mc_points" not in given:
        known["mc_points"] = targets()
    wanted = {k: v for k, v in known.items() if (takes_all or k in names) and k not in given}
    acqf = build(model, **wanted)
    if not isinstance(acqf, AcquisitionFunction):
        raise InputError(
            "an acquisition function of BoTorch",
            type(acqf).__name__,
            "Return one from the callable: (model, *, X_baseline, best_f, X_pending, mc_points).",
        )
    if "X_pending" in known and "X_pending" not in wanted:
        acqf.set_X_pending(known["X_pending"])
    return acqf


SAME = 1e-3
"""Points closer than this share of the box, in every coordinate, count as the same."""


def elsewhere(bounds: Tensor, X: Tensor, failed: Tensor) -> Tensor:
    """Points like these, but for those that failed before: a random one for each of them."""
    if not len(failed):
        return X
    low, high = bounds
    near = ((X.unsqueeze(-2) - failed).abs() <= SAME * (high - low)).all(-1).any(-1)
    return torch.where(near.unsqueeze(-1), low + (high - low) * torch.rand_like(X), X)
