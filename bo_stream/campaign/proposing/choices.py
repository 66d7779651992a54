"""What a user chooses by name, with options, or by a callable; and what is known about noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

from bo_stream.base.options import from_plain, to_plain
from bo_stream.errors import InputError

__all__ = [
    "EXACT_OUTCOMES",
    "NamedChoice",
    "Noise",
    "as_named",
    "checked_name",
    "missing_callable",
    "shown",
    "with_noise",
]

NamedChoice = str | Mapping[str, Any]
"""A name, or a mapping of ``name`` and options."""

Noise = Literal["learned", "none"] | float
"""Whether the noise of outcomes is learned or absent, or its variance."""

EXACT_OUTCOMES = ("warped", "trust_region")
"""Families with an option ``noise``."""


def shown(setting: Any) -> str:
    """A setting for a message; None stands for a callable."""
    return "a callable" if setting is None else str(setting)


def as_named(choice: Any, default: str | None) -> Mapping[str, Any] | None:
    """A choice as name and options; None for a callable."""
    if choice is None:
        return {"name": default}
    if isinstance(choice, str):
        return {"name": choice}
    if isinstance(choice, Mapping) and isinstance(choice.get("name"), str):
        return {option: to_plain(from_plain(option, value)) for option, value in choice.items()}
    if callable(choice):
        return None
    raise InputError(
        "a name, a mapping of name and options, or a callable",
        repr(choice),
        "For example 'wiski', {'name': 'wiski', 'grid_size': 20}, or a function.",
    )


def with_noise(chosen: Mapping[str, Any] | None, noise: Noise | None) -> Mapping[str, Any] | None:
    """The surrogate with its option ``noise``.

    Raises:
        InputError: for noise that the surrogate cannot be told about.
    """
    if noise is None or noise == "learned":
        return chosen
    if noise != "none":
        if isinstance(noise, str | bool) or not (noise > 0.0 and math.isfinite(noise)):
            raise InputError(
                "noise, 'learned', 'none' or a positive variance",
                repr(noise),
                "Give the variance of a repeated measurement, or leave it out.",
            )
        return chosen
    if chosen is None or chosen["name"] not in EXACT_OUTCOMES:
        raise InputError(
            f"one of the surrogates {', '.join(EXACT_OUTCOMES)} for noise='none'",
            f"{shown(chosen)}",
            "Use one of these, or give a small variance of the noise.",
        )
    return {**chosen, "noise": "none"}


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


def missing_callable(what: str) -> InputError:
    """The error for a callable that has to be given again."""
    return InputError(
        f"the {what}, a callable that the store cannot hold",
        "none",
        f"Give it again: Campaign.resume(url, name, {what}=...).",
    )
