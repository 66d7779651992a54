"""Defaults of a campaign: which surrogate, acquisition function and schedule, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from bo_stream.campaign.outcomes.goals import Goals
from bo_stream.campaign.proposing.choices import Noise, with_noise
from bo_stream.campaign.proposing.fit_policy import FitPolicy
from bo_stream.campaign.proposing.proposals import Optimiser
from bo_stream.campaign.space import Box, Space

if TYPE_CHECKING:
    from bo_stream.campaign.outcomes.named_outcomes import NamedOutcomes

__all__ = [
    "AUTO",
    "SCHEDULE",
    "SCHEDULES",
    "SMALL",
    "default_acquisition",
    "default_counted",
    "default_initial",
    "default_optimiser",
    "default_several",
    "default_surrogate",
    "later_settings",
    "starts_small",
]

AUTO = "auto"
"""Name of the choice between ``qlogei`` and ``thompson`` by measured seconds."""

SCHEDULE = FitPolicy(
    then_every=0,
    growth=1.3,
    late_growth=2.0,
    on_surprise=True,
    max_evals=25,
    late_max_evals=12,
)
"""Default schedule: fit when the outcomes have grown by 1.3, from 300 outcomes on by 2, and when
predictions are significantly worse than they promise."""

SCHEDULES = {
    "warped": FitPolicy(then_every=0, growth=1.03),
    "trust_region": FitPolicy(then_every=0, on_request=True),
}
"""Schedules of the families that have their own."""

SMALL = 200
"""Trials up to which an exact process with a warped outcome is the default."""

FEW = 500
"""Observations up to which an exact Gaussian process is as fast as any streaming one."""

LARGE, MANY_INPUTS = 1000, 10
"""Trials and inputs from which on a trust region is the default."""

SEVERAL_OPTIONS = {"maxiter": 50, "sample_around_best": True}
"""Options of a search by several surrogates, of which an evaluation costs more."""

FEW_INPUTS = 3
"""Inputs up to which sums over a grid of frequencies or nodes are small."""


class Default(NamedTuple):
    """A default and its reason, a sentence."""

    name: str
    why: str


def default_surrogate(
    space: Space,
    goal: Goals,
    budget: int | None,
    constrained: bool = False,
    noise: Noise | None = None,
) -> Default:
    """The default family, by goal, number of inputs, budget and noise.

    Without a budget, it is the one for many trials; see `starts_small`.
    """
    d, optimises = space.dim, goal != "learn" and isinstance(space, Box)
    exact = noise == "none"
    gridded = d <= FEW_INPUTS and not space.categories
    if optimises and budget is not None and budget <= SMALL:
        return Default("warped", f"An exact process for at most {SMALL} trials.")
    large = budget is not None and budget >= LARGE and d >= MANY_INPUTS
    if optimises and (large or exact) and space.is_continuous and not constrained:
        many = f"{MANY_INPUTS} inputs or more, and {LARGE} trials or more."
        return Default("trust_region", "Exact outcomes of many trials." if exact else many)
    if exact:
        return Default("warped", "Exact outcomes.")
    if optimises and gridded:
        return Default("hsgp", f"At most {FEW_INPUTS} inputs: a step of constant cost.")
    if budget is not None and budget <= FEW:
        return Default("exact", f"An exact process for at most {FEW} trials.")
    if gridded:
        return Default("wiski", f"At most {FEW_INPUTS} inputs: a step of constant cost.")
    return Default("node_wiski", "Nodes at the data: a step of constant cost.")


def default_several(space: Space, budget: int | None, noise: Noise | None = None) -> Default:
    """The default family of each of several outcomes, by number of inputs, budget and noise."""
    if noise == "none":
        return Default("warped", "Exact outcomes.")
    if budget is not None and budget <= SMALL:
        return Default("warped", f"An exact process per outcome for at most {SMALL} trials.")
    if space.dim <= FEW_INPUTS and not space.categories:
        return Default("hsgp", f"At most {FEW_INPUTS} inputs: a step of constant cost.")
    if budget is not None and budget <= FEW:
        return Default("exact", f"An exact process per outcome for at most {FEW} trials.")
    return Default("node_wiski", "Nodes at the data: a step of constant cost.")


def default_counted(space: Space) -> Default:
    """The default family under counts."""
    name = "wiski" if space.dim <= FEW_INPUTS else "hsgp"
    name = "node_wiski" if space.categories else name
    return Default(name, "Counts, whose likelihood is their own: a step of constant cost.")


def starts_small(space: Space, goal: Goals, budget: int | None) -> bool:
    """Whether a campaign without a budget begins as one of few trials would."""
    return budget is None and goal != "learn" and isinstance(space, Box)


def default_acquisition(
    family: str | None, goal: Goals, space: Space, outcomes: NamedOutcomes
) -> Default:
    """The default acquisition function, by goal, outcomes, surrogate and space."""
    if len(outcomes.goals) > 1:
        return Default("qlognehvi", "Several objectives: the hypervolume below their front.")
    if outcomes.joint:
        return Default("qlognei", "Expected improvement among what satisfies the constraints.")
    if goal == "learn":
        return Default("nipv", "The goal is to learn the outcome everywhere.")
    match family:
        case "warped" if isinstance(space, Box):
            return Default("logei", "Evaluations are few: each point is searched for locally.")
        case "trust_region":
            return Default("trust_region", "The surrogate is local to a region.")
        case "hsgp":
            return Default("thompson", "The maximiser of a sample of sine features costs little.")
    if space.categories:
        return Default("qlogei", "Categories: samples are drawn at points, not as functions.")
    return Default(AUTO, "By the measured seconds of evaluations and decisions.")


def default_initial(space: Space, budget: int | None) -> int:
    """Two outcomes for each input and two more, but at most a third of the budget."""
    wanted = 2 * space.dim + 2
    return wanted if budget is None else max(2, min(wanted, budget // 3))


def default_optimiser(outcomes: NamedOutcomes, given: Optimiser | None) -> Optimiser:
    """The effort of searches that suits the outcomes, unless another one was given."""
    usual, several = Optimiser(), Optimiser(options=SEVERAL_OPTIONS)
    if given is not None and given not in (usual, several):
        return given
    return several if outcomes.joint else usual


def later_settings(
    space: Space,
    goal: Goals,
    fit: FitPolicy | None,
    outcomes: NamedOutcomes,
    constrained: bool,
    noise: Noise | None,
) -> dict[str, Any]:
    """Settings for more outcomes than a small campaign has, as plain data."""
    family, why_family = (
        default_several(space, None, noise)
        if outcomes.joint
        else default_surrogate(space, goal, None, constrained, noise)
    )
    search, why_search = default_acquisition(family, goal, space, outcomes)
    return {
        "start": SMALL + 1,
        "surrogate": with_noise({"name": family}, noise),
        "acquisition": {"name": search},
        "fit": asdict(fit or SCHEDULES.get(family, SCHEDULE)),
        "why": (why_family, why_search),
    }
