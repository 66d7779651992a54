"""Where a campaign may measure: a box of named inputs, or the rows of a table.

Users give inputs in their own units and labels as pandas frames; surrogates are given tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_stream.campaign.names import check_names, in_spelling, listed_names, spelled
from bo_stream.campaign.space.columns import column, numbers
from bo_stream.campaign.space.inputs import CLOSE, Category, Range, category, input_from
from bo_stream.errors import InputError
from bo_stream.mathematics.autograd import lasting_property

__all__ = ["Box", "Pool", "Space", "SpaceOfInputs", "space_from_dict"]


class SpaceOfInputs(ABC):
    """A space of named inputs; see `bo_stream.campaign.space.inputs`."""

    @property
    @abstractmethod
    def kinds(self) -> tuple[Range, ...]:
        """The inputs, in order."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs, in order."""
        return tuple(one.name for one in self.kinds)

    @property
    def dim(self) -> int:
        """Number of inputs."""
        return len(self.kinds)

    @property
    def categories(self) -> tuple[int, ...]:
        """Indices of the categories."""
        return tuple(i for i, one in enumerate(self.kinds) if isinstance(one, Category))

    @property
    def is_continuous(self) -> bool:
        """Whether all inputs are continuous."""
        return not self.choices

    @lasting_property
    def choices(self) -> dict[int, Tensor]:
        """Coordinates of the allowed values of every input that is not continuous, by index."""
        listed = enumerate(one.choices for one in self.kinds)
        return {i: torch.from_numpy(given) for i, given in listed if given is not None}

    @property
    def tensor_bounds(self) -> Tensor:
        """Smallest and largest coordinates, ``2 x d``."""
        return self.encode(np.array([one.ends for one in self.kinds]).T)

    def encode(self, values: np.ndarray) -> Tensor:
        """Points ``n x d`` from rows of values."""
        X = np.array(values, dtype=np.float64).reshape(-1, self.dim)
        for i, one in enumerate(self.kinds):
            X[:, i] = one.coordinates(X[:, i])
        return torch.from_numpy(X)

    def decode(self, X: Tensor) -> np.ndarray:
        """Rows of values from points, clipped to the bounds."""
        values = X.detach().cpu().double().numpy().copy()
        for i, one in enumerate(self.kinds):
            values[:, i] = one.values(values[:, i])
        return values

    def values(self, frame: pd.DataFrame) -> np.ndarray:
        """The values in a user's frame, ``n x d``.

        Raises:
            InputError: for missing columns, or values that are not allowed.
            BoundsError: for inputs outside the bounds.
        """
        frame = in_spelling(frame, self.names)
        columns = [one.settled(one.read(frame)) for one in self.kinds]
        return np.stack(columns, -1)

    def labelled(self, values: np.ndarray, index: Any = None) -> pd.DataFrame:
        """A user's frame of rows of values: integers are integers, categories their labels."""
        values = np.asarray(values, dtype=np.float64).reshape(-1, self.dim)
        if self.is_continuous:  # one block of numbers
            return pd.DataFrame(values, index, list(self.names), copy=True)
        columns = {one.name: one.labels(values[:, i]) for i, one in enumerate(self.kinds)}
        return pd.DataFrame(columns, index)


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
            given[one.name] = one.ends if type(one) is Range else given[one.name]

    @cached_property
    def kinds(self) -> tuple[Range, ...]:
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


@dataclass(frozen=True)
class Pool(SpaceOfInputs):
    """Places that can be measured, given as rows of a table.

    Args:
        table: One row per place. Its index names the places and has no duplicates.
        inputs: Columns with the inputs; by default all numeric columns. Columns of texts or
            booleans are categories.
        repeats: Whether a place may be measured more than once.
        units: Units by name, for labels.

    Raises:
        InputError: for an invalid table or column.

    Example:
        >>> table = pd.DataFrame({"east": [0.0, 1.0, 2.0], "north": [1.0, 0.0, 1.0]})
        >>> Pool(table).names
        ('east', 'north')
    """

    table: pd.DataFrame
    inputs: Sequence[str] | None = None
    repeats: bool = False
    units: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.table, pd.DataFrame):
            kind = type(self.table).__name__
            raise InputError("a DataFrame with one row per place", kind, "Use pd.DataFrame(...).")
        if not isinstance(self.units, Mapping):
            raise InputError(
                "units by the names of inputs", repr(self.units), "Give {'lon': 'degrees'}."
            )
        numeric = self.table.select_dtypes("number").columns
        inputs = listed_names(numeric if self.inputs is None else self.inputs, "inputs")
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "units", dict(self.units))
        check_names(inputs, {"units": self.units})
        object.__setattr__(self, "table", in_spelling(self.table, inputs))
        if len(self.table) < 2 or not self.table.index.is_unique:
            raise InputError(
                "a table of at least two rows whose index has no duplicates",
                f"{len(self.table)} rows with {self.table.index.nunique()} index values",
                "Use reset_index(), or drop duplicates.",
            )
        levels = self.table.index.nlevels
        if levels > 1 or self.table.index.hasnans:
            raise InputError(
                "an index with one name for every place",
                f"{levels} levels" if levels > 1 else "a place without a name",
                "Use reset_index(), or give every place a name.",
            )
        for one, values in zip(self.kinds, self.place_values.T, strict=True):
            if values.min() == values.max():
                raise InputError(
                    f"places that differ in {one.name!r}",
                    f"{one.labels(values[:1])[0]} for all",
                    "Leave that column out.",
                )

    @cached_property
    def kinds(self) -> tuple[Range, ...]:
        """The inputs, in order."""
        return tuple(_input(self.table, name) for name in cast("Sequence[str]", self.inputs))

    @property
    def points(self) -> Tensor:
        """All places as points, ``N x d``."""
        return torch.from_numpy(self.place_values.copy())

    @cached_property
    def place_values(self) -> np.ndarray:
        """Values of all places, ``N x d``."""
        return np.stack([one.read(self.table) for one in self.kinds], -1)

    def places(self, frame: pd.DataFrame) -> list[int]:
        """Row numbers of the places in a frame, named in its column ``place`` or by their inputs.

        Raises:
            InputError: for places that are not in the pool.
        """
        if "place" in frame:
            found = self.table.index.get_indexer(pd.Index(frame["place"]))
            unknown = [str(p) for p, i in zip(frame["place"], found, strict=True) if i < 0]
        else:
            rows = {tuple(row): i for i, row in reversed(list(enumerate(self.place_values)))}
            values = self.values(frame)
            exact = [rows.get(tuple(row)) for row in values]
            both = zip(values, exact, strict=True)
            found = np.array([self._nearest(row) if i is None else i for row, i in both], dtype=int)
            unknown = [str(tuple(row)) for row, i in zip(values, found, strict=True) if i < 0]
        if unknown:
            raise InputError(
                "places of the pool", ", ".join(unknown[:5]), "Use the names in the table's index."
            )
        return [int(i) for i in found]

    def _nearest(self, row: np.ndarray) -> int:
        """The place whose inputs these are up to rounding; -1 if there is none."""
        widths = np.ptp(self.place_values, axis=0)
        apart = (np.abs(self.place_values - row) / widths).max(-1)
        return int(apart.argmin()) if apart.min() <= CLOSE else -1

    def to_dict(self) -> dict[str, Any]:
        """The space as plain data."""
        plain = {
            "kind": "pool",
            "names": list(self.names),
            "values": self.place_values.tolist(),
            "places": self.table.index.tolist(),
            "repeats": self.repeats,
            "units": dict(self.units),
        }
        labels = {one.name: list(one.allowed) for one in self.kinds if isinstance(one, Category)}
        return {**plain, "categories": labels} if labels else plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Pool:
        """The pool whose `to_dict` returned this."""
        values = np.array(plain["values"], dtype=np.float64)
        table = pd.DataFrame(values, pd.Index(plain["places"]), plain["names"])
        for name, labels in plain.get("categories", {}).items():
            table[name] = category(name, labels).labels(table[name].to_numpy())
        return cls(table, plain["names"], plain["repeats"], plain["units"])


Space = Box | Pool


def space_from_dict(to_dict: Mapping[str, Any]) -> Space:
    """The space whose `to_dict` returned this plain data."""
    kind = Box if to_dict["kind"] == "box" else Pool
    return kind.from_dict(to_dict)


def _input(table: pd.DataFrame, name: str) -> Range:
    """The kind of a column."""
    given = column(table, name).infer_objects()
    if all(isinstance(value, str | bool | np.bool_) for value in given):
        return category(name, sorted(given.unique().tolist()))
    values = numbers(table, name)
    return Range(name, float(values.min()), float(values.max()))
