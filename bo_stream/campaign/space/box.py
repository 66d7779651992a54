"""A box of named inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bo_stream.campaign.names import check_names, listed_names, spelled
from bo_stream.campaign.space.base import SpaceOfInputs
from bo_stream.campaign.space.inputs import Input, Range, input_from
from bo_stream.errors import InputError

__all__ = ["Box"]


@dataclass(frozen=True)
class Box(SpaceOfInputs):
    """Named inputs: continuous, integer, numbers in a list, or categories.

    Args:
        bounds: By name, lower and upper bound of an input in the user's units, or a list of all its
            values: numbers, which are ordered, or texts or booleans, which are categories.
        log: Inputs on a logarithmic scale; their bounds or values have to be positive.
        units: Units by name, for labels.
        integer: Inputs that take only the integers between their bounds.

    Raises:
        InputError: for invalid names, bounds, values or scales.

    Example:
        >>> box = Box(
        ...     {"rate": (1e-4, 0.1), "trees": (50, 500), "loss": ["squared", "huber"]},
        ...     log=["rate", "trees"],
        ...     integer=["trees"],
        ... )
        >>> box.names
        ('rate', 'trees', 'loss')
    """

    bounds: Mapping[str, Any]
    log: Sequence[str] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    integer: Sequence[str] = ()

    def __post_init__(self) -> None:
        for part in ("bounds", "units"):
            if not isinstance(getattr(self, part), Mapping):
                example = "{'rate': (0.0, 1.0)}" if part == "bounds" else "{'rate': 'mm/s'}"
                raise InputError(
                    f"{part} by the names of inputs",
                    repr(getattr(self, part)),
                    f"For example {example}.",
                )
        given = dict(self.bounds)
        units = {spelled(name, given): unit for name, unit in self.units.items()}
        named: dict[str, Any] = {"units": units}
        for option in ("log", "integer"):
            names = listed_names(getattr(self, option), option)
            named[option] = tuple(spelled(name, given) for name in names)
        check_names(given, named)
        for part, value in {"bounds": given, **named}.items():
            object.__setattr__(self, part, value)
        for one in self.kinds:
            given[one.name] = one.ends if isinstance(one, Range) else given[one.name]

    @cached_property
    def kinds(self) -> tuple[Input, ...]:
        """The inputs, in order."""
        return tuple(
            input_from(name, given, log=name in self.log, integer=name in self.integer)
            for name, given in self.bounds.items()
        )

    def to_dict(self) -> dict[str, Any]:
        """The space as plain data."""
        bounds = [
            [name, list(given)] if isinstance(given, list) else [name, *map(float, given)]
            for name, given in self.bounds.items()
        ]
        plain = {"kind": "box", "bounds": bounds, "log": list(self.log), "units": dict(self.units)}
        return {**plain, "integer": list(self.integer)} if self.integer else plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Box:
        """The box whose `to_dict` returned this."""
        bounds = {
            name: tuple(rest) if len(rest) == 2 else rest[0] for name, *rest in plain["bounds"]
        }
        return cls(bounds, plain["log"], plain["units"], plain.get("integer", ()))
