"""Settings of a campaign as plain data, and their defaults."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from bo_stream.base.composite import CompositeModel
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.history import Decision
from bo_stream.campaign.names import first_clash
from bo_stream.campaign.outcomes.count_outcomes import CountOutcome
from bo_stream.campaign.outcomes.goals import GOALS, Failures, Goal, Goals
from bo_stream.campaign.outcomes.named_outcomes import (
    COMPLETED,
    NamedOutcomes,
    noise_column,
    on_inputs,
    read_goal,
    spelled_constraints,
)
from bo_stream.campaign.proposing.choices import (
    EXACT_OUTCOMES,
    NamedChoice,
    Noise,
    as_named,
    checked_name,
    missing_callable,
    shown,
    with_noise,
)
from bo_stream.campaign.proposing.defaults import (
    SCHEDULE,
    SCHEDULES,
    SMALL,
    default_acquisition,
    default_counted,
    default_initial,
    default_optimiser,
    default_several,
    default_surrogate,
    later_settings,
    starts_small,
)
from bo_stream.campaign.proposing.fit_policy import FitPolicy
from bo_stream.campaign.proposing.proposals import (
    AcquisitionBuilder,
    AcquisitionSearch,
    Optimiser,
    ProposalRule,
)
from bo_stream.campaign.proposing.rules import rule_by_name
from bo_stream.campaign.proposing.stage import Stage
from bo_stream.campaign.space import Space, space_from_dict
from bo_stream.campaign.space.feasible import FeasibleSet
from bo_stream.errors import InputError, StateError
from bo_stream.surrogates.registry import FAMILIES, in_loops, surrogate, with_categories

__all__ = ["GIVEN", "Settings"]

SETTINGS_VERSION = 1

GIVEN = "It was asked for."

CHANGEABLE = ("surrogate", "acquisition", "fit", "failures")

LONGEST = 100
"""Number of characters of a setting in a message."""

COMPLETION_NOISE = 0.02
"""Variance of that: less makes a process ring beside its jump, and more hides a single failure."""


@dataclass(frozen=True)
class Settings:
    """All settings of a campaign.

    Attributes:
        space: Where the campaign may measure.
        goal: ``maximise``, ``minimise`` or ``learn``; of several objectives: by column.
        surrogate: Name and options of a family; None for a callable, which no store can hold.
        acquisition: Name and options of an acquisition function; None for a callable.
        seed: Seed of designs and of every search for the next points.
        initial: Number of outcomes from which a surrogate is built.
        fit: When hyperparameters are fitted.
        optimiser: How acquisition functions are maximised.
        targets: Points over which ``learn`` integrates the variance, in the user's units; None: the
            whole space.
        restandardise: Whether outcomes are standardised again, by all of them, before each fit.
        budget: Number of trials in all; None: no limit.
        noise: ``learned``, ``none``, or the variance of the noise of every outcome.
        why: Why this surrogate and this acquisition function, as two sentences.
        start: Number of outcomes from which surrogate and acquisition function are used.
        later: Those used from a larger ``start`` on: settings that differ from these.
        outcome: Column, likelihood and options of outcomes that are counts; None for measurements.
        constraints: Constraints as texts; None for a callable, which no store can hold.
        column: Column of the outcome, if there is one objective.
        failures: ``ignored``, or ``infeasible`` if it is learned where trials fail.
        reference: Several objectives that a hypervolume is measured from; None: inferred.
    """

    space: Space
    goal: Goals
    surrogate: Mapping[str, Any] | None
    acquisition: Mapping[str, Any] | None
    seed: int
    initial: int
    fit: FitPolicy = SCHEDULE
    optimiser: Optimiser = field(default_factory=Optimiser)
    targets: list[list[float]] | None = None
    restandardise: bool = True
    budget: int | None = None
    noise: Noise = "learned"
    why: tuple[str, str] = (GIVEN, GIVEN)
    start: int = 0
    later: Mapping[str, Any] | None = None
    outcome: Mapping[str, Any] | None = None
    constraints: Sequence[str | None] = ()
    column: str = "y"
    failures: Failures = "ignored"
    reference: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.goal, Mapping) and self.goal not in GOALS:
            raise InputError(f"a goal, one of {', '.join(GOALS)}", repr(self.goal), "Choose one.")
        if self.initial < 2:
            raise InputError(
                "initial >= 2", f"{self.initial}", "Two outcomes are needed to standardise them."
            )

    @classmethod
    def from_arguments(
        cls,
        space: Space,
        goal: Goals,
        *,
        surrogate: NamedChoice | Callable[..., StreamingGP] | None = None,
        acquisition: NamedChoice | AcquisitionBuilder | None = None,
        budget: int | None = None,
        seed: int | None = None,
        initial: int | None = None,
        fit: FitPolicy | None = None,
        noise: Noise | None = None,
        optimiser: Optimiser | None = None,
        targets: list[list[float]] | None = None,
        outcome: Mapping[str, Any] | None = None,
        constraints: Sequence[Any] | None = None,
        failures: Failures | None = None,
        reference: Mapping[str, float] | None = None,
    ) -> Settings:
        """Settings from a user's arguments, with defaults for those left out.

        Raises:
            InputError: for invalid settings.
        """
        budget, seed, initial = map(_plain, (budget, seed, initial))
        if budget is not None and (type(budget) is not int or budget < 1):
            raise InputError(
                "budget, an integer of 1 or more", repr(budget), "Leave it out for no limit."
            )
        kinds: dict[str, tuple[Any, type]] = {
            "seed": (seed, int),
            "initial": (initial, int),
            "fit": (fit, FitPolicy),
            "optimiser": (optimiser, Optimiser),
        }
        for option, (value, kind) in kinds.items():
            if value is not None and not isinstance(value, kind):
                what = f"{option}, of the type `{kind.__name__}`"
                raise InputError(what, repr(value), "Leave it out for the default.")
        goal, column = read_goal(goal)
        constraints = spelled_constraints(constraints or (), space.names, goal, column)
        failures = failures or "ignored"
        named = NamedOutcomes.of(goal, column, constraints, space.names, failures, reference)
        named.warn_of_misspellings(space.names)
        counts = None if outcome is None else CountOutcome.read_setting(outcome)
        if counts is not None:
            counts.check_settings(space, str(goal), surrogate, noise, EXACT_OUTCOMES)
            named.refuse_counts()
        small = surrogate is acquisition is outcome is None and starts_small(space, goal, budget)
        size = SMALL if small else budget
        limits = bool(constraints), noise
        family, why_family = default_surrogate(space, goal, size, *limits)
        if named.joint:
            family, why_family = default_several(space, size, noise)
        elif counts is not None:
            family, why_family = default_counted(space)
        chosen = as_named(surrogate, family)
        name = None if chosen is None else chosen["name"]
        search, why_search = default_acquisition(name, goal, space, named)
        settings = cls(
            space,
            goal,
            with_noise(chosen, noise),
            as_named(acquisition, search),
            secrets.randbits(31) if seed is None else seed,
            default_initial(space, budget) if initial is None else initial,
            fit or SCHEDULES.get(name or "", SCHEDULE),
            default_optimiser(named, optimiser),
            targets,
            restandardise=counts is None,
            budget=budget,
            noise="learned" if noise is None else noise,
            why=(GIVEN if surrogate else why_family, GIVEN if acquisition else why_search),
            later=later_settings(space, goal, fit, named, *limits) if small else None,
            outcome=None if counts is None else counts.to_dict(),
            constraints=tuple(None if callable(c) else c for c in constraints),
            column=column,
            failures=failures,
            reference=named.reference,
        )
        settings.stages(settings.feasible(constraints), surrogate, acquisition)  # or refuse
        return settings

    @property
    def clash(self) -> str | None:
        """What is wrong with the first name that means two columns of frames; None for none."""
        named, counts = self.named, self.counts
        if counts is not None:
            return first_clash(self.space.names, counts.columns, {}, named.results)
        noise = {column: noise_column(column) for column in named.columns}
        return first_clash(self.space.names, named.columns, noise, named.results)

    def check_names(self) -> None:
        """Refuse names of inputs and outcomes that mean two columns of frames.

        Raises:
            InputError: naming the first.
        """
        if (wrong := self.clash) is not None:
            raise InputError("names that mean one column each", wrong, "Rename it.")

    def feasible(self, given: Sequence[Any] = ()) -> FeasibleSet:
        """Where trials may be proposed.

        Args:
            given: The callables among the constraints.

        Raises:
            InputError: for constraints that cannot be, or missing callables.
        """
        return FeasibleSet.of(self.space, self.input_constraints, given)

    @property
    def input_constraints(self) -> tuple[str | None, ...]:
        """Those of the constraints that name inputs alone, and callables."""
        return tuple(c for c in self.constraints if c is None or on_inputs(c, self.space.names))

    def stages(
        self, feasible: FeasibleSet, surrogate: Any = None, acquisition: Any = None
    ) -> list[Stage]:
        """The surrogate and what chooses trials, and those that follow for more outcomes.

        Args:
            feasible: Where trials may be proposed.
            surrogate: A callable or a name in place of the stored one.
            acquisition: Likewise.

        Raises:
            InputError: for names and options that there are not.
        """
        make, rule = self.make_surrogate(surrogate), self.make_rule(feasible, acquisition)
        named = not any(map(callable, (surrogate, acquisition, *feasible.callables)))
        stages = [Stage(make, self.fit, rule, self.start, named)]
        return stages if self.after is None else [*stages, *self.after.stages(feasible)]

    @property
    def after(self) -> Settings | None:
        """The settings for more outcomes, if they differ."""
        if self.later is None:
            return None
        changes = {**self.later, "fit": FitPolicy(**self.later["fit"])}
        return replace(self, **{**changes, "why": tuple(changes["why"]), "later": None})

    def at(self, start: int) -> Settings:
        """The settings of the stage with this start."""
        return self if self.after is None or self.start == start else self.after.at(start)

    @property
    def usual_decision(self) -> Decision:
        """The acquisition function, and why it was chosen."""
        named = self.acquisition
        return Decision("a callable" if named is None else named["name"], self.why[1])

    @property
    def sign(self) -> float:
        """Factor of the outcome that makes larger ones better, if there is one objective."""
        return -1.0 if self.goal == "minimise" else 1.0

    @property
    def named(self) -> NamedOutcomes:
        """The outcomes by name."""
        about = self.goal, self.column, self.constraints, self.space.names, self.failures
        return NamedOutcomes.of(*about, self.reference)

    def of_outcome(self, column: str) -> Settings:
        """Settings of a campaign of one of several outcomes alone.

        Whether a trial is completed is 0 or 1, which a smooth function follows with some noise.
        """
        goal = "minimise" if self.named.sign(column) < 0.0 else "maximise"
        search = {"name": "qlognei"}
        later = None if self.later is None else {**self.later, "acquisition": search}
        own: dict[str, Any] = {"failures": "ignored", "reference": None}
        alone = replace(self, goal=cast(Goal, goal), column=column, **own)
        if column == COMPLETED:
            alone = replace(alone, noise=COMPLETION_NOISE)
        return replace(alone, constraints=self.input_constraints, acquisition=search, later=later)

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain data."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        named = {name: plain[name] and dict(plain[name]) for name in ("surrogate", "acquisition")}
        nested = {"fit": asdict(self.fit), "optimiser": asdict(self.optimiser)}
        lists = {"space": self.space.to_dict(), "constraints": list(self.constraints)}
        return {"version": SETTINGS_VERSION, **plain, **named, **nested, **lists}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Settings:
        """Settings from what `to_dict` returned, in this release or an earlier one.

        Raises:
            StateError: for settings of a newer release.
        """
        rest = {k: v for k, v in plain.items() if k != "version"}
        try:
            if plain["version"] != SETTINGS_VERSION:
                raise ValueError(f"version {plain['version']}")
            rest["space"] = space_from_dict(rest["space"])
            rest["fit"] = FitPolicy(**rest["fit"])
            rest["why"] = tuple(rest.get("why", (GIVEN, GIVEN)))
            rest["optimiser"] = Optimiser(**rest["optimiser"])
            rest["constraints"] = tuple(rest.get("constraints", ()))
            return cls(**rest)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"settings of version {SETTINGS_VERSION}",
                f"others ({error})",
                "Open the campaign with the release of bo_stream that created it, or a newer one.",
            ) from error

    def continued_from(self, stored: Settings, name: str, given: Collection[str]) -> Settings:
        """The stored settings of a campaign, with these settings' budget if they have one.

        Args:
            stored: Settings in the store.
            name: Name of the campaign.
            given: Names of the settings that the user gave. A warning names those that differ from
                the stored ones, which stay in use.

        Raises:
            StateError: for another space, goal or outcome.
        """
        mine, theirs = self.to_dict(), stored.to_dict()
        for part in ("space", "goal", "column", "outcome", "constraints"):
            if mine[part] != theirs[part]:
                raise StateError(
                    f"the {part} that campaign {name!r} was created with",
                    f"another {part} ({_difference(theirs[part], mine[part], part)})",
                    "Choose another name, or use Campaign.resume; bounds are widened by "
                    "Campaign.widen or bo-stream widen.",
                )
        for part in (part for part in given if mine[part] != theirs[part]):
            change = "Use campaign.change, or choose" if part in CHANGEABLE else "Choose"
            both = f"its store, {shown(theirs[part])}; {shown(mine[part])} is ignored"
            text = f"Campaign {name!r} continues with the {part} in {both}. "
            warnings.warn(f"{text}{change} another name for a new campaign.", stacklevel=5)
        return replace(stored, budget=self.budget or stored.budget)

    def make_surrogate(self, given: Any = None) -> Callable[..., StreamingGP]:
        """What builds the surrogate: the callable or name given, or the stored name.

        Raises:
            InputError: for names and options that no surrogate has.
        """
        if callable(given):
            if isinstance(given, type) and issubclass(given, CompositeModel):
                remedy = "Tell counts to a bo_stream.Campaign with `outcome`."
                raise InputError("a surrogate of measurements", given.__name__, remedy)
            return given
        choice = as_named(given, None) if given is not None else self.surrogate
        if choice is None:
            raise missing_callable("surrogate")
        options = dict(choice)
        name = checked_name(options.pop("name"), FAMILIES, "a surrogate")
        options = in_loops(name, options)
        if name == "warped" and self.goal == "learn":  # the variance of outcomes is integrated
            options = {"warp": "none", **options}
        make: Callable[..., Any] = partial(surrogate, name, **options)
        if self.counts is not None:
            make = partial(self.counts.surrogate, name, options)
        if self.space.categories:
            make = partial(with_categories, make, name, self.space.dim, self.space.categories)
        bounds, X = self.space.tensor_bounds, torch.empty(0, self.space.dim, dtype=torch.float64)
        make(X, X[:, :1], bounds=bounds, outcome_transform=None)  # refuses invalid options now
        return make

    def make_rule(self, feasible: FeasibleSet, given: Any = None) -> ProposalRule:
        """What chooses trials: by the callable or name given, or by the stored name.

        Raises:
            InputError: for names and options that no acquisition function has.
        """
        targets = None if self.targets is None else self.space.encode(np.array(self.targets))
        search = partial(AcquisitionSearch, feasible, optimiser=self.optimiser, targets=targets)
        if callable(given):
            return search(cast(AcquisitionBuilder, given))
        choice = as_named(given, None) if given is not None else self.acquisition
        if choice is None:
            raise missing_callable("acquisition")
        return rule_by_name(choice, search, feasible, self.named, self.surrogate)

    @property
    def counts(self) -> CountOutcome | None:
        """What the outcomes are, if they are counts."""
        return None if self.outcome is None else CountOutcome.read_setting(self.outcome)

    @property
    def uniform_start(self) -> bool:
        """Whether the initial design is uniform instead of a Sobol sequence.

        On Hartmann's function of six inputs, local searches from uniform points found the global
        optimum in 17 of 20 runs, from Sobol points in 18 of 30.
        """
        return self.surrogate is not None and self.surrogate["name"] == "warped"

    @property
    def exact(self) -> bool:
        """Whether outcomes have no noise, so that a repeated measurement tells nothing."""
        return self.surrogate is not None and self.surrogate.get("noise") == "none"

    @property
    def fixed_variance(self) -> float | None:
        """The variance of the noise of every outcome, if it was given."""
        return None if isinstance(self.noise, str) else self.noise


def _plain(number: Any) -> Any:
    """A number of numpy as one of Python, which a store can keep."""
    return number.item() if isinstance(number, np.generic) else number


def _difference(stored: Any, new: Any, name: str) -> str:
    """Where two settings differ first, and their values there."""
    if isinstance(stored, Mapping) and isinstance(new, Mapping):
        pairs = [(key, stored.get(key), new.get(key)) for key in [*stored, *new]]
    elif isinstance(stored, list) and isinstance(new, list) and len(stored) == len(new):
        pairs = [
            (name, *both)
            for both in zip(stored, new, strict=True)
            if isinstance(both[0], list | Mapping)
        ]
    else:
        pairs = []
    for key, mine, theirs in pairs:
        if mine != theirs:
            return _difference(mine, theirs, str(key))
    return f"{name}: {shown(new)[:LONGEST]} in place of {shown(stored)[:LONGEST]}"
