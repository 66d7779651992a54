"""Settings of a campaign as plain data, and their defaults."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, cast

import torch

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.fit_policy import FitPolicy
from bo_stream.campaign.goals import GOALS, Goal
from bo_stream.campaign.proposals import AcquisitionBuilder, Optimiser
from bo_stream.campaign.space import Space, space_from_dict
from bo_stream.errors import InputError, StateError, check_not_shadowed
from bo_stream.surrogates.registry import FAMILIES, in_loops, surrogate

__all__ = ["SCHEDULE", "NamedChoice", "Settings"]

SETTINGS_VERSION = 1

SCHEDULE = FitPolicy(every_step_until=50, then_every=10)
"""Default schedule: fit before an `ask` if there are new outcomes; after the first fifty batches,
if there are ten new batches."""

FEW = 500
"""Observations up to which an exact Gaussian process is as fast as any streaming one."""

NamedChoice = str | Mapping[str, Any]
"""A name, or a mapping of ``name`` and options."""


@dataclass(frozen=True)
class Settings:
    """All settings of a campaign.

    Attributes:
        space: Where the campaign may measure.
        goal: ``maximise``, ``minimise`` or ``learn``.
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
    """

    space: Space
    goal: Goal
    surrogate: Mapping[str, Any] | None
    acquisition: Mapping[str, Any] | None
    seed: int
    initial: int
    fit: FitPolicy = SCHEDULE
    optimiser: Optimiser = field(default_factory=Optimiser)
    targets: list[list[float]] | None = None
    restandardise: bool = True
    budget: int | None = None

    def __post_init__(self) -> None:
        if self.goal not in GOALS:
            raise InputError(f"a goal, one of {', '.join(GOALS)}", repr(self.goal), "Choose one.")
        if self.initial < 2:
            raise InputError(
                "initial >= 2", f"{self.initial}", "Two outcomes are needed to standardise them."
            )

    @classmethod
    def from_arguments(
        cls,
        space: Space,
        goal: Goal,
        *,
        surrogate: NamedChoice | Callable[..., StreamingGP] | None = None,
        acquisition: NamedChoice | AcquisitionBuilder | None = None,
        budget: int | None = None,
        seed: int | None = None,
        initial: int | None = None,
        fit: FitPolicy = SCHEDULE,
        optimiser: Optimiser | None = None,
        targets: list[list[float]] | None = None,
    ) -> Settings:
        """Settings from a user's arguments, with defaults for those left out.

        Raises:
            InputError: for invalid settings.
        """
        if budget is not None and (type(budget) is not int or budget < 1):
            raise InputError(
                "budget, an integer of 1 or more", repr(budget), "Leave it out for no limit."
            )
        settings = cls(
            space,
            goal,
            _as_named(surrogate, _default_surrogate(space, budget)),
            _as_named(acquisition, "nipv" if goal == "learn" else "qlogei"),
            secrets.randbits(31) if seed is None else seed,
            _default_initial(space, budget) if initial is None else initial,
            fit,
            optimiser or Optimiser(),
            targets,
            budget=budget,
        )
        settings.make_surrogate(surrogate), settings.build_acquisition(acquisition)  # or refuse
        return settings

    @property
    def sign(self) -> float:
        """Factor of outcomes that makes larger ones better."""
        return -1.0 if self.goal == "minimise" else 1.0

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain data."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        named = {name: plain[name] and dict(plain[name]) for name in ("surrogate", "acquisition")}
        nested = {"fit": asdict(self.fit), "optimiser": asdict(self.optimiser)}
        space = {"space": self.space.to_dict()}
        return {"version": SETTINGS_VERSION, **plain, **named, **nested, **space}

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
            rest["optimiser"] = Optimiser(**rest["optimiser"])
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
            StateError: for another space or goal.
        """
        mine, theirs = self.to_dict(), stored.to_dict()
        for part in ("space", "goal"):
            if mine[part] != theirs[part]:
                raise StateError(
                    f"the {part} that campaign {name!r} was created with",
                    f"another {part}",
                    "Choose another name, or use Campaign.resume.",
                )
        for part in given:
            if mine[part] != theirs[part]:
                warnings.warn(
                    f"Campaign {name!r} continues with the {part} it was created with, "
                    f"{_shown(theirs[part])}; {_shown(mine[part])} is ignored. "
                    "Choose another name to start a new campaign.",
                    stacklevel=4,
                )
        return replace(stored, budget=self.budget or stored.budget)

    def make_surrogate(self, given: Any = None) -> Callable[..., StreamingGP]:
        """What builds the surrogate: the callable or name given, or the stored name.

        Raises:
            InputError: for names and options that no surrogate has.
        """
        if callable(given):
            return given
        choice = _as_named(given, None) if given is not None else self.surrogate
        if choice is None:
            raise _missing_callable("surrogate")
        options = dict(choice)
        name = _checked_name(options.pop("name"), FAMILIES, "surrogate")
        make: Callable[..., StreamingGP] = partial(surrogate, name, **in_loops(name, options))
        bounds, X = self.space.tensor_bounds, torch.empty(0, self.space.dim, dtype=torch.float64)
        make(X, X[:, :1], bounds=bounds, outcome_transform=None)  # refuses invalid options now
        return make

    def build_acquisition(self, given: Any = None) -> AcquisitionBuilder:
        """What builds the acquisition function: the callable or name given, or the stored name."""
        if callable(given):
            return cast(AcquisitionBuilder, given)
        choice = _as_named(given, None) if given is not None else self.acquisition
        if choice is None:
            raise _missing_callable("acquisition")
        check_not_shadowed("acquisitions")
        from acquisitions.build import NAMES, build  # not at the top: it imports bo_stream

        options = dict(choice)
        name = _checked_name(options.pop("name"), NAMES, "acquisition function")
        return partial(build, name, **options)


def _shown(setting: Any) -> str:
    return "a callable" if setting is None else str(setting)


def _as_named(choice: Any, default: str | None) -> Mapping[str, Any] | None:
    """A choice as name and options; None for a callable."""
    if choice is None:
        return {"name": default}
    if isinstance(choice, str):
        return {"name": choice}
    if isinstance(choice, Mapping) and "name" in choice:
        return dict(choice)
    if callable(choice):
        return None
    raise InputError(
        "a name, a mapping of name and options, or a callable",
        repr(choice),
        "For example 'wiski', {'name': 'wiski', 'grid_size': 20}, or a function.",
    )


def _default_surrogate(space: Space, budget: int | None) -> str:
    """The default family.

    With up to three inputs, a step of a grid costs the same at any number of observations; with few
    observations an exact process is as fast and needs no grid. With more inputs, nodes at the data
    are an exact process while they are few, and a step has a constant cost from then on.
    """
    if budget is not None and budget <= FEW:
        return "exact"
    return "wiski" if space.dim <= 3 else "node_wiski"


def _default_initial(space: Space, budget: int | None) -> int:
    """Two outcomes for each input and two more, but at most a third of the budget."""
    wanted = 2 * space.dim + 2
    return wanted if budget is None else max(2, min(wanted, budget // 3))


def _checked_name(name: Any, names: Iterable[str], what: str) -> str:
    if name not in names:
        raise InputError(
            f"the name of a {what}, one of {', '.join(names)}", repr(name), "Choose one of these."
        )
    return cast(str, name)


def _missing_callable(what: str) -> InputError:
    return InputError(
        f"the {what}, a callable that the store cannot hold",
        "none",
        f"Give it again: Campaign.resume(url, name, {what}=...).",
    )
