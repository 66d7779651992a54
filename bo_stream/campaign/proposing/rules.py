"""What chooses trials, by the name of an acquisition function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from bo_stream.campaign.outcomes.named_outcomes import NamedOutcomes
from bo_stream.campaign.proposing.choices import checked_name, shown
from bo_stream.campaign.proposing.defaults import AUTO
from bo_stream.campaign.proposing.large_batches import InParts
from bo_stream.campaign.proposing.measured_choice import MeasuredChoice
from bo_stream.campaign.proposing.proposals import (
    AcquisitionBuilder,
    AcquisitionSearch,
    ProposalRule,
)
from bo_stream.campaign.space import Pool
from bo_stream.campaign.space.feasible import FeasibleSet
from bo_stream.errors import InputError, check_not_shadowed

__all__ = ["SEARCHES", "rule_by_name"]

SEARCHES = {
    "logei": ("LocalSearch", "warped"),
    "trust_region": ("TrustRegionSearch", "trust_region"),
}
"""Searches that belong to one family: the class in `acquisitions`, and the family."""

FEW = 8
"""Number of trials with several outcomes that are searched for jointly."""

PROPOSING, VARIANCES = ("thompson", "random"), ("nipv", "max_variance")
"""Acquisition functions that choose batches of any size, and those that reduce the variance."""


def rule_by_name(
    choice: Mapping[str, Any],
    search: Callable[[AcquisitionBuilder], AcquisitionSearch],
    feasible: FeasibleSet,
    outcomes: NamedOutcomes,
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
        from acquisitions.outcome_samples import SampledOutcomes
        from acquisitions.outcomes import OutcomeAcquisition

        about: dict[str, Any] = {
            "objectives": len(outcomes.goals),
            "constraints": outcomes.weights(),
            "outcomes": len(outcomes.columns),
        }
        reference = outcomes.reference_point
        joint = OutcomeAcquisition(name, options=options, reference=reference, **about)
        builders = joint, partial(SampledOutcomes, **about)
        few, many = (search(cast(AcquisitionBuilder, one)) for one in builders)
        return InParts(few, name, many, together=FEW, in_turn=FEW)
    if name == AUTO:
        careful, fast = partial(build, "qlogei"), partial(build, "thompson")
        return MeasuredChoice(search(careful), search(fast))
    if name not in SEARCHES:
        found = search(partial(build, name, **options))
        sampled = None if name in VARIANCES else search(partial(build, "thompson"))
        several = search(partial(build, "qlogei")) if name == "ei" else None
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
