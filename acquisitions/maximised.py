"""Rules that maximise acquisition functions, over a box or over the places of a pool.

A joint search over q points has q d variables, and the memory of its joint posteriors grows with
the square of q. Large batches are therefore chosen in parts, or by samples. Running trials are
pending points.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast, runtime_checkable

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from acquisitions.ascent import maximise_in_turn, of_acquisition, repeats_tell
from acquisitions.build import build
from acquisitions.learning import select_from_pool
from acquisitions.local_search import LocalSearch
from acquisitions.optimize import optimize_acqf
from acquisitions.outcomes import OutcomeAcquisition, SampledOutcomes
from acquisitions.rule import REGISTRY, Proposal, Registered, Rule, View, described, register
from acquisitions.trust_region import TrustRegionSearch
from bo_stream.base.gaussian_model import standardised
from bo_stream.campaign.space import Box
from bo_stream.errors import InputError

if TYPE_CHECKING:
    from bo_stream.campaign.constraints import FeasibleSet
    from bo_stream.campaign.outcomes.outcomes import OutcomeSet

__all__ = ["AcquisitionBuilder", "InParts", "Maximised", "ProposingAcquisition", "rule_of"]

BASELINE = 64
"""Number of observed points, those of the highest posterior mean, in ``X_baseline``."""

TARGETS = 1024
"""Number of points over which the variance is integrated, unless they are given."""

AHEAD_AT_MOST = 8000
"""Maximum number of points that are chosen ahead of the calls of `ask`."""

SAME = 1e-3
"""Points closer than this fraction of the box in every coordinate count as the same."""

SPARE = 8
"""Points of a space with discrete inputs drawn for each one that may take a failed one's place."""

PROPOSING, VARIANCES = ("thompson", "random"), ("nipv", "max_variance")
"""Acquisition functions that choose batches of any size, and those that reduce the variance."""

CAREFUL, FAST = "qlogei", "thompson"
"""What is maximised for several trials where a function has no joint form, and what chooses large
batches."""

TOGETHER, FEW = 16, 8
"""Number of trials that are searched for jointly, and that number with several outcomes."""

IN_TURN = 64
"""Number of trials, running ones included, up to which each 16 are searched for with those before
pending."""

GREEDY, CANDIDATES = 128, 4096
"""Number of trials that are chosen for the variance, one by one among this number of points."""


@runtime_checkable
class ProposingAcquisition(Protocol):
    """An acquisition function that chooses its points itself, without a search.

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
"""Builds an acquisition function of the surrogate and of those of `acquisitions.rule.DATA` that it
has parameters for."""


@dataclass(frozen=True)
class Maximised(Rule):
    """Maximises an acquisition function.

    Attributes:
        make: Builds the acquisition function, such as a `partial` of `build` and a name.
        baseline: Number of points in ``X_baseline``.

    Example:
        >>> rule = Maximised(partial(build, "qlogei"))
    """

    make: AcquisitionBuilder
    baseline: int = BASELINE

    def propose(self, view: View, q: int) -> Proposal:
        """The maximisers, jointly; in a pool, and inside constraints, one after another."""
        with warnings.catch_warnings():
            # some starting points end early: harmless, since the best of all is taken
            warnings.filterwarnings("ignore", "Optimization failed", RuntimeWarning)
            warnings.simplefilter("ignore", NumericalWarning)  # jitter among repeated points
            acqf = self.built(view)
            if isinstance(acqf, ProposingAcquisition):
                return self._proposed_by(acqf, view, q)
            if view.places is not None:
                return Proposal(select_from_pool(acqf, view.places, q)[0])
            return Proposal(self._found(acqf, view, q))

    def _proposed_by(self, acqf: ProposingAcquisition, view: View, q: int) -> Proposal:
        if view.places is not None:
            return Proposal(acqf.select(view.places, q))
        ahead = min(int(acqf.ahead * len(view.data.X)), AHEAD_AT_MOST)
        X = acqf.propose(max(q, ahead))
        if not view.domain.is_box and not bool(view.domain.contains(X).all()):
            raise InputError(
                "feasible points from an acquisition function that proposes them itself",
                "others",
                "Give its builder a parameter `domain`, and draw the points from that.",
            )
        X = _replace_failed(X, view)
        return Proposal(X[:q], ahead=X[q:])

    def _found(self, acqf: AcquisitionFunction, view: View, q: int) -> Tensor:
        effort, domain = view.effort, view.domain
        if not domain.is_box:
            seen, best = [view.failed], view.data.best()
            if not repeats_tell(cast(Model, view.model), domain):
                seen += [view.data.candidates(), view.pending]
            near, starts = best[domain.contains(best)], (effort.num_restarts, effort.raw_samples)
            surface = partial(of_acquisition, acqf, domain.bounds.to(best), view.pending)
            found = maximise_in_turn(surface, domain, q, near, torch.cat(seen), *starts)
            return found.to(best)
        X, _ = optimize_acqf(
            acqf,
            domain.bounds.to(view.pending),
            q=q,
            num_restarts=effort.num_restarts,
            raw_samples=effort.raw_samples,
            options=dict(effort.options or {}),
        )
        return _replace_failed(X, view)

    @property
    def samples(self) -> bool:
        """Whether the function takes an ensemble of kernels, as those of samples do."""
        return "ensemble" in self._taken.data

    @property
    def _taken(self) -> Registered:
        """What the function takes beside what is bound; of `build` and a name as registered."""
        make = self.make
        if not (isinstance(make, partial) and make.func is build):
            return described(make)
        entry = REGISTRY[make.args[0]]
        return replace(entry, data=entry.data - make.keywords.keys())

    def built(self, view: View) -> AcquisitionFunction | ProposingAcquisition:
        """What the builder makes, given the data that it has parameters for."""
        taken, model, observed = self._taken, cast(Model, view.model), view.data.candidates()
        names, is_named = taken.data, taken.make is not self.make
        if is_named and "ensemble" not in names:
            model = standardised(model)
        data: dict[str, Any] = {
            "X_pending": view.pending if len(view.pending) else None,
            "bounds": view.domain.bounds.to(view.pending),
            "near": view.data.best(),
            "ensemble": view.ensemble,
            "region": view.region,
            "trials": view.data.typical_size,
            "domain": None if view.domain.is_box else view.domain,
            "observed": observed,
        }
        if names & {"X_baseline", "best_f"}:
            if view.places is None and view.domain.is_constrained:
                inside = view.domain.holds(observed.double())
                observed = observed[inside] if bool(inside.any()) else observed
            data["X_baseline"], data["best_f"] = rank_by_mean(model, observed, self.baseline)
        if "mc_points" in names:
            everywhere = view.targets is None
            data["mc_points"] = view.domain.sequence(0, 0, TARGETS) if everywhere else view.targets
        used = {k: v for k, v in data.items() if k in names and v is not None}
        acqf = self.make(model, **used)
        if not isinstance(acqf, ProposingAcquisition | AcquisitionFunction):
            raise InputError(
                "an acquisition function of BoTorch",
                type(acqf).__name__,
                "Return one from the callable: (model, *, X_baseline, best_f, X_pending, ...).",
            )
        if isinstance(acqf, AcquisitionFunction) and "X_pending" not in used and len(view.pending):
            acqf.set_X_pending(view.pending)
        return acqf


def _replace_failed(X: Tensor, view: View) -> Tensor:
    """The points, with random ones in place of those at which a trial failed."""
    if not len(view.failed):
        return X
    q, points = len(X), torch.cat([X, view.domain.uniform(SPARE * len(X)).to(X)])
    lost = view.domain.near(points, view.failed, SAME)
    some = points[q:][lost[q:].argsort(stable=True)[:q]]  # those that are not lost first
    return torch.where(lost[:q].unsqueeze(-1), some, X)


@torch.no_grad()
def rank_by_mean(model: Model, points: Tensor, size: int) -> tuple[Tensor, float]:
    """The ``size`` points of highest posterior mean, best first, and the highest mean."""
    parts = points.split(size)
    posteriors = [cast(GPyTorchPosterior, model.posterior(part)) for part in parts]
    means = torch.cat([posterior.mean.squeeze(-1) for posterior in posteriors])
    best = means.argsort(descending=True, stable=True)[:size]
    return points[best], float(means[best[0]])


SEARCH, SAMPLES = Maximised(partial(build, CAREFUL)), Maximised(partial(build, FAST))
"""The rules of these two."""


@dataclass(frozen=True)
class InParts(Rule):
    """Maximises an acquisition function; large batches are chosen in parts, or by samples.

    Up to 16 trials are found by one joint search. Up to 64, running ones included, are found 16 at
    a time: in each search, those found before are pending. Beyond 64, every trial is the maximiser
    of a sample of the posterior. If the variance is to be reduced, the first 128 trials are
    selected one by one from a Sobol sequence, and the others are further points of the sequence.
    Memory then grows in proportion to q.

    Attributes:
        search: Maximises it.
        sampled: Chooses by samples of the posterior; None where the variance is to be reduced.
        several: Searches for several trials, running ones included, if the first one cannot.
        together: Number of trials that are searched for jointly.
        in_turn: Number of trials up to which parts are searched for with those before pending.
    """

    search: Maximised
    sampled: Rule | None = None
    several: Maximised | None = None
    together: int = TOGETHER
    in_turn: int = IN_TURN

    def propose(self, view: View, q: int) -> Proposal:
        """The trials, and how they were chosen if not by one search."""
        search, name, why = self.search, "", ""
        joint, pool = q + len(view.pending), view.places is not None
        if self.several is not None and joint > 1:
            search, name = self.several, CAREFUL
            why = "Its logarithm, of several trials asked for or running."
        few = joint <= self.in_turn
        if (few and (pool or q <= self.together)) or (pool and self.sampled is None):
            return replace(search.propose(view, q), name=name, why=why)
        if self.sampled is None:
            first = f"{min(q, GREEDY)} trials are chosen one by one"
            rest = ", and the others are spread over the space" if q > GREEDY else ""
            return Proposal(self._greedy(view, q), why=f"{first}{rest}.")
        if not few:
            why = f"More than {self.in_turn} trials are asked for or running."
            return replace(self.sampled.propose(view, q), name=FAST, why=why, ahead=None)
        chosen = view.pending[:0]
        for done in range(0, q, self.together):
            now = replace(view, pending=torch.cat([view.pending, chosen]))
            chosen = torch.cat([chosen, search.propose(now, min(self.together, q - done)).points])
        why = f"Each {self.together} trials are chosen with those before pending."
        return Proposal(chosen, name, why)

    @property
    def samples(self) -> bool:
        """Whether trials are usually chosen by samples of the posterior."""
        return self.search.samples

    def _greedy(self, view: View, q: int) -> Tensor:
        points = view.domain.sequence(len(view.data.X), 0, max(CANDIDATES, 2 * q))
        points = points.to(view.pending)
        acqf = cast(AcquisitionFunction, self.search.built(view))
        most = len(points[:CANDIDATES].unique(dim=0))  # of few settings: then some are repeated
        first = select_from_pool(acqf, points[:CANDIDATES], min(q, GREEDY, most))[0]
        others = torch.ones(len(points), dtype=torch.bool)
        others[first] = False
        return torch.cat([points[first], points[others][: q - len(first)]])


def rule_of(
    choice: Mapping[str, Any], outcomes: OutcomeSet, feasible: FeasibleSet, family: str | None
) -> Rule:
    """The rule of a name and options.

    Args:
        choice: Name and options of a rule or an acquisition function.
        outcomes: The outcomes of the campaign.
        feasible: Where trials may be.
        family: Name of the surrogate; None for a callable.

    Raises:
        InputError: for names and options that there are not.
    """
    options, joint = dict(choice), outcomes.joint
    name, ours = options.pop("name"), "qlognehvi" if len(outcomes.goals) > 1 else "qlognei"
    counts = (None, len(outcomes.learned))
    known = {key: one for key, one in REGISTRY.items() if one.outcomes in counts}
    if joint:
        known = {ours: REGISTRY[ours]} | {k: one for k, one in known.items() if not one.ours}
    what = "an acquisition function" + (" of several outcomes" if joint else "")
    if name not in known:
        expected = f"the name of {what}, one of {', '.join(known)}"
        raise InputError(expected, repr(name), "Choose one of these.")
    entry = known[name]
    unknown = [] if entry.options is None else sorted(options.keys() - entry.options)
    if unknown:
        allowed = ", ".join(sorted(entry.options or ()))
        some = f"options among {allowed}" if allowed else "no options"
        expected = f"{some} of the acquisition function {name!r}"
        raise InputError(expected, ", ".join(unknown), "Correct the spelling, or leave them out.")
    missing = set(entry.required) - entry.data - options.keys()
    if missing:
        expected = f"options {', '.join(sorted(missing))} of the acquisition function {name!r}"
        raise InputError(expected, "none", "Give them beside its name.")
    if entry.is_rule:
        rule = cast(Rule, entry.make(**options))
        _check_serves(rule, name, feasible, family)
        return rule
    found = Maximised(partial(build, name, **options))
    if joint and entry.ours:
        about: dict[str, Any] = {
            "objectives": len(outcomes.goals),
            "constraints": outcomes.weights(),
            "outcomes": len(outcomes.columns),
        }
        point = outcomes.reference_point
        found = Maximised(OutcomeAcquisition(name, options=options, reference=point, **about))
        return InParts(found, Maximised(partial(SampledOutcomes, **about)), None, FEW, FEW)
    if joint or name in PROPOSING:
        return found
    return InParts(found, None if name in VARIANCES else SAMPLES, SEARCH if name == "ei" else None)


def _check_serves(rule: Rule, name: str, feasible: FeasibleSet, family: str | None) -> None:
    """Refuse a space or a surrogate that a rule cannot use."""
    if rule.unconstrained and not feasible.is_box:
        raise InputError(
            f"continuous inputs without constraints for the acquisition function {name!r}",
            "others",
            "Leave it out, or use another acquisition function such as 'thompson'.",
        )
    pool = not isinstance(feasible.space, Box)
    if rule.family is not None and (pool or family != rule.family):
        raise InputError(
            f"a box and the surrogate {rule.family!r} for the acquisition function {name!r}",
            "a pool" if pool else repr(family or "a callable"),
            f"Use surrogate={rule.family!r}, or another acquisition function such as 'thompson'.",
        )


register("logei", LocalSearch, ours=True)
register("trust_region", TrustRegionSearch, ours=True)
