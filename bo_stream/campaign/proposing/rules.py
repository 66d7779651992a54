"""What chooses trials: by the name of an acquisition function, in batches of any size.

A joint expected improvement takes longer to maximise than a sample of the posterior. It pays while
a decision takes less time than the evaluations between two decisions. A joint search over q points
has q d variables, and its joint posteriors need memory that grows with the square of q: batches
that are too large for it are chosen in parts, or by samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.history import Decision
from bo_stream.campaign.outcomes.outcomes import OutcomeSet
from bo_stream.campaign.proposing.proposals import (
    AcquisitionBuilder,
    AcquisitionSearch,
    ProposalContext,
    ProposalRule,
)
from bo_stream.campaign.space import Pool
from bo_stream.campaign.space.feasible import FeasibleSet
from bo_stream.errors import InputError, check_not_shadowed

__all__ = [
    "AUTO",
    "SEARCHES",
    "InParts",
    "MeasuredChoice",
    "checked_name",
    "rule_by_name",
    "shown",
]

AUTO = "auto"
"""Name of the choice between ``qlogei`` and ``thompson`` by measured seconds."""

SEARCHES = {
    "logei": ("LocalSearch", "warped"),
    "trust_region": ("TrustRegionSearch", "trust_region"),
}
"""Searches that belong to one family: the class in `acquisitions`, and the family."""

PROPOSING, VARIANCES = ("thompson", "random"), ("nipv", "max_variance")
"""Acquisition functions that choose batches of any size, and those that reduce the variance."""

CAREFUL, FAST = "qlogei", "thompson"
"""What is maximised while there is time for it, and what is used otherwise."""

TOGETHER, FEW = 16, 8
"""Number of trials that are searched for jointly, and that number with several outcomes."""

IN_TURN = 64
"""Number of trials, running ones included, up to which each 16 are searched for with those before
pending."""

GREEDY, CANDIDATES = 128, 4096
"""Number of trials that are chosen for the variance, one by one among this number of points."""


def rule_by_name(
    choice: Mapping[str, Any],
    search: Callable[[AcquisitionBuilder], AcquisitionSearch],
    feasible: FeasibleSet,
    outcomes: OutcomeSet,
    surrogate: Mapping[str, Any] | None,
) -> ProposalRule:
    """What chooses trials.

    Args:
        choice: Name and options of an acquisition function.
        search: Makes the search that maximises one.
        feasible: Where trials may be proposed.
        outcomes: The outcomes.
        surrogate: Name and options of the family; None for a callable.

    Raises:
        InputError: for names and options that no acquisition function has.
    """
    check_not_shadowed("acquisitions")
    import acquisitions  # not at the top: it imports bo_stream
    from acquisitions.build import NAMES, OF_SEVERAL, REGISTERED, build

    options, space = dict(choice), feasible.space
    known = [AUTO, *SEARCHES, *NAMES, *REGISTERED]
    if outcomes.joint:
        known = ["qlognei"] if len(outcomes.goals) == 1 else [*OF_SEVERAL]
    what = "an acquisition function" + (" of several outcomes" if outcomes.joint else "")
    name = checked_name(options.pop("name"), known, what)
    if outcomes.joint:
        from acquisitions.outcomes import OutcomeAcquisition, SampledOutcomes

        about: dict[str, Any] = {
            "objectives": len(outcomes.goals),
            "constraints": outcomes.weights(),
            "outcomes": len(outcomes.columns),
        }
        reference = outcomes.reference_point
        joint = OutcomeAcquisition(name, options=options, reference=reference, **about)
        many = search(partial(SampledOutcomes, **about))
        return InParts(search(joint), name, many, together=FEW, in_turn=FEW)
    if name == AUTO:
        return MeasuredChoice(search(partial(build, CAREFUL)), search(partial(build, FAST)))
    if name not in SEARCHES:
        found = search(partial(build, name, **options))
        sampled = None if name in VARIANCES else search(partial(build, FAST))
        several = search(partial(build, CAREFUL)) if name == "ei" else None
        return found if name in PROPOSING else InParts(found, name, sampled, several)
    rule, family = SEARCHES[name]
    if name == "trust_region" and not feasible.is_box:
        raise InputError(
            "continuous inputs without constraints for the acquisition function 'trust_region'",
            "others",
            "Use surrogate='warped' or 'node_wiski', or leave both out.",
        )
    if isinstance(space, Pool) or (surrogate or {}).get("name") != family:
        raise InputError(
            f"a box and the surrogate {family!r} for the acquisition function {name!r}",
            "a pool" if isinstance(space, Pool) else f"{shown(surrogate)}",
            f"Use surrogate={family!r}, or another acquisition function such as 'thompson'.",
        )
    if name == "logei":
        options["domain"] = None if feasible.is_box else feasible.domain
    return cast(ProposalRule, getattr(acquisitions, rule)(space.tensor_bounds, **options))


@dataclass
class MeasuredChoice:
    """Maximises a joint expected improvement, or samples the posterior where that is too slow.

    The choice follows from the seconds in a campaign's events, so that a resumed campaign chooses
    as an undisturbed one.

    Attributes:
        careful: Maximises ``qlogei``.
        fast: Chooses by ``thompson``.
        decision: The latest choice, and why.
    """

    careful: AcquisitionSearch
    fast: AcquisitionSearch
    decision: Decision | None = None

    def __call__(self, model: StreamingGP, q: int, context: ProposalContext) -> Tensor:
        """Points of one of the two rules."""
        self.decision = self.decide(q, context)
        rule = self.careful if self.maximised else self.fast
        return rule(model, q, context)

    @property
    def maximised(self) -> bool:
        """Whether the latest choice was the search whose seconds count."""
        return self.decision is not None and self.decision.acquisition == CAREFUL

    @property
    def samples(self) -> bool:
        """Whether it may take samples of the posterior."""
        return self.fast.samples

    @staticmethod
    def decide(q: int, context: ProposalContext) -> Decision:
        """The choice for a batch, by the seconds measured so far."""
        waited, needed = context.evaluation_seconds, context.decision_seconds
        if q > TOGETHER:
            return Decision(FAST, f"Batches have more than {TOGETHER} trials.")
        if waited is None or needed is None:
            return Decision(CAREFUL, "The seconds of an evaluation are not measured yet.")
        at_once = 1.0 + len(context.pending) / q
        if needed > waited / at_once:
            return Decision(FAST, f"A decision by {CAREFUL} takes longer than an evaluation.")
        return Decision(CAREFUL, "A decision takes less time than an evaluation.")


@dataclass
class InParts:
    """Maximises an acquisition function; large batches are chosen in parts, or by samples.

    Up to 16 trials are searched for jointly, and up to 64 are in parts of 16, with those before
    pending. More, running ones included, are maximisers of samples of the posterior. Where the
    variance is to be reduced, they are instead chosen one by one among points of a Sobol sequence,
    at most 128, and the others are further points of it. Memory then grows in proportion to q.

    Attributes:
        search: Maximises it.
        name: Its name.
        sampled: Chooses by samples of the posterior; None where the variance is to be reduced.
        several: Searches for several trials, running ones included, if the first one cannot.
        together: Number of trials that are searched for jointly.
        in_turn: Number of trials up to which parts are searched for with those before pending.
        decision: How the latest trials were chosen, if not by one search.
    """

    search: AcquisitionSearch
    name: str
    sampled: AcquisitionSearch | None = None
    several: AcquisitionSearch | None = None
    together: int = TOGETHER
    in_turn: int = IN_TURN
    decision: Decision | None = None

    def __call__(self, model: StreamingGP, q: int, context: ProposalContext) -> Tensor:
        """The points, or indices into the available rows of the pool."""
        self.decision, search, name = None, self.search, self.name
        joint, pool = q + len(context.pending), isinstance(search.feasible.space, Pool)
        if self.several is not None and joint > 1:
            search, name = self.several, CAREFUL
            self.decision = Decision(name, "Its logarithm, of several trials asked for or running.")
        few = joint <= self.in_turn
        if (few and (pool or q <= self.together)) or (pool and self.sampled is None):
            return search(model, q, context)
        if self.sampled is None:
            first = f"{min(q, GREEDY)} trials are chosen one by one"
            rest = ", and the others are spread over the space" if q > GREEDY else ""
            self.decision = Decision(name, f"{first}{rest}.")
            return self._greedy(model, q, context)
        if not few:
            why = f"More than {self.in_turn} trials are asked for or running."
            self.decision = Decision(FAST, why)
            return self.sampled(model, q, context)[:q]
        why = f"Each {self.together} trials are chosen with those before pending."
        self.decision, chosen = Decision(name, why), context.pending[:0]
        for done in range(0, q, self.together):
            now = replace(context, pending=torch.cat([context.pending, chosen]))
            chosen = torch.cat([chosen, search(model, min(self.together, q - done), now)])
        return chosen

    @property
    def samples(self) -> bool:
        """Whether trials are usually chosen by samples of the posterior."""
        return self.search.samples

    def _greedy(self, model: StreamingGP, q: int, context: ProposalContext) -> Tensor:
        from acquisitions import select_from_pool  # not at the top: it imports bo_stream

        number = max(CANDIDATES, 2 * q)
        points = self.search.feasible.domain.sequence(context.num_observed, 0, number)
        points = points.to(context.observed)
        acqf = cast(AcquisitionFunction, self.search.built(model, context))
        most = len(points[:CANDIDATES].unique(dim=0))  # of few settings: then some are repeated
        first = select_from_pool(acqf, points[:CANDIDATES], min(q, GREEDY, most))[0]
        others = torch.ones(len(points), dtype=torch.bool)
        others[first] = False
        return torch.cat([points[first], points[others][: q - len(first)]])


def checked_name(name: Any, names: Iterable[str], what: str) -> str:
    """A name that is among the known ones.

    Raises:
        InputError: for another one.
    """
    if name not in names:
        raise InputError(
            f"the name of {what}, one of {', '.join(names)}", repr(name), "Choose one of these."
        )
    return cast(str, name)


def shown(setting: Any) -> str:
    """A setting for a message; None stands for a callable."""
    return "a callable" if setting is None else str(setting)
