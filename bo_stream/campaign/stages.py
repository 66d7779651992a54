"""What settings name, made: surrogates, and rules that choose trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from bo_stream.base.streaming_gp import CompositeModel, StreamingGP
from bo_stream.campaign.constraints import FeasibleSet
from bo_stream.campaign.learner import Stage
from bo_stream.campaign.options import errors_about
from bo_stream.campaign.refitted import refitted
from bo_stream.campaign.settings import Choices, NamedChoice, Settings, read_choice, renamed
from bo_stream.errors import InputError, check_not_shadowed
from bo_stream.surrogates.registry import FAMILIES, OURS, in_loops, surrogate, with_categories

if TYPE_CHECKING:
    from botorch.models.model import Model

    from acquisitions.maximised import AcquisitionBuilder
    from acquisitions.rule import Rule

__all__ = ["check_choices", "check_surrogate", "stages_of"]


def stages_of(
    begun: Settings,
    surrogate: NamedChoice | Callable[..., Model] | None,
    acquisition: NamedChoice | AcquisitionBuilder | None,
    constraints: Sequence[Any],
    settings: Settings,
) -> list[Stage]:
    """The surrogate and what chooses trials, and those that follow for more outcomes.

    Args:
        begun: The first settings of a program.
        surrogate: A callable or a name in place of that of the first settings.
        acquisition: Likewise.
        constraints: The callables among the constraints.
        settings: The settings.

    Raises:
        InputError: for names that there are not.
    """
    from acquisitions.rule import REGISTRY  # not at the top: a circle

    feasible, stages = settings.feasible(constraints), list[Stage]()
    for one in settings.stages:
        family = surrogate if one.surrogate == begun.surrogate else None
        search = acquisition if one.acquisition == begun.acquisition else None
        make, rule = _surrogate(one, family), _rule(one, feasible, search)
        entry = REGISTRY.get(_name(search, one.acquisition) or "")
        ours = _name(family, one.surrogate) in OURS and entry is not None and entry.ours
        named = ours and not feasible.callables
        stages.append(Stage(make, one.fit, rule, one.start, named))
    return stages


def check_choices(settings: Settings, choices: Choices) -> None:
    """Refuse a surrogate or an acquisition function that there is not.

    Args:
        settings: The settings that follow from the choices.
        choices: What a user chooses.

    Raises:
        InputError: whose ``key`` is the choice.
    """
    with errors_about("surrogate"):
        _surrogate(settings, choices.surrogate)
    if isinstance(choices.surrogate, dict):
        check_surrogate(settings)
    with errors_about("acquisition"):
        _rule(settings, settings.feasible(choices.constraints), choices.acquisition)


def check_surrogate(settings: Settings) -> None:
    """Refuse options of the surrogate: it is built without data.

    Raises:
        InputError: for options that there are not, or that do not suit the space.
    """
    bounds = settings.space.tensor_bounds
    with errors_about("surrogate"):
        make = _surrogate(settings)
        make(bounds[:0], bounds[:0, :1], bounds=bounds, outcome_transform=None)


def _surrogate(
    settings: Settings, given: NamedChoice | Callable[..., Model] | None = None
) -> Callable[..., StreamingGP]:
    """What builds the surrogate: the callable or name given, or the stored name."""
    if callable(given):
        if isinstance(given, type) and issubclass(given, CompositeModel):
            remedy = "Tell counts to a bo_stream.Campaign with `outcome`."
            raise InputError("a surrogate of measurements", given.__name__, remedy)
        return cast("Callable[..., StreamingGP]", partial(refitted, given))
    choice = read_choice(given) or settings.surrogate
    if choice is None:
        raise _missing_callable("surrogate")
    options, space = dict(choice), settings.space
    name = options.pop("name")
    if name not in FAMILIES:
        known = f"the name of a surrogate, one of {', '.join(FAMILIES)}"
        raise InputError(known, repr(name), "Choose one of these.")
    options = in_loops(name, options)
    if name == "warped" and settings.goal == "learn":  # the variance of outcomes is integrated
        options = {"warp": "none", **options}
    make: Callable[..., Any] = partial(surrogate, name, **options)
    if settings.counts is not None:
        make = partial(settings.counts.surrogate, name, options)
    if space.categories:
        make = partial(with_categories, make, name, space.dim, space.categories)
    return make


def _rule(
    settings: Settings, feasible: FeasibleSet, given: NamedChoice | AcquisitionBuilder | None = None
) -> Rule:
    """What chooses trials: by the callable or name given, or by the stored name."""
    check_not_shadowed("acquisitions")
    from acquisitions.maximised import Maximised, rule_of  # not at the top: a circle

    if callable(given):
        return Maximised(given)
    choice = renamed(read_choice(given)) or settings.acquisition
    if choice is None:
        raise _missing_callable("acquisition")
    return rule_of(choice, settings.outcomes, feasible, settings.family)


def _name(given: Any, stored: Mapping[str, Any] | None) -> str | None:
    """The name of a choice; None for a callable."""
    choice = read_choice(given) or stored
    return None if choice is None or callable(choice) else choice["name"]


def _missing_callable(what: str) -> InputError:
    """The error for a callable that has to be given again."""
    return InputError(
        f"the {what}, a callable that the store cannot hold",
        "none",
        f"Give it again: Campaign.resume(url, name, {what}=...).",
    )
