"""Settings of a campaign: what a user chooses, the defaults, and how they are changed."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, PlainSerializer

from bo_stream.campaign.constraints import FeasibleSet, LinearConstraint, parse_constraint
from bo_stream.campaign.effort import FitPolicy, Optimiser
from bo_stream.campaign.history import Decision
from bo_stream.campaign.names import RESERVED, RESULTS, folded
from bo_stream.campaign.options import (
    Finite,
    Options,
    Positive,
    Text,
    Whole,
    check_keys,
    errors_about,
)
from bo_stream.campaign.outcomes.outcomes import (
    SPELLINGS,
    Failures,
    Goal,
    OutcomeSet,
    check_reference,
    read_goal,
)
from bo_stream.campaign.space import Box, Pool, Space, space_from_dict
from bo_stream.campaign.storage.store import Store
from bo_stream.errors import (
    BoundsError,
    InputError,
    StateError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from acquisitions.maximised import AcquisitionBuilder as AcquisitionBuilder
    from bo_stream.campaign.outcomes.count import Count

__all__ = [
    "Choices",
    "NamedChoice",
    "Noise",
    "Settings",
    "changed",
    "check_continued",
    "read_choice",
    "renamed",
    "stored_settings",
    "widened",
]

NamedChoice = str | Mapping[str, Any]
"""A name, or a mapping of ``name`` and options."""

Noise = Literal["learned", "none"] | float
"""Whether the noise of outcomes is learned or absent, or its variance."""

SETTINGS_VERSION = 1

GIVEN = "It was asked for."

CHANGEABLE = ("surrogate", "acquisition", "fit", "failures")

LONGEST = 100
"""Number of characters of a setting in a message."""

EXACT_OUTCOMES = ("warped", "trust_region")
"""Families with an option ``noise``."""

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

FEW_INPUTS = 3
"""Inputs up to which sums over a grid of frequencies or nodes are small."""

USUAL, SEVERAL = Optimiser(), Optimiser(options={"maxiter": 50, "sample_around_best": True})
"""Effort of a search by one surrogate, and by several, of which an evaluation costs more."""


def renamed(choice: Any) -> Any:
    """``auto`` of earlier releases, which chose by measured seconds, is ``qlogei``."""
    return {"name": "qlogei"} if choice == {"name": "auto"} else choice


def read_choice(choice: Any) -> Any:
    """A choice as name and options; a callable as it is."""
    if isinstance(choice, str):
        return {"name": choice}
    if isinstance(choice, Mapping) and isinstance(choice.get("name"), str):
        from bo_stream.base.options import from_plain, to_plain  # not at the top: torch

        return {option: to_plain(from_plain(option, value)) for option, value in choice.items()}
    if choice is None or callable(choice):
        return choice
    raise InputError(
        "a name, a mapping of name and options, or a callable",
        repr(choice),
        "For example 'wiski', {'name': 'wiski', 'grid_size': 20}, or a function.",
    )


def _stored_outcome(outcome: Any) -> Any:
    if outcome is None:
        return None
    from bo_stream.campaign.outcomes.count import Count  # not at the top: it imports torch

    return Count.read_setting(outcome).to_dict()


Choice = Annotated[dict[str, Any] | Callable[..., Any] | None, BeforeValidator(read_choice)]
SpelledGoal = Annotated[Goal, BeforeValidator(lambda goal: SPELLINGS.get(str(goal), goal))]
Outcome = Annotated[dict[str, Any] | None, BeforeValidator(_stored_outcome)]


class Choices(Options):
    """What a user chooses, as `bo_stream.Campaign` says; None, or left out: the default."""

    goal: SpelledGoal | Annotated[dict[str, SpelledGoal], Field(min_length=1)]
    budget: Annotated[Whole, Field(ge=1)] | None = None
    constraints: Sequence[Text | Callable[..., Any] | None] = ()
    failures: Failures | None = None
    reference: dict[str, Finite] | None = None
    outcome: Outcome = None
    surrogate: Choice = None
    noise: Literal["learned", "none"] | Positive | None = None
    acquisition: Choice = None
    seed: Whole | None = None
    initial: Annotated[Whole, Field(ge=2)] | None = None
    fit: FitPolicy | None = None
    optimiser: Optimiser | None = None
    targets: list[list[Finite]] | None = None

    @property
    def chosen(self) -> list[str]:
        """Names of the options that were chosen, of which the goal is the first."""
        return [
            name for name in type(self).model_fields if getattr(self, name) not in (None, (), [])
        ]


def _space(space: object) -> object:
    return space_from_dict(space) if isinstance(space, Mapping) else space


class Settings(Choices):
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

    space: Annotated[
        InstanceOf[Box] | InstanceOf[Pool],
        BeforeValidator(_space),
        PlainSerializer(lambda space: space.to_dict()),
    ]
    surrogate: dict[str, Any] | None = None
    acquisition: Annotated[dict[str, Any] | None, AfterValidator(renamed)] = None
    seed: Whole
    initial: Annotated[Whole, Field(ge=2)]
    fit: FitPolicy = SCHEDULE
    optimiser: Optimiser = USUAL
    constraints: list[str | None] = []
    restandardise: bool = True
    noise: Literal["learned", "none"] | Positive = "learned"
    why: Annotated[tuple[str, str], BeforeValidator(tuple)] = (GIVEN, GIVEN)
    start: int = 0
    later: dict[str, Any] | None = None
    column: str = "y"
    failures: Failures = "ignored"

    @classmethod
    def of(cls, space: Space, choices: Choices) -> Settings:
        """Settings from what a user chooses, with defaults for the rest.

        Raises:
            InputError: for invalid settings, whose ``key`` is the choice.
        """
        surrogate, acquisition, budget = choices.surrogate, choices.acquisition, choices.budget
        with errors_about("goal"):
            goal, column = read_goal(choices.goal)
        with errors_about("reference"):
            check_reference(choices.reference, goal)
        # without a budget it begins as a campaign of few trials would
        asked = surrogate, acquisition, choices.outcome, budget
        small = all(one is None for one in asked) and goal != "learn"
        later = {} if choices.fit is None else {"fit": asdict(choices.fit)}
        wanted = 2 * space.dim + 2  # but at most a third of the budget
        if budget is not None:
            wanted = max(2, min(wanted, budget // 3))
        settings = cls(
            space=space,
            goal=goal,
            column=column,
            surrogate=None if callable(surrogate) else surrogate,
            acquisition=None if callable(acquisition) else acquisition,
            seed=secrets.randbits(31) if choices.seed is None else choices.seed,
            initial=choices.initial or wanted,
            optimiser=choices.optimiser or USUAL,
            targets=choices.targets,
            restandardise=choices.outcome is None,
            budget=budget,
            noise=choices.noise or "learned",
            why=("" if surrogate is None else GIVEN, "" if acquisition is None else GIVEN),
            later=later if small and isinstance(space, Box) else None,
            outcome=choices.outcome,
            constraints=[None if callable(c) else c for c in choices.constraints],
            failures=choices.failures or "ignored",
            reference=choices.reference,
        )
        with errors_about("outcome"):
            if settings.counts is not None:
                about = str(goal), surrogate, choices.noise, EXACT_OUTCOMES
                settings.counts.check_settings(*about)
        with errors_about("constraints"):
            settings.outcomes.warn_of_misspellings(space.names)
        settings = settings.with_defaults()
        settings = settings.replaced(fit=choices.fit or settings.usual_fit)
        with errors_about("constraints"):
            settings.feasible(choices.constraints)
        return settings

    def replaced(self, **changes: Any) -> Self:
        """The settings of which some are replaced, by plain data or otherwise."""
        kept = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**kept | changes)

    def in_all_stages(self, **changes: Any) -> Self:
        """The settings of which some are replaced, now and for more outcomes."""
        later = None if self.later is None else {**self.later, **changes}
        return self.replaced(**changes, later=later)

    # -- defaults --------------------------------------------------------------------------------

    def with_defaults(self) -> Self:
        """The settings in which all that was not asked for suits the rest.

        These are the surrogate, the acquisition function, the effort of searches, and what follows
        them where there are more outcomes.

        Raises:
            InputError: for noise that the surrogate cannot be told about.
        """
        settings = self
        if self.why[0] != GIVEN:
            name, why = self._default_surrogate(self.budget if self.later is None else SMALL)
            settings = settings.replaced(surrogate={"name": name}, why=(why, self.why[1]))
        with errors_about("noise"):
            settings = settings.replaced(surrogate=_with_noise(settings.surrogate, self.noise))
        if self.why[1] != GIVEN:
            name, why = settings._default_acquisition()
            settings = settings.replaced(acquisition={"name": name}, why=(settings.why[0], why))
        if self.optimiser in (USUAL, SEVERAL):
            settings = settings.replaced(optimiser=SEVERAL if self.outcomes.joint else USUAL)
        if self.later is None:
            return settings
        return settings.replaced(later=settings._for_more(self.later))

    def _default_surrogate(self, budget: int | None) -> tuple[str, str]:
        """The default family, by outcomes, goal, number of inputs, noise, and this budget.

        Without a budget, it is the one for many trials.
        """
        space, joint = self.space, self.outcomes.joint
        d, categories = space.dim, bool(space.categories)
        gridded, exact = d <= FEW_INPUTS and not categories, self.noise == "none"
        if self.outcome is not None:
            name = "wiski" if d <= FEW_INPUTS else "hsgp"
            name = "node_wiski" if categories else name
            return name, "Counts, whose likelihood is their own: a step of constant cost."
        optimises = joint or (self.goal != "learn" and isinstance(space, Box))
        if optimises and budget is not None and budget <= SMALL:
            return "warped", f"An exact process for at most {SMALL} trials."
        large = budget is not None and budget >= LARGE and d >= MANY_INPUTS
        local = space.is_continuous and not self.constraints and not joint
        if optimises and (large or exact) and local:
            many = f"{MANY_INPUTS} inputs or more, and {LARGE} trials or more."
            return "trust_region", "Exact outcomes of many trials." if exact else many
        if exact:
            return "warped", "Exact outcomes."
        if optimises and gridded:
            return "hsgp", f"At most {FEW_INPUTS} inputs: a step of constant cost."
        if budget is not None and budget <= FEW:
            return "exact", f"An exact process for at most {FEW} trials."
        if gridded:
            return "wiski", f"At most {FEW_INPUTS} inputs: a step of constant cost."
        return "node_wiski", "Nodes at the data: a step of constant cost."

    def _default_acquisition(self) -> tuple[str, str]:
        """The default acquisition function, by goal, outcomes, surrogate and space."""
        if len(self.outcomes.goals) > 1:
            return "qlognehvi", "Several objectives: the hypervolume below their front."
        if self.outcomes.joint:
            why = "Expected improvement among what satisfies the constraints."
            return "qlognei", why
        if self.goal == "learn":
            return "nipv", "The goal is to learn the outcome everywhere."
        match self.family:
            case "warped" if isinstance(self.space, Box):
                return "logei", "Evaluations are few: each point is searched for locally."
            case "trust_region":
                return "trust_region", "The surrogate is local to a region."
            case "hsgp":
                return "thompson", "The maximiser of a sample of sine features costs little."
        return "qlogei", "The expected improvement of all trials together."

    def _for_more(self, later: Mapping[str, Any]) -> dict[str, Any]:
        """Settings for more outcomes than a small campaign has, as plain data."""
        family, why = self._default_surrogate(None)
        chosen = _with_noise({"name": family}, self.noise)
        settings = self.replaced(surrogate=chosen)
        search, reason = settings._default_acquisition()
        return {
            "start": SMALL + 1,
            "surrogate": chosen,
            "acquisition": {"name": search},
            "fit": later.get("fit") or asdict(settings.usual_fit),
            "why": (why, reason),
        }

    def after_changes(self, changes: Sequence[Mapping[str, Any]]) -> Self:
        """The settings after changes that events recorded.

        Raises:
            StateError: for settings of a newer release.
        """
        plain = self.to_dict()
        for change in changes:
            plain |= change
        return self.from_dict(plain)

    # -- what follows ----------------------------------------------------------------------------

    @property
    def family(self) -> str | None:
        """Name of the surrogate; None for a callable."""
        return None if self.surrogate is None else self.surrogate["name"]

    @property
    def usual_fit(self) -> FitPolicy:
        """The schedule that is the default for the surrogate."""
        return SCHEDULES.get(self.family or "", SCHEDULE)

    def check_names(self) -> None:
        """Refuse names of inputs and outcomes that mean two columns of frames.

        Raises:
            InputError: naming the first.
        """
        measured, completed = self.outcomes.measured, self.outcomes.completed
        columns = [name for one in measured for name in one.columns]
        own = {"y", "yvar"} if "y" in columns and not self.counts else set()
        results = [*self.outcomes.results, *([completed.column] if completed else [])]
        uses = {
            "a column of every campaign": set(RESERVED) - own,
            "a column of results": [name for name in results if name not in RESERVED],
            **{
                f"the noise variances of {one.column!r}": set(one.known_columns) - set(one.columns)
                for one in measured
            },
            "an outcome": columns,
            "an input": self.space.names,
        }
        taken: dict[str, tuple[str, str]] = {}
        for use, names in uses.items():
            for name in names:
                if not name.isprintable() or not name.strip():
                    raise InputError(
                        "names of characters that can be printed", f"{name!r}, {use}", "Rename it."
                    )
                other, first = taken.setdefault(folded(name), (name, use))
                if use == "an outcome" and other in RESULTS and other not in RESERVED:
                    continue  # it may be called "gain": columns of its results begin with its name
                if (other, first) != (name, use):
                    both = f"{ascii(name)}, {use}, beside {ascii(other)}, {first}"
                    raise InputError("names that mean one column each", both, "Rename it.")

    @cached_property
    def limits(self) -> list[LinearConstraint]:
        """The constraints in texts, on inputs and on outcomes."""
        goals = self.goal if isinstance(self.goal, Mapping) else [self.column]
        known = [*self.space.names, *goals]
        return [one for text in self.constraints if text for one in parse_constraint(text, known)]

    def feasible(self, constraints: Sequence[Any] = ()) -> FeasibleSet:
        """Where trials may be proposed.

        Args:
            constraints: The callables among the constraints.

        Raises:
            InputError: for constraints that cannot be, or missing callables.
        """
        callables, count = [c for c in constraints if callable(c)], self.constraints.count(None)
        if len(callables) != count:
            raise InputError(
                f"{count} callables among the constraints, which the store cannot hold",
                f"{len(callables)}",
                "Give them again: Campaign.resume(url, name, constraints=[...]).",
            )
        linear = [one for one in self.limits if one.coefficients.keys() <= set(self.space.names)]
        return FeasibleSet(self.space, linear, callables)

    @property
    def stages(self) -> list[Self]:
        """The settings, then those for more outcomes if they differ."""
        if self.later is None:
            return [self]
        return [self, self.replaced(**{**self.later, "later": None})]

    @property
    def usual_decision(self) -> Decision:
        """The acquisition function, and why it was chosen."""
        named = self.acquisition
        return Decision("a callable" if named is None else named["name"], self.why[1])

    @property
    def sign(self) -> float:
        """Factor of the outcome that makes larger ones better, if there is one objective."""
        return -1.0 if self.goal == "minimise" else 1.0

    @cached_property
    def outcomes(self) -> OutcomeSet:
        """The outcomes by name."""
        about = self.goal, self.column, self.limits, self.space.names, self.failures
        return OutcomeSet.of(*about, self.reference, self.counts, self.fixed_variance)

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain data."""
        return {"version": SETTINGS_VERSION, **self.model_dump()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Settings from what `to_dict` returned, in this release or an earlier one.

        Raises:
            StateError: for settings of a newer release.
        """
        rest = {k: v for k, v in plain.items() if k != "version"}
        try:
            if plain["version"] != SETTINGS_VERSION:
                raise ValueError(f"version {plain['version']}")
            return cls(**rest)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"settings of version {SETTINGS_VERSION}",
                f"others ({error})",
                "Open the campaign with the release of bo_stream that created it, or a newer one.",
            ) from error

    @cached_property
    def counts(self) -> Count | None:
        """What the outcomes are, if they are counts."""
        if self.outcome is None:
            return None
        from bo_stream.campaign.outcomes.count import Count  # not at the top: it imports torch

        return Count.read_setting(self.outcome)

    @property
    def exact(self) -> bool:
        """Whether outcomes have no noise, so that a repeated measurement tells nothing."""
        return self.surrogate is not None and self.surrogate.get("noise") == "none"

    @property
    def fixed_variance(self) -> float | None:
        """The variance of the noise of every outcome, if it was given."""
        return None if isinstance(self.noise, str) else self.noise


def _differing(one: Any, other: Any) -> Any:
    """What of a setting differs from another one."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return {k: _differing(v, other.get(k)) for k, v in one.items() if v != other.get(k)}
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [mine for mine, its in zip(one, other, strict=True) if mine != its]
    return shown(one)[:LONGEST]


def _with_noise(chosen: dict[str, Any] | None, noise: Noise) -> dict[str, Any] | None:
    """The surrogate with its option ``noise``.

    Raises:
        InputError: for noise that the surrogate cannot be told about.
    """
    if noise != "none":
        return chosen
    if chosen is None or chosen["name"] not in EXACT_OUTCOMES:
        raise InputError(
            f"one of the surrogates {', '.join(EXACT_OUTCOMES)} for noise='none'",
            f"{shown(chosen)}",
            "Use one of these, or give a small variance of the noise.",
        )
    return {**chosen, "noise": "none"}


def shown(setting: Any) -> str:
    """A setting for a message; None stands for a callable."""
    return "a callable" if setting is None else str(setting)


def stored_settings(store: Store, name: str) -> Settings | None:
    """The settings that a stored campaign was created with; None if there is none.

    Raises:
        InputError: for a name that cannot be stored.
    """
    if not isinstance(name, str) or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise InputError("a name of whole characters", repr(name), "Choose another name.")
    plain = store.settings(name)
    return None if plain is None else Settings.from_dict(plain)


def check_continued(
    chosen: Settings, created: Settings, current: Settings, name: str, choices: Choices
) -> int | None:
    """Refuse a program that continues a stored campaign with another space, goal or outcome.

    A program that still says what the campaign was created with follows the changes since. A
    warning names other choices that differ from the stored settings, which stay in use.

    Args:
        chosen: The program's settings.
        created: Those that the campaign was created with.
        current: Those with the changes since.
        name: Name of the campaign.
        choices: What the program chose.

    Returns:
        The budget to keep to.

    Raises:
        StateError: for another space, goal or outcome.
    """
    mine, first, theirs = chosen.to_dict(), created.to_dict(), current.to_dict()
    follows = [part for part in mine if first != theirs and mine[part] == first[part]]
    for part in ("space", "goal", "column", "outcome", "constraints"):
        if mine[part] != theirs[part] and part not in follows:
            raise StateError(
                f"the {part} that campaign {name!r} was created with",
                f"another {part} ({_differing(mine[part], theirs[part])} in place of "
                f"{_differing(theirs[part], mine[part])})",
                "Choose another name, or use Campaign.resume; bounds are widened by "
                "Campaign.widen or bo-stream widen.",
            )
    for part in choices.chosen:
        if mine[part] != theirs[part] and part not in (*follows, "goal", "budget"):
            change = "Use campaign.change, or choose" if part in CHANGEABLE else "Choose"
            both = f"its store, {shown(theirs[part])}; {shown(mine[part])} is ignored"
            text = f"Campaign {name!r} continues with the {part} in {both}. "
            warnings.warn(f"{text}{change} another name for a new campaign.", stacklevel=3)
    return current.budget if "budget" in follows else chosen.budget or current.budget


def widened(settings: Settings, bounds: Mapping[str, tuple[float, float]]) -> Settings:
    """Settings with wider bounds, or more values, of some inputs.

    Raises:
        UnsupportedError: for a pool.
        InputError: for unknown inputs or invalid bounds.
        BoundsError: for bounds that do not contain those of before.
    """
    space = settings.space
    if not isinstance(space, Box):
        raise UnsupportedError(
            "a campaign over a box", "a pool", "Start a new campaign with the larger table."
        )
    if not isinstance(bounds, Mapping) or not bounds:
        raise InputError(
            "new bounds by the name of the input", repr(bounds), "For example {'x': (0.0, 9.0)}."
        )
    check_keys(bounds, space.names)
    wider = replace(space, bounds={**space.bounds, **bounds})
    for old, new in zip(space.kinds, wider.kinds, strict=True):
        if not new.contains(old):
            raise BoundsError(
                f"{old.name!r} to contain {old.described()}, in this order",
                new.described(),
                "Trials may have any of the values of before: add others to them.",
            )
    return settings.replaced(space=wider)


def changed(settings: Settings, trials: int, changes: Mapping[str, Any]) -> Settings:
    """Settings of which some are replaced.

    An acquisition function that was chosen for the surrogate is chosen again for another one. A
    campaign that began as a small one stays with a surrogate that was chosen, however many outcomes
    follow.

    Args:
        settings: Those of before.
        trials: Number of trials so far.
        changes: The new ``surrogate``, ``acquisition``, ``budget``, ``fit`` or ``failures``; None
            for one that stays.

    Raises:
        InputError: for invalid settings, or if nothing is to be changed.
    """
    new = Choices.read({"goal": settings.goal, **changes})
    if not new.chosen[1:]:
        raise InputError(f"a change of {', '.join(changes)}", "none", "Give one.")
    for what in ("surrogate", "acquisition"):
        if callable(getattr(new, what)):
            raise InputError(
                f"the name of the {what}, which the store keeps",
                "a callable",
                f"Use Campaign.resume(url, name, {what}=...) in every process.",
            )
    if new.budget is not None and new.budget < trials:
        raise InputError(
            f"budget, an integer of {trials} (the trials so far) or more",
            repr(new.budget),
            "A budget counts all trials, those of before included.",
        )
    settings = settings.replaced(budget=new.budget or settings.budget)
    if new.failures not in (None, settings.failures):
        settings = settings.replaced(failures=new.failures).with_defaults()
        settings.check_names()
    if new.surrogate is not None:
        fit = None if settings.fit == settings.usual_fit else settings.fit
        why = (GIVEN, settings.why[1])
        settings = settings.replaced(surrogate=new.surrogate, later=None, why=why)
        settings = settings.replaced(fit=fit or settings.usual_fit).with_defaults()
    if new.acquisition is not None:
        settings = settings.replaced(why=(settings.why[0], GIVEN))
        settings = settings.in_all_stages(acquisition=new.acquisition)
    return settings if new.fit is None else settings.in_all_stages(fit=new.fit)
