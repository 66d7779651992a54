"""Maximising an acquisition function over a box, or over the rows of a pool.

Acquisition functions are named (`acquisitions.build`, imported when one is needed) or given as
callables. Running trials are pending points for all of them.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.optim.optimize import optimize_acqf
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from bo_stream.base.ensemble import KernelEnsemble
from bo_stream.base.gaussian_model import standardised
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.effort import Optimiser
from bo_stream.campaign.space import Pool
from bo_stream.campaign.space.feasible import FeasibleSet
from bo_stream.errors import InputError, check_not_shadowed

__all__ = [
    "AcquisitionBuilder",
    "AcquisitionSearch",
    "ProposalContext",
    "ProposalRule",
    "ProposingAcquisition",
    "initial_design",
    "rank_by_mean",
]

BASELINE = 64
"""Number of observed points, those of the highest posterior mean, in ``X_baseline``."""

TARGETS = 1024
"""Maximum number of points over which the variance is integrated, unless they are given."""

AHEAD_AT_MOST = 8000
"""Maximum number of points that are chosen ahead of the calls of `ask`."""

SAME = 1e-3
"""Points closer than this fraction of the box in every coordinate count as the same."""

SPARE = 8
"""Points of a space with discrete inputs drawn for each one that may take a failed one's place."""


@runtime_checkable
class ProposingAcquisition(Protocol):
    """Chooses points itself, where an acquisition function is maximised.

    Attributes:
        ahead: Share of the number of observations that may be chosen at once, for several calls of
            `ask`.
    """

    ahead: ClassVar[float]

    def propose(self, q: int) -> Tensor:
        """``q x d`` points of the box."""
        ...

    def select(self, points: Tensor, q: int) -> Tensor:
        """Indices of ``q`` rows of the points of a pool, ``P x d``."""
        ...


AcquisitionBuilder = Callable[..., AcquisitionFunction | ProposingAcquisition]
"""Builds an acquisition function of the surrogate and of those of ``X_baseline``, ``best_f``,
``X_pending``, ``mc_points``, ``bounds``, ``near`` (the points of the best outcomes), ``ensemble``,
``region`` and ``domain`` (`acquisitions.domain.Domain`, unless every point between the bounds is
feasible) that the callable has parameters for.
"""


def initial_design(
    feasible: FeasibleSet, seed: int, done: int, q: int, available: Tensor, uniform: bool = False
) -> Tensor:
    """Points of the initial design: ``q`` after the ``done`` earlier ones.

    Args:
        feasible: A box gives feasible points of one Sobol sequence, ``q x d``; a pool gives random
            places, as ``q`` indices into ``available``.
        seed: Seed of the sequence or of the random places.
        done: Number of earlier points.
        q: Number of points.
        available: Rows of the pool that may be measured.
        uniform: Whether points of a box are independent and uniform instead.
    """
    space = feasible.space
    if isinstance(space, Pool):
        generator = torch.Generator().manual_seed(seed + done)
        return torch.randperm(len(available), generator=generator)[:q]
    if not (feasible.is_box and uniform):
        return feasible.domain.sequence(seed, done, q)
    generator = torch.Generator().manual_seed(seed)
    low, high = space.tensor_bounds
    U = torch.rand(done + q, space.dim, dtype=low.dtype, generator=generator)
    return low + (high - low) * U[done:]


@dataclass(frozen=True)
class ProposalContext:
    """Points that matter for choosing the next trials.

    Attributes:
        observed: ``n x d`` observed points, the best one among them.
        pending: ``n' x d`` points of running trials.
        failed: ``n" x d`` points that gave no outcome.
        available: Rows of the pool that may be measured.
        best: ``k x d`` points of the best outcomes.
        num_observed: Number of observations.
        ensemble: Kernels that are plausible beside the surrogate's, if there are any.
        evaluation_seconds: Seconds from asking for a batch to telling it, if they were measured.
        decision_seconds: Seconds that maximising ``qlogei`` takes, if they were measured.
        typical_size: The median of the trials or exposures of counts.
        region: A point that is known well, and radii of a region about it, ``2 x d``.
    """

    observed: Tensor
    pending: Tensor
    failed: Tensor
    available: Tensor
    best: Tensor
    num_observed: int
    ensemble: KernelEnsemble | None = None
    evaluation_seconds: float | None = None
    decision_seconds: float | None = None
    typical_size: float | None = None
    region: Tensor | None = None


class ProposalRule(Protocol):
    """Chooses the next trials, given a surrogate."""

    def __call__(self, model: StreamingGP, q: int, context: ProposalContext) -> Tensor:
        """Points of a box, or ``q`` indices into the available rows of a pool.

        Of a box they are ``q x d``, or more: those after the first ``q`` are for later calls.
        """
        ...


@dataclass(frozen=True)
class AcquisitionSearch:
    """Maximises an acquisition function.

    Attributes:
        feasible: Where to search.
        build: Builds the acquisition function.
        optimiser: Effort of a search over a box.
        targets: Points over which the variance is integrated; None: the pool, or a Sobol sample.
        baseline: Number of points in ``X_baseline``.
    """

    feasible: FeasibleSet
    build: AcquisitionBuilder
    optimiser: Optimiser
    targets: Tensor | None = None
    baseline: int = BASELINE

    def __post_init__(self) -> None:
        check_not_shadowed("acquisitions")

    def __call__(self, model: StreamingGP, q: int, context: ProposalContext) -> Tensor:
        """The points, or indices into the available rows of the pool."""
        with warnings.catch_warnings():
            # some starting points end early: harmless, since the best of all is taken
            warnings.filterwarnings("ignore", "Optimization failed", RuntimeWarning)
            warnings.simplefilter("ignore", NumericalWarning)  # jitter among repeated points
            return self._found(model, q, context)

    def _found(self, model: StreamingGP, q: int, context: ProposalContext) -> Tensor:
        space = self.feasible.space
        bounds = space.tensor_bounds.to(context.observed)
        acqf = self.built(model, context)
        if isinstance(space, Pool):
            points = space.points.to(bounds)[context.available]
            if isinstance(acqf, ProposingAcquisition):
                return acqf.select(points, q)
            from acquisitions import select_from_pool  # not at the top: it imports bo_stream

            return select_from_pool(acqf, points, q)[0]
        if isinstance(acqf, ProposingAcquisition):
            ahead = min(int(acqf.ahead * context.num_observed), AHEAD_AT_MOST)
            X = acqf.propose(max(q, ahead))
            return self._replace_failed(bounds, self._checked(X), context.failed)
        if not self.feasible.is_box:
            from acquisitions.ascent import maximise_in_turn, repeats_tell

            domain, seen = self.feasible.domain, [context.failed]
            if not repeats_tell(model, domain):
                seen += [context.observed, context.pending]
            near = context.best[domain.contains(context.best)]
            effort = self.optimiser.num_restarts, self.optimiser.raw_samples
            return maximise_in_turn(acqf, domain, q, near, torch.cat(seen), *effort)
        X, _ = optimize_acqf(
            acqf,
            bounds,
            q=q,
            num_restarts=self.optimiser.num_restarts,
            raw_samples=self.optimiser.raw_samples,
            options=dict(self.optimiser.options or {}),
        )
        return self._replace_failed(bounds, X, context.failed)

    @property
    def samples(self) -> bool:
        """Whether it takes samples of the posterior, for which an ensemble of kernels is used."""
        return "ensemble" in _data_of(self.build)

    def built(
        self, model: StreamingGP, context: ProposalContext
    ) -> AcquisitionFunction | ProposingAcquisition:
        """What the builder makes, given the data that it has parameters for."""
        build, bounds = self.build, self.feasible.space.tensor_bounds.to(context.observed)
        names = _data_of(build)
        if _name_of(build) is not None and not self.samples:
            model = standardised(model)
        data: dict[str, Any] = {
            "X_pending": context.pending if len(context.pending) else None,
            "bounds": bounds,
            "near": context.best,
            "ensemble": context.ensemble,
            "region": context.region,
            "trials": context.typical_size,
            "domain": None if self.feasible.is_box else self.feasible.domain,
            "observed": context.observed,
        }
        if names & {"X_baseline", "best_f"}:
            observed = self._inside(context.observed)
            best, best_f = rank_by_mean(model, observed, self.baseline)
            data |= {"X_baseline": best, "best_f": best_f}
        if "mc_points" in names:
            data["mc_points"] = self._targets()
        used = {k: v for k, v in data.items() if k in names and v is not None}
        acqf = build(model, **used)
        if isinstance(acqf, ProposingAcquisition):
            return acqf
        if not isinstance(acqf, AcquisitionFunction):
            raise InputError(
                "an acquisition function of BoTorch",
                type(acqf).__name__,
                "Return one from the callable: (model, *, X_baseline, best_f, X_pending, ...).",
            )
        if "X_pending" not in used and len(context.pending):
            acqf.set_X_pending(context.pending)
        return acqf

    def _inside(self, observed: Tensor) -> Tensor:
        """The observed points that fulfil the constraints; all of them if none does."""
        if isinstance(self.feasible.space, Pool) or not self.feasible.is_constrained:
            return observed
        inside = self.feasible.domain.holds(observed.double())
        return observed[inside] if bool(inside.any()) else observed

    def _checked(self, X: Tensor) -> Tensor:
        """Points that an acquisition function chose itself, if they are feasible.

        Raises:
            InputError: otherwise.
        """
        if not self.feasible.is_box and not bool(self.feasible.domain.contains(X).all()):
            raise InputError(
                "feasible points from an acquisition function that proposes them itself",
                "others",
                "Give its builder a parameter `domain`, and draw the points from that.",
            )
        return X

    def _replace_failed(self, bounds: Tensor, X: Tensor, failed: Tensor) -> Tensor:
        """The points, with random ones in place of those at which a trial failed."""
        if not len(failed):
            return X

        def lost(points: Tensor) -> Tensor:
            apart = (points.unsqueeze(-2) - failed).abs() > SAME * (bounds[1] - bounds[0])
            return (~apart.any(-1)).any(-1, keepdim=True)

        drawn = self.feasible.domain.uniform(SPARE * len(X)).to(X)
        free = drawn[~lost(drawn).squeeze(-1)]
        some = free if len(free) else drawn
        return torch.where(lost(X), some[torch.arange(len(X)) % len(some)], X)

    def _targets(self) -> Tensor:
        """Points over which the variance is integrated."""
        if self.targets is not None:
            return self.targets
        space = self.feasible.space
        if not isinstance(space, Pool):
            return self.feasible.domain.sequence(0, 0, TARGETS)
        points, generator = space.points, torch.Generator().manual_seed(0)
        some = torch.randperm(len(points), generator=generator)[:TARGETS]
        return points if len(points) <= TARGETS else points[some]


@torch.no_grad()
def rank_by_mean(model: StreamingGP, points: Tensor, size: int) -> tuple[Tensor, float]:
    """The ``size`` points of highest posterior mean, best first, and the highest mean."""
    parts = points.split(size)
    means = torch.cat([model.posterior(part).mean.squeeze(-1) for part in parts])
    best = means.argsort(descending=True, stable=True)[:size]
    return points[best], float(means[best[0]])


def _name_of(build: AcquisitionBuilder) -> str | None:
    """The name that `acquisitions.build` was bound to, if the builder is that."""
    from acquisitions.build import build as by_name  # not at the top: it imports bo_stream

    if not isinstance(build, partial) or build.func is not by_name or not build.args:
        return None
    return str(build.args[0])


def _data_of(build: AcquisitionBuilder) -> set[str]:
    """Names of the data that a builder has parameters for and that are not bound yet."""
    from acquisitions.build import DATA

    bound = set(build.keywords) if isinstance(build, partial) else set[str]()
    name = _name_of(build)
    if name is not None:
        return set(DATA.get(name, ())) - bound
    parameters = inspect.signature(build).parameters.values()
    names = {p.name for p in parameters}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        names |= {"X_baseline", "best_f", "X_pending"}
    return names - bound
