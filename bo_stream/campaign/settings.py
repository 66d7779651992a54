"""What a campaign is begun with, as plain data; and what is chosen for those who do not choose."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, cast

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.fit_policy import FitPolicy
from bo_stream.campaign.proposals import Build, Optimiser
from bo_stream.campaign.space import Space, space_from
from bo_stream.errors import InputError, StateError
from bo_stream.surrogates.registry import FAMILIES, in_loops, surrogate

__all__ = ["GOALS", "SCHEDULE", "Goal", "Named", "Settings"]

Goal = Literal["maximise", "minimise", "learn"]
GOALS = ("maximise", "minimise", "learn")
SETTINGS_VERSION = 1

SCHEDULE = FitPolicy(every_step_until=50, then_every=10)
"""Hyperparameters are fitted before an `ask` if there are new outcomes, or after the first fifty
batches told if there are ten new batches."""

FEW = 500
"""Observations up to which an exact Gaussian process is as quick as any stream."""

Named = str | Mapping[str, Any]
"""A name, or a mapping of ``name`` and options."""


@dataclass(frozen=True)
class Settings:
    """All that a campaign is begun with.

    Attributes:
        space: Where it may measure.
        goal: ``maximise``, ``minimise`` or ``learn``.
        surrogate: Name and options of a family; None for a callable, which no store can hold.
        acquisition: Likewise.
        seed: Of its designs and of every search for the next points.
        initial: Outcomes to wait for before there is a surrogate.
        fit: When hyperparameters are fitted.
        optimiser: How hard acquisition functions are maximised.
        targets: Places over which ``learn`` integrates variance, in the user's units; None: all of
            the space.
        restandardise: Whether outcomes are standardised anew, by all of them, before each fit.
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

    def __post_init__(self) -> None:
        if self.goal not in GOALS:
            raise InputError(f"a goal, one of {', '.join(GOALS)}", repr(self.goal), "Choose one.")
        if self.initial < 2:
            raise InputError("initial >= 2", f"{self.initial}", "They standardise outcomes.")

    @classmethod
    def chosen(
        cls,
        space: Space,
        goal: Goal,
        surrogate: Named | Callable[..., StreamingGP] | None,
        acquisition: Named | Build | None,
        budget: int | None,
        seed: int | None,
        initial: int | None,
        fit: FitPolicy,
        optimiser: Optimiser | None,
        targets: list[list[float]] | None = None,
    ) -> tuple[Settings, Callable[..., StreamingGP] | None, Build | None]:
        """What a user says, with defaults for what is left out; and the callables among it.

        Raises:
            InputError: for settings that cannot be.
        """
        family, make = _as_named(surrogate, _default_surrogate(space, budget))
        rule, build = _as_named(acquisition, _default_acquisition(goal))
        settings = cls(
            space,
            goal,
            family,
            rule,
            secrets.randbits(31) if seed is None else seed,
            _default_initial(space, budget) if initial is None else initial,
            fit,
            optimiser or Optimiser(),
            targets,
        )
        settings.make_surrogate(make), settings.build_acquisition(build)  # refused now, if ever
        return settings, make, build

    @property
    def sign(self) -> float:
        """What outcomes are multiplied by, so that more is better."""
        return -1.0 if self.goal == "minimise" else 1.0

    def described(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "version": SETTINGS_VERSION,
            "space": self.space.described(),
            "goal": self.goal,
            "surrogate": None if self.surrogate is None else dict(self.surrogate),
            "acquisition": None if self.acquisition is None else dict(self.acquisition),
            "seed": self.seed,
            "initial": self.initial,
            "fit": asdict(self.fit),
            "optimiser": asdict(self.optimiser),
            "targets": self.targets,
            "restandardise": self.restandardise,
        }

    def going_on(self, found: Settings, name: str) -> Settings:
        """The settings that a campaign was begun with, if these are of the same one.

        Raises:
            StateError: for another space or goal.
        """
        mine, theirs = self.described(), found.described()
        for part in ("space", "goal"):
            if mine[part] != theirs[part]:
                raise StateError(
                    f"another name, or the {part} that campaign {name!r} was begun with",
                    f"another {part}",
                    "Choose another name, or use Campaign.resume.",
                )
        return found

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Settings:
        """Settings as `described` gave them.

        Raises:
            StateError: for those of another version.
        """
        if plain.get("version") != SETTINGS_VERSION:
            raise StateError(
                f"a campaign of version {SETTINGS_VERSION}",
                f"one of version {plain.get('version')}",
                "Open it with the release of bo_stream that began it.",
            )
        rest = {k: v for k, v in plain.items() if k != "version"}
        rest["space"] = space_from(rest["space"])
        rest["fit"] = FitPolicy(**rest["fit"])
        rest["optimiser"] = Optimiser(**rest["optimiser"])
        return cls(**rest)

    def make_surrogate(self, own: Callable[..., StreamingGP] | None) -> Callable[..., StreamingGP]:
        """What makes the surrogate: the user's callable, or the family named."""
        if own is not None:
            return own
        if self.surrogate is None:
            raise _needs("surrogate")
        options = dict(self.surrogate)
        name = _known(options.pop("name"), FAMILIES, "surrogate")
        return partial(surrogate, name, **in_loops(name, options))

    def build_acquisition(self, own: Build | None) -> Build:
        """What makes the acquisition function: the user's callable, or the one named."""
        if own is not None:
            return own
        if self.acquisition is None:
            raise _needs("acquisition")
        from acquisitions.build import NAMES, build  # here: acquisitions stand on bo_stream

        options = dict(self.acquisition)
        name = _known(options.pop("name"), NAMES, "acquisition function")
        return partial(build, name, **options)


def _as_named(choice: Any, default: str) -> tuple[Mapping[str, Any] | None, Any]:
    """A choice as name and options, or as a callable."""
    if choice is None:
        return {"name": default}, None
    if isinstance(choice, str):
        return {"name": choice}, None
    if isinstance(choice, Mapping) and "name" in choice:
        return dict(choice), None
    if callable(choice):
        return None, choice
    raise InputError(
        "a name, a mapping of name and options, or a callable",
        repr(choice),
        "For example 'wiski', {'name': 'wiski', 'grid_size': 20}, or a function.",
    )


def _default_surrogate(space: Space, budget: int | None) -> str:
    """The family by dimension and budget.

    On up to three inputs a grid costs the same at every step; below a few hundred observations an
    exact process is as quick and needs no grid. With more inputs nodes at the data are an exact
    process as long as there are few of them, and cost the same at every step from then on.
    """
    if budget is not None and budget <= FEW:
        return "exact"
    return "wiski" if space.dim <= 3 else "node_wiski"


def _default_acquisition(goal: str) -> str:
    """The acquisition by goal."""
    return "nipv" if goal == "learn" else "qlogei"


def _default_initial(space: Space, budget: int | None) -> int:
    """Outcomes to begin with: two for each input and two more, at most a third of the budget."""
    wanted = 2 * space.dim + 2
    return wanted if budget is None else max(2, min(wanted, budget // 3))


def _known(name: Any, names: Iterable[str], what: str) -> str:
    if name not in names:
        raise InputError(
            f"the name of a {what}, one of {', '.join(names)}", repr(name), "Choose one of these."
        )
    return cast(str, name)


def _needs(what: str) -> InputError:
    return InputError(
        f"the {what}, which was a callable when the campaign was begun",
        "none",
        f"Hand it over again: Campaign.resume(url, name, {what}=...).",
    )
