"""Policies, and likelihoods of counts, as plain data: name and options, as in a TOML or a store."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from bo_stream.errors import InputError

__all__ = ["from_plain", "to_plain"]

PACKAGES = {
    "growth": "bo_stream.growth",
    "actions": "bo_stream.actions",
    "schedule": "bo_stream.base.fitting.schedule",
    "likelihood": "bo_stream.likelihoods",
}
"""Modules with the policies of an option."""


def from_plain(option: str, policy: Any) -> Any:
    """A policy from its name and options; anything else, and other options, as they are.

    Args:
        option: Name of the option: ``growth``, ``actions``, ``schedule`` or ``likelihood``.
        policy: For example ``{"name": "oips", "rho": 0.9}``, or ``"vips"`` for one without options.
            A policy among the options is described likewise, and tensors are lists. Names may also
            be those of the classes.

    Raises:
        InputError: for an unknown name or option.
    """
    if option not in PACKAGES or not isinstance(policy, str | Mapping):
        return policy
    rest = {"name": policy} if isinstance(policy, str) else dict(policy)
    kinds, name = _policies(option), rest.pop("name", None)
    known = {_plain_name(kind).replace("_", ""): kind for kind in kinds}
    kind = known.get(str(name).replace("_", "").lower())
    if kind is None:
        names = ", ".join(map(_plain_name, kinds))
        raise InputError(f"the name of {option}, one of {names}", repr(name), "Choose.")
    options = {field.name: field for field in fields(kind) if field.init}
    needed = {one.name for one in options.values() if one.default is MISSING}
    if wrong := sorted(set(rest) - set(options)) or sorted(needed - set(rest)):
        raise InputError(
            f"the options {', '.join(options)} of {name!r}",
            f"{'unknown' if wrong[0] in rest else 'no'} {wrong[0]!r}",
            "Correct it.",
        )
    return kind(**{key: _value(option, options[key].type, rest[key]) for key in rest})


def to_plain(policy: Any) -> Any:
    """A policy as `from_plain` reads it; anything else, such as a policy of one's own, as it is."""
    for option in PACKAGES:
        if type(policy) in _policies(option):
            plain = {"name": _plain_name(type(policy))}
            for field in fields(policy):
                value = getattr(policy, field.name)
                if field.init and (isinstance(value, Tensor) or value != field.default):
                    plain[field.name] = _plain_value(value)
            return plain if _is_plain(plain) else policy
    return policy


def _policies(option: str) -> list[type[Any]]:
    """The classes of policies."""
    package = import_module(PACKAGES[option])  # not at the top: it imports this package
    found = [getattr(package, name) for name in package.__all__]
    made = [one for one in found if isinstance(one, type) and is_dataclass(one)]
    return [one for one in made if one.__name__ not in ("Selection", "Actions", "Likelihood")]


def _plain_name(kind: type) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


def _value(option: str, annotation: Any, value: Any) -> Any:
    """The value of an option from plain data."""
    if isinstance(value, Mapping):
        return from_plain(option, value)
    if isinstance(value, list) and str(annotation).startswith("tuple"):
        return tuple(value)
    if isinstance(value, list) and "Tensor" in str(annotation):
        several = str(annotation).startswith("Sequence")
        return [_tensor(one) for one in value] if several else _tensor(value)
    return value


def _tensor(values: list[Any]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _plain_value(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain_value(one) for one in value]
    return to_plain(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
