"""Where a campaign may measure: a box of named inputs, or the rows of a table.

Every kind of input has three forms. Users see *labels*: numbers in their units, and the names of
categories. Stores keep *values*: the same numbers, and the position of a category in its list.
Surrogates are given *coordinates*: values, or their logarithms.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype

from bo_stream.campaign.names import (
    TRUTHS,
    check_names,
    column,
    folded,
    in_spelling,
    listed_names,
    numbers,
    spelled,
)
from bo_stream.errors import BoundsError, InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Box",
    "Category",
    "Pool",
    "Range",
    "Space",
    "SpaceOfInputs",
    "space_from_dict",
]

SEARCHED = 10_000
"""Largest number of values of an integer input that a search distinguishes."""

CLOSE = 1e-9
"""Relative difference below which a number is one of the allowed ones: a file may drop digits."""

DIGITS = 4.0 * float(np.finfo(np.float64).eps)
"""Relative difference of numbers that rounding in double precision makes."""


@dataclass(frozen=True)
class Range:
    """A continuous input between two bounds, and the base of the other kinds.

    Attributes:
        name: Its name.
        low: Smallest value, in the user's units.
        high: Largest value.
        log: Whether the scale is logarithmic.
    """

    name: str
    low: float
    high: float
    log: bool = False

    @cached_property
    def choices(self) -> np.ndarray | None:
        """Coordinates of the allowed values that are searched; None: all between the bounds."""
        return None

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return self.low, self.high

    def read(self, frame: pd.DataFrame) -> np.ndarray:
        """Values in a user's frame, which need not be allowed.

        Raises:
            InputError: for a missing column, or values that are not finite numbers.
        """
        return numbers(frame, self.name)

    def settled(self, values: np.ndarray) -> np.ndarray:
        """The allowed values that these are, up to rounding.

        Raises:
            BoundsError: naming the first value outside the bounds.
        """
        ends = np.array(self.ends)
        scale = np.abs(ends) if self.log else np.ptp(ends)
        low, high = ends + np.array([-1.0, 1.0]) * np.maximum(CLOSE * scale, DIGITS * np.abs(ends))
        outside = (values < low) | (values > high)
        if outside.any():
            raise BoundsError(
                f"{self.name!r} between {ends[0]:.12g} and {ends[1]:.12g}",
                f"{values[outside][0]:.12g}",
                "Give inputs inside the bounds, in their units.",
            )
        return np.clip(values, *self.ends)

    def coordinates(self, values: np.ndarray) -> np.ndarray:
        """Coordinates of values."""
        return np.log(values) if self.log else values

    def values(self, coordinates: np.ndarray) -> np.ndarray:
        """Values of coordinates, clipped to the bounds."""
        return np.clip(np.exp(coordinates) if self.log else coordinates, self.low, self.high)

    def labels(self, values: np.ndarray) -> np.ndarray:
        """What users see of values."""
        return values

    def contains(self, other: Range) -> bool:
        """Whether it allows all values of another input, and they mean the same."""
        return type(other) is type(self) and self.low <= other.low and other.high <= self.high

    def described(self) -> str:
        """The values, and their scale, in words."""
        return f"{self.low:.12g} to {self.high:.12g}{_scale(self)}"


@dataclass(frozen=True)
class Integers(Range):
    """All integers between two bounds; its searches distinguish at most `SEARCHED` of them."""

    @cached_property
    def choices(self) -> np.ndarray:
        """Coordinates of the values that are searched; of very many, evenly spread."""
        if self.high - self.low < SEARCHED:
            return super().coordinates(np.arange(self.low, self.high + 1.0))
        low, high = super().coordinates(np.array(self.ends))
        return super().coordinates(np.unique(self.values(np.linspace(low, high, SEARCHED))))

    def settled(self, values: np.ndarray) -> np.ndarray:
        """The integers that these are, up to rounding."""
        values = super().settled(values)
        return _allowed(self, values, np.rint(values), "an integer")

    def coordinates(self, values: np.ndarray) -> np.ndarray:
        """Coordinates of values: the very numbers in `choices`, unless they are very many."""
        if self.high - self.low < SEARCHED:
            places = np.rint(np.clip(values, *self.ends) - self.low)
            return np.asarray(self.choices[places.astype(np.int64)])
        return super().coordinates(values)

    def values(self, coordinates: np.ndarray) -> np.ndarray:
        """Values of coordinates, which rounding may have moved off them."""
        return np.rint(super().values(coordinates))

    def labels(self, values: np.ndarray) -> np.ndarray:
        """What users see of values: integers."""
        return values.astype(np.int64)

    def described(self) -> str:
        """The values, and their scale, in words."""
        return f"integers, {super().described()}"


@dataclass(frozen=True)
class Levels(Range):
    """Numbers in a list.

    Attributes:
        allowed: The values, sorted.
    """

    allowed: Sequence[Any] = ()

    @cached_property
    def choices(self) -> np.ndarray:
        """Coordinates of all values."""
        return super().coordinates(self._numbers)

    @cached_property
    def _numbers(self) -> np.ndarray:
        return np.array(self.allowed, dtype=np.float64)

    def settled(self, values: np.ndarray) -> np.ndarray:
        """The allowed values that these are, up to rounding."""
        values = super().settled(values)
        nearest = self._numbers[np.abs(values[:, None] - self._numbers).argmin(1)]
        return _allowed(self, values, nearest, f"one of {_listed(self.allowed)}")

    def coordinates(self, values: np.ndarray) -> np.ndarray:
        """Coordinates of values: the very numbers in `choices`."""
        return np.asarray(self.choices[_nearest(self._numbers, values)])

    def values(self, coordinates: np.ndarray) -> np.ndarray:
        """Values of coordinates, which rounding may have moved off them."""
        return np.asarray(self._numbers[_nearest(self.choices, coordinates)])

    def labels(self, values: np.ndarray) -> np.ndarray:
        """What users see of values: integers where all are."""
        return values if (self._numbers % 1.0).any() else values.astype(np.int64)

    def contains(self, other: Range) -> bool:
        """Whether it allows all values of another input."""
        return isinstance(other, Levels) and set(self.allowed) >= set(other.allowed)

    def described(self) -> str:
        """The values, and their scale, in words."""
        return f"{_listed(self.allowed)}{_scale(self)}"


@dataclass(frozen=True)
class Category(Levels):
    """An input without order: one of several texts, or true and false.

    Attributes:
        allowed: Its labels; a value is the position of its label.
    """

    @cached_property
    def _numbers(self) -> np.ndarray:
        return np.arange(len(self.allowed), dtype=np.float64)

    def read(self, frame: pd.DataFrame) -> np.ndarray:
        """Values in a user's frame.

        Labels are recognised in another spelling (capitals, look-alike letters, a number for a text
        of digits), if it can be that of one label only.

        Raises:
            InputError: for a missing column or an unknown label.
        """
        given = column(frame, self.name)
        places = {label: place for place, label in enumerate(self.allowed)}
        found = [
            places[c] if isinstance(c, Hashable) and c in places else self._resembling(c)
            for c in given
        ]
        if None in found:
            cell, row = given.iloc[found.index(None)], frame.index[found.index(None)]
            as_text = "Read labels as text: pd.read_csv(..., dtype=str, keep_default_na=False)."
            raise InputError(
                f"{self.name!r}, one of {_listed(self.allowed)}",
                f"{cell!r} in row {row}",
                "Correct the spelling." if isinstance(cell, str) else as_text,
            )
        return np.array(found, dtype=np.float64)

    def _resembling(self, cell: Any) -> int | None:
        """The position of the only label that a cell may be; None if there is none, or several."""
        if cell is pd.NA:
            return None
        if isinstance(self.allowed[0], bool):
            truth = TRUTHS.get(str(cell).strip().casefold().removesuffix(".0"))
            return None if truth is None else self.allowed.index(bool(truth))
        cell = str(cell) if isinstance(cell, bool | np.bool_) else cell
        form = _in_small_letters if isinstance(cell, str) else _as_number
        same = [i for i, label in enumerate(self.allowed) if form(label) == form(cell)]
        return same[0] if len(same) == 1 else None

    def labels(self, values: np.ndarray) -> Any:
        """What users see of values."""
        labels = [self.allowed[int(value)] for value in values]
        return pd.Series(labels, dtype=type(self.allowed[0])).array

    def contains(self, other: Range) -> bool:
        """Whether it allows all values of another input, and they mean the same labels."""
        known = tuple(other.allowed) if isinstance(other, Category) else None
        return known is not None and tuple(self.allowed[: len(known)]) == known


def category(name: str, labels: Sequence[str | bool]) -> Category:
    """The category with these labels."""
    return Category(name, 0.0, len(labels) - 1.0, allowed=labels)


def input_from(name: str, given: Any, *, log: bool, integer: bool) -> Range:
    """An input as users describe it.

    Args:
        name: Its name.
        given: Lower and upper bound, or a list of numbers, of texts, or of booleans.
        log: Whether it is on a logarithmic scale.
        integer: Whether a range has integers only.

    Raises:
        InputError: for bounds or values that cannot be.
    """
    if isinstance(given, list):
        return _listed_input(name, given, log=log, integer=integer)
    try:
        low, high = (float(bound) for bound in given)
        if isinstance(given, set | dict) or any(
            isinstance(bound, bool | np.bool_ | str) for bound in given
        ):
            raise TypeError
    except (TypeError, ValueError, OverflowError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(
            f"two finite bounds for {name!r}, the lower one first",
            repr(given),
            "Correct them, or give a list of all values.",
        )
    _check_positive(name, low, log)
    if not integer:
        return Range(name, low, high, log)
    if not (low.is_integer() and high.is_integer()):
        raise InputError(f"integer bounds for {name!r}", repr(given), "Round them.")
    return Integers(name, low, high, log)


def _listed_input(name: str, given: list[Any], *, log: bool, integer: bool) -> Range:
    plain = [value.item() if isinstance(value, np.generic) else value for value in given]
    kind = infer_dtype(plain, skipna=False)
    numeric = kind in ("integer", "floating", "mixed-integer-float")
    known = numeric and np.isfinite(plain).all() or kind == "boolean"
    known = known or (kind == "string" and all(text.strip() for text in plain))
    if not known or len(plain) < 2 or len(set(plain)) < len(plain):
        raise InputError(
            f"a list of at least two different values for {name!r}, all of them finite numbers, "
            "texts or booleans",
            repr(given),
            "Correct it. Bounds of a range are a pair: (low, high).",
        )
    if integer or (log and not numeric):
        option = "integer" if integer else "log"
        raise InputError(
            f"a range for {name!r}, which is in {option}",
            repr(given),
            f"A list names all values already: leave the input out of {option}.",
        )
    if not numeric:
        return category(name, tuple(plain))
    _check_positive(name, min(plain), log)
    return Levels(name, float(min(plain)), float(max(plain)), log, tuple(sorted(plain)))


def _check_positive(name: str, low: float, log: bool) -> None:
    if log and low <= 0.0:
        raise InputError(
            f"positive values of {name!r}, which is on a logarithmic scale",
            f"{low:g}",
            "Raise the lower bound, or leave the input out of log.",
        )


def _allowed(kind: Range, values: np.ndarray, nearest: np.ndarray, what: str) -> np.ndarray:
    """The nearest allowed values.

    Raises:
        InputError: if a value is none of them, up to rounding.
    """
    off = np.abs(values - nearest) > np.maximum(
        CLOSE * np.abs(values), DIGITS * (kind.high - kind.low)
    )
    if off.any():
        got = f"{values[off][0]:.12g}"
        raise InputError(f"{kind.name!r}, {what}", got, "Give an allowed value.")
    return nearest


def _nearest(points: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Indices of the nearest of sorted points."""
    return np.searchsorted(0.5 * (points[1:] + points[:-1]), values)


def _in_small_letters(label: Any) -> str:
    return str(folded(label)).casefold()


def _as_number(label: Any) -> Any:
    """A label as a number if it is one."""
    try:
        return float(label)
    except (TypeError, ValueError):
        return label


def _scale(kind: Range) -> str:
    return ", on a logarithmic scale" if kind.log else ""


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)


# -- spaces ----------------------------------------------------------------------------------------


class SpaceOfInputs(ABC):
    """A space of named inputs."""

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
        return all(one.choices is None for one in self.kinds)

    @property
    def tensor_bounds(self) -> Tensor:
        """Smallest and largest coordinates, ``2 x d``."""
        return self.encode(np.array([one.ends for one in self.kinds]).T)

    def encode(self, values: np.ndarray) -> Tensor:
        """Points ``n x d`` from rows of values."""
        import torch

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
        given, units = _by_name(self.bounds, "bounds"), _by_name(self.units, "units")
        named: dict[str, Any] = {"units": {spelled(name, given): units[name] for name in units}}
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
        numeric = in_spelling(self.table, ()).select_dtypes("number").columns
        inputs = listed_names(numeric if self.inputs is None else self.inputs, "inputs")
        units = _by_name(self.units, "units")
        check_names(inputs, {"units": units})
        table, index = in_spelling(self.table, inputs), self.table.index
        for part, value in {"table": table, "inputs": inputs, "units": units}.items():
            object.__setattr__(self, part, value)
        if len(index) < 2 or not index.is_unique or index.nlevels > 1 or index.hasnans:
            raise InputError(
                "a table of two rows or more, whose index has a name for every place, each another",
                f"{len(index)} rows with {index.nunique()} names, in {index.nlevels} levels",
                "Use reset_index(), or drop duplicates.",
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
        return self.encode(self.place_values)

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
            wanted = frame["place"].tolist()
            found = self.table.index.get_indexer(pd.Index(frame["place"])).tolist()
        else:
            rows = {tuple(row): i for i, row in reversed(list(enumerate(self.place_values)))}
            wanted = [tuple(row) for row in self.values(frame).tolist()]
            found = [rows[row] if row in rows else self._nearest(row) for row in wanted]
        unknown = [str(place) for place, i in zip(wanted, found, strict=True) if i < 0]
        if unknown:
            raise InputError(
                "places of the pool", ", ".join(unknown[:5]), "Use the names in the table's index."
            )
        return found

    def _nearest(self, row: tuple[float, ...]) -> int:
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
    return (Box if to_dict["kind"] == "box" else Pool).from_dict(to_dict)


def _input(table: pd.DataFrame, name: str) -> Range:
    """The kind of a column."""
    given = column(table, name).infer_objects()
    if all(isinstance(value, str | bool | np.bool_) for value in given):
        return category(name, sorted(given.unique().tolist()))
    values = numbers(table, name)
    return Range(name, float(values.min()), float(values.max()))


def _by_name(given: Any, part: str) -> dict[str, Any]:
    """What is given of inputs by their names."""
    if not isinstance(given, Mapping):
        raise InputError(f"{part} by the names of inputs", repr(given), "Give a dict of them.")
    return dict(given)
