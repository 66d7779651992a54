"""Settings that change while a campaign runs: bounds, surrogate, acquisition function, budget."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.effort import FitPolicy
from bo_stream.campaign.learner import Stage
from bo_stream.campaign.names import is_text
from bo_stream.campaign.outcomes.goals import Failures
from bo_stream.campaign.settings import GIVEN, NamedChoice, Settings, as_named
from bo_stream.campaign.space import Box
from bo_stream.campaign.storage.store import Store
from bo_stream.errors import BoundsError, InputError, UnsupportedError

if TYPE_CHECKING:
    from acquisitions.maximised import AcquisitionBuilder

__all__ = ["GivenParts", "changed", "continued", "replayed", "stored_settings", "widened"]


@dataclass(frozen=True)
class GivenParts:
    """Surrogate and acquisition function that take the place of stored ones until these change.

    Attributes:
        settings: The settings that they were given for.
        surrogate: A callable or a name; None for the stored one.
        acquisition: Likewise.
        constraints: The callables among the constraints.
    """

    settings: Settings
    surrogate: NamedChoice | Callable[..., StreamingGP] | None = None
    acquisition: NamedChoice | AcquisitionBuilder | None = None
    constraints: Sequence[Any] = ()

    def stages(self, settings: Settings) -> list[Stage]:
        """The surrogate and what chooses trials under the current settings.

        Raises:
            InputError: for names and options that there are not.
        """
        same = (
            settings.surrogate == self.settings.surrogate,
            settings.acquisition == self.settings.acquisition,
        )
        return settings.stages(
            settings.feasible(self.constraints),
            self.surrogate if same[0] else None,
            self.acquisition if same[1] else None,
            check=True,
        )


def replayed(settings: Settings, changes: Sequence[Mapping[str, Any]]) -> Settings:
    """Settings after the changes that events recorded.

    Raises:
        StateError: for settings of a newer release.
    """
    if not changes:
        return settings
    plain = settings.to_dict()
    for change in changes:
        plain.update(change)
    made = Settings.from_dict(plain)
    same = all("space" not in change for change in changes)
    return replace(made, space=settings.space) if same else made  # a pool keeps its other columns


def stored_settings(store: Store, name: str) -> tuple[Settings, list[dict[str, Any]]] | None:
    """The settings that a stored campaign was created with, and their later changes.

    Raises:
        InputError: for a name that cannot be stored.
    """
    if not isinstance(name, str) or not is_text(name):
        raise InputError("a name of whole characters", repr(name), "Choose another name.")
    plain = store.settings(name)
    if plain is None:
        return None
    events = store.events_since(name, 0)
    changes = [event["settings"] for event in events if event["kind"] == "changed"]
    return Settings.from_dict(plain), changes


def continued(
    settings: Settings,
    created: Settings,
    changes: Sequence[Mapping[str, Any]],
    name: str,
    given: Collection[str],
) -> Settings:
    """The settings with which a program continues a stored campaign.

    A program that still says what the campaign was created with follows the changes since.

    Args:
        settings: The program's settings.
        created: Those that the campaign was created with.
        changes: Changes of settings since.
        name: Name of the campaign.
        given: Names of the settings that the program gave.

    Raises:
        StateError: for another space, goal or outcome.
    """
    current, mine, first = replayed(created, changes), settings.to_dict(), created.to_dict()
    for part in ("space", "budget"):
        if changes and mine[part] == first[part]:
            settings = replace(settings, **{part: getattr(current, part)})
    differ = [part for part in given if not changes or mine[part] != first[part]]
    return settings.continued_from(current, name, differ)


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
    unknown = [str(name) for name in bounds if name not in space.bounds]
    if unknown:
        raise InputError(
            f"names among {', '.join(space.names)}", ", ".join(unknown), "Correct the spelling."
        )
    wider = replace(space, bounds={**space.bounds, **bounds})
    for old, new in zip(space.kinds, wider.kinds, strict=True):
        if not new.contains(old):
            raise BoundsError(
                f"{old.name!r} to contain {old.described()}, in this order",
                new.described(),
                "Trials may have any of the values of before: add others to them.",
            )
    return replace(settings, space=wider)


def changed(
    settings: Settings,
    surrogate: NamedChoice | None,
    acquisition: NamedChoice | None,
    budget: int | None,
    fit: FitPolicy | None,
    failures: Failures | None,
    trials: int,
) -> Settings:
    """Settings of which some are replaced.

    An acquisition function that was chosen for the surrogate is chosen again for another one.

    Args:
        settings: Those of before.
        surrogate: A family; None to keep it. A campaign that began as a small one then stays with
            it, however many outcomes follow.
        acquisition: An acquisition function, likewise.
        budget: Number of trials in all.
        fit: When hyperparameters are fitted.
        failures: What failed trials are. Choices that were not asked for are made again.
        trials: Number of trials so far.

    Raises:
        InputError: for invalid settings, or if nothing is to be changed.
    """
    if all(new is None for new in (surrogate, acquisition, budget, fit, failures)):
        raise InputError(
            "a surrogate, an acquisition function, a budget, a fit policy or failures",
            "none",
            "Give one.",
        )
    for what, choice in (("surrogate", surrogate), ("acquisition", acquisition)):
        if callable(choice):
            raise InputError(
                f"the name of the {what}, which the store keeps",
                "a callable",
                f"Use Campaign.resume(url, name, {what}=...) in every process.",
            )
    if fit is not None and not isinstance(fit, FitPolicy):
        raise InputError("a FitPolicy", repr(fit), "For example FitPolicy(then_every=5).")
    if budget is not None and (type(budget) is not int or budget < max(1, trials)):
        raise InputError(
            f"budget, an integer of {max(1, trials)} (the trials so far) or more",
            repr(budget),
            "A budget counts all trials, those of before included.",
        )
    made = settings if budget is None else replace(settings, budget=budget)
    if failures is not None and failures != settings.failures:
        made = replace(made, failures=failures)
        made = made.with_defaults()
    if surrogate is not None:
        chosen, usual = as_named(surrogate), made.fit == made.usual_fit
        made = replace(made, surrogate=chosen, later=None, why=(GIVEN, made.why[1]))
        made = replace(made, fit=made.usual_fit if usual else made.fit).with_defaults()
    if acquisition is not None:
        why = (made.why[0], GIVEN)
        made = _in_all_stages(replace(made, why=why), "acquisition", as_named(acquisition))
    return made if fit is None else _in_all_stages(made, "fit", fit)


def _in_all_stages(settings: Settings, name: str, value: Any) -> Settings:
    """Settings with one of them replaced, now and for more outcomes."""
    made = replace(settings, **{name: value})
    if settings.later is None:
        return made
    plain = asdict(value) if isinstance(value, FitPolicy) else value
    return replace(made, later={**settings.later, name: plain})
