"""Maximising an acquisition function over a box, or over the rows of a pool.

Acquisition functions are named (`acquisitions.build`, imported when one is needed) or given as
callables. Running trials are pending points for all of them.
"""

from __future__ import annotations

import inspect
import warnings
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
from bo_stream.errors import InputError, check_not_shadowed

__all__ = [
    "AcquisitionBuilder",
    "AcquisitionSearch",
    "Optimiser",
    "ProposalContext",
    "ProposalRule",
    "initial_design",
    "rank_by_mean",
]

BASELINE = 64
"""Number of observed points, those of the highest posterior mean, in ``X_baseline``."""

TARGETS = 1024
"""Maximum number of points over which the variance is integrated, unless they are given."""

SAME = 1e-3
"""Points closer than this fraction of the box in every coordinate count as the same."""


class AcquisitionBuilder(Protocol):
    """Builds an acquisition function."""

    def __call__(self, model: StreamingGP, **data: Any) -> AcquisitionFunction:
        """An acquisition function of the surrogate and of those of ``X_baseline``, ``best_f``,
        ``X_pending`` and ``mc_points`` that the callable has parameters for.
        """
        ...


@dataclass(frozen=True)
class Optimiser:
    """Effort of maximising an acquisition function over a box.

    Smaller settings were tried: eight searches each with qUCB and qLogEI on WISKI with 1,000 nodes,
    for three functions and two lengths of stream. With 6 starting points or with 25 iterations, the
    worst search with qUCB ended .1 standard deviations of the outcomes lower; with 256 raw samples
    .4 lower. With ``options={"maxiter": 50}`` no search with qUCB ended lower or took less time;
    those with qLogEI took 15 % less time, and the worst ended .3 lower in the logarithm.

    Attributes:
        num_restarts: Number of starting points of `optimize_acqf`.
        raw_samples: Number of random points that the starting points are chosen from.
        options: Further options of `optimize_acqf`.
    """

    num_restarts: int = 10
    raw_samples: int = 512
    options: Mapping[str, Any] | None = None


def initial_design(space: Space, seed: int, done: int, q: int, available: Tensor) -> Tensor:
    """Points of the initial design: ``q`` after the ``done`` earlier ones.

    Args:
        space: A box gives points of one Sobol sequence, ``q x d``; a pool gives random places, as
            ``q`` indices into ``available``.
        seed: Seed of the sequence or of the random places.
        done: Number of earlier points.
        q: Number of points.
        available: Rows of the pool that may be measured.
    """
    if isinstance(space, Pool):
        generator = torch.Generator().manual_seed(seed + done)
        return torch.randperm(len(available), generator=generator)[:q]
    points = draw_sobol_samples(space.tensor_bounds, n=done + q, q=1, seed=seed)
    return points[done:, 0]


@dataclass(frozen=True)
class ProposalContext:
    """Points that matter for choosing the next trials.

    Attributes:
        observed: ``n x d`` observed points, the best one among them.
        pending: ``n' x d`` points of running trials.
        failed: ``n" x d`` points that gave no outcome.
        available: Rows of the pool that may be measured.
    """

    observed: Tensor
    pending: Tensor
    failed: Tensor
    available: Tensor


class ProposalRule(Protocol):
    """Chooses the next trials, given a surrogate."""

    def __call__(self, model: StreamingGP, q: int, context: ProposalContext) -> Tensor:
        """``q x d`` points of a box, or ``q`` indices into the available rows of a pool."""
        ...


@dataclass(frozen=True)
class AcquisitionSearch:
    """Maximises an acquisition function.

    Attributes:
        space: Where to search.
        build: Builds the acquisition function.
        optimiser: Effort of a search over a box.
        targets: Points over which the variance is integrated; None: the pool, or a Sobol sample.
        baseline: Number of points in ``X_baseline``.
    """

    space: Space
    build: AcquisitionBuilder
    optimiser: Optimiser
    targets: Tensor | None = None
    baseline: int = BASELINE

    def __call__(self, model: StreamingGP, q: int, context: ProposalContext) -> Tensor:
        """The points, or indices into the available rows of the pool."""
        best, best_f = rank_by_mean(model, context.observed, self.baseline)
        data = {"X_baseline": best, "best_f": best_f}
        if len(context.pending):
            data["X_pending"] = context.pending
        acqf = _build(self.build, model, data, self._targets)
        if isinstance(self.space, Pool):
            check_not_shadowed("acquisitions")
            from acquisitions import select_from_pool

            return select_from_pool(acqf, self.space.points.to(best)[context.available], q)[0]
        bounds = self.space.tensor_bounds.to(best)
        with warnings.catch_warnings():
            # some starting points end early: harmless, since the best of all is taken
            warnings.filterwarnings("ignore", "Optimization failed", RuntimeWarning)
            X, _ = optimize_acqf(
                acqf,
                bounds,
                q=q,
                num_restarts=self.optimiser.num_restarts,
                raw_samples=self.optimiser.raw_samples,
                options=dict(self.optimiser.options or {}),
            )
        return _replace_failed(bounds, X, context.failed)

    def _targets(self) -> Tensor:
        """Points over which the variance is integrated."""
        if self.targets is not None:
            return self.targets
        if isinstance(self.space, Box):
            return draw_sobol_samples(self.space.tensor_bounds, n=TARGETS, q=1, seed=0)[:, 0]
        points, generator = self.space.points, torch.Generator().manual_seed(0)
        some = torch.randperm(len(points), generator=generator)[:TARGETS]
        return points if len(points) <= TARGETS else points[some]


@torch.no_grad()
def rank_by_mean(model: StreamingGP, points: Tensor, size: int) -> tuple[Tensor, float]:
    """The ``size`` points of highest posterior mean, best first, and the highest mean."""
    parts = points.split(size)
    means = torch.cat([model.posterior(part).mean.squeeze(-1) for part in parts])
    best = means.argsort(descending=True, stable=True)[:size]
    return points[best], float(means[best[0]])


def _build(
    build: AcquisitionBuilder,
    model: StreamingGP,
    data: dict[str, Any],
    targets: Callable[[], Tensor],
) -> AcquisitionFunction:
    """The acquisition function of a builder, given the data that it has parameters for."""
    parameters = inspect.signature(build).parameters.values()
    names = {p.name for p in parameters}
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    bound = build.keywords if isinstance(build, partial) else {}
    if "mc_points" in names and "mc_points" not in bound:
        data["mc_points"] = targets()
    wanted = {k: v for k, v in data.items() if (takes_all or k in names) and k not in bound}
    acqf = build(model, **wanted)
    if not isinstance(acqf, AcquisitionFunction):
        raise InputError(
            "an acquisition function of BoTorch",
            type(acqf).__name__,
            "Return one from the callable: (model, *, X_baseline, best_f, X_pending, mc_points).",
        )
    if "X_pending" in data and "X_pending" not in wanted:
        acqf.set_X_pending(data["X_pending"])
    return acqf


def _replace_failed(bounds: Tensor, X: Tensor, failed: Tensor) -> Tensor:
    """The points, with random ones in place of those at which a trial failed."""
    if not len(failed):
        return X
    low, high = bounds
    same = ((X.unsqueeze(-2) - failed).abs() <= SAME * (high - low)).all(-1).any(-1)
    return torch.where(same.unsqueeze(-1), low + (high - low) * torch.rand_like(X), X)
