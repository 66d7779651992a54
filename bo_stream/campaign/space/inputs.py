"""The kinds of inputs: a range, a finite set of numbers, and categories.

Every kind has three forms. Users see *labels*: numbers in their units, and the names of categories.
Stores keep *values*: the same numbers, and the position of a category in its list. Surrogates are
given *coordinates*: values, or their logarithms.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bo_stream.campaign.names import folded
from bo_stream.campaign.space.columns import TRUTHS, column, numbers, told_apart
from bo_stream.errors import BoundsError, InputError, UnsupportedError

__all__ = ["Category", "Input", "Levels", "Range", "input_from"]

SEARCHED = 10_000
"""Largest number of values of an integer input that a search distinguishes."""

CLOSE = 1e-9
"""Relative difference below which a number is one of the allowed ones: a file may drop digits."""

DIGITS = 4.0 * float(np.finfo(np.float64).eps)
"""Relative difference of numbers that rounding in double precision makes."""


class Numeric(ABC):
    """What a range and a finite set of numbers share.

    Attributes:
        name: Name of the input.
        log: Whether the scale is logarithmic.
    """

    name: str
    log: bool

    @property
    @abstractmethod
    def ends(self) -> tuple[float, float]:
        """Smallest and largest value."""

    def read(self, frame: pd.DataFrame) -> np.ndarray:
        """Values in a user's frame.

        Raises:
            InputError: for a missing column, or values that are not finite numbers.
        """
        return numbers(frame, self.name)

    def settled(self, values: np.ndarray) -> np.ndarray:
        """The values, of which those that only rounding took beyond a bound are on it.

        Raises:
            BoundsError: naming the first value outside the bounds.
        """
        low, high = self.ends
        width = high - low
        below, above = (CLOSE * (abs(end) if self.log else width) for end in self.ends)
        least, most = low - max(below, DIGITS * abs(low)), high + max(above, DIGITS * abs(high))
        outside = (values < least) | (values > most)
        if outside.any():
            ends_and_value = told_apart(low, high, values[outside][0])
            raise BoundsError(
                f"{self.name!r} between {ends_and_value[0]} and {ends_and_value[1]}",
                ends_and_value[2],
                "Give inputs inside the bounds, in their units.",
            )
        return np.clip(values, low, high)

    def _on_scale(self, values: np.ndarray) -> np.ndarray:
        return np.log(values) if self.log else values

    def _off_scale(self, coordinates: np.ndarray) -> np.ndarray:
        return np.exp(coordinates) if self.log else coordinates


@dataclass(frozen=True)
class Range(Numeric):
    """A continuous input between two bounds.

    Attributes:
        name: Its name.
        low: Lower bound, in the user's units.
        high: Upper bound.
        log: Whether the scale is logarithmic.
    """

    name: str
    low: float
    high: float
    log: bool = False

    choices = None
    """Coordinates of the allowed values; None: all between the bounds."""

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return self.low, self.high

    def coordinates(self, values: np.ndarray) -> np.ndarray:
        """Coordinates of values."""
        return self._on_scale(values)

    def values(self, coordinates: np.ndarray) -> np.ndarray:
        """Values of coordinates, clipped to the bounds."""
        return np.clip(self._off_scale(coordinates), self.low, self.high)

    def labels(self, values: np.ndarray) -> np.ndarray:
        """What users see of values."""
        return values

    def contains(self, other: Input) -> bool:
        """Whether it allows all values of another input."""
        low, high = other.ends
        return isinstance(other, Range) and self.low <= low and high <= self.high

    def described(self) -> str:
        """The range, and its scale, in words."""
        return f"{self.low:g} to {self.high:g}{_scale(self.log)}"


@dataclass(frozen=True)
class Levels(Numeric):
    """A numeric input with finitely many values: integers, or values in a list.

    Attributes:
        name: Its name.
        allowed: The values, sorted.
        log: Whether the scale is logarithmic.
        integers: Whether they are all the integers between the first and the last.
    """

    name: str
    allowed: Sequence[float]
    log: bool = False
    integers: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return float(self.allowed[0]), float(self.allowed[-1])

    @property
    def whole(self) -> bool:
        """Whether all values are integers."""
        return self.integers or all(float(value).is_integer() for value in self.allowed)

    @cached_property
    def _numbers(self) -> np.ndarray:
        return np.asarray(self.allowed, dtype=np.float64)

    @cached_property
    def choices(self) -> np.ndarray:
        """Coordinates of the values that are searched; of very many integers, evenly spread."""
        if len(self.allowed) <= SEARCHED:
            return self._on_scale(self._numbers)
        low, high = self._on_scale(np.array(self.ends))
        spread = np.rint(self._off_scale(np.linspace(low, high, SEARCHED)))
        return self._on_scale(np.unique(np.clip(spread, *self.ends)))

    def coordinates(self, values: np.ndarray) -> np.ndarray:
        """Coordinates of values: the very numbers in `choices`."""
        if len(self.allowed) > SEARCHED:
            return self._on_scale(values)
        return np.asarray(self.choices[_nearest(self._numbers, values)])

    def values(self, coordinates: np.ndarray) -> np.ndarray:
        """Values of coordinates, which rounding may have moved off them."""
        if self.integers:
            return np.clip(np.rint(self._off_scale(coordinates)), *self.ends)
        return np.asarray(self._numbers[_nearest(self.choices, coordinates)])

    def settled(self, values: np.ndarray) -> np.ndarray:
        """The allowed values that these are, up to rounding.

        Raises:
            BoundsError: for a value outside the bounds.
            InputError: for one between allowed values.
        """
        values = super().settled(values)
        if self.integers:
            nearest = np.rint(values)
        else:
            nearest = self._numbers[np.abs(values[:, None] - self._numbers).argmin(1)]
        slack = DIGITS * (self.ends[1] - self.ends[0])
        off = np.abs(values - nearest) > np.maximum(CLOSE * np.abs(values), slack)
        if off.any():
            listed = "an integer" if self.integers else f"one of {_listed(self.allowed)}"
            got = told_apart(values[off][0], nearest[off][0])[0]
            raise InputError(f"{self.name!r}, {listed}", got, "Give an allowed value.")
        return np.asarray(nearest)

    def labels(self, values: np.ndarray) -> np.ndarray:
        """What users see of values: integers where all are."""
        return values.astype(np.int64) if self.whole else values

    def contains(self, other: Input) -> bool:
        """Whether it allows all values of another input."""
        if not isinstance(other, Levels) or self.integers != other.integers:
            return False
        low, high = other.ends
        inside = self.ends[0] <= low and high <= self.ends[1]
        return inside if self.integers else set(self.allowed) >= set(other.allowed)

    def described(self) -> str:
        """The values, and their scale, in words."""
        if self.integers:
            return f"integers, {self.ends[0]:.0f} to {self.ends[1]:.0f}{_scale(self.log)}"
        return f"{_listed(self.allowed)}{_scale(self.log)}"


@dataclass(frozen=True)
class Category:
    """An input without order: one of several texts, or true and false.

    Attributes:
        name: Its name.
        allowed: Its labels; a value is the position of its label.
    """

    name: str
    allowed: Sequence[str | bool]

    log = False

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return 0.0, len(self.allowed) - 1.0

    @property
    def choices(self) -> np.ndarray:
        """Coordinates of all labels."""
        return np.arange(len(self.allowed), dtype=np.float64)

    def coordinates(self, values: np.ndarray) -> np.ndarray:
        """Coordinates of values."""
        return np.asarray(values, dtype=np.float64)

    def values(self, coordinates: np.ndarray) -> np.ndarray:
        """Values of coordinates, which rounding may have moved off them."""
        return np.clip(np.rint(coordinates), *self.ends)

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
        if cell is None or cell is pd.NA:
            return None
        if isinstance(self.allowed[0], bool):
            truth = TRUTHS.get(str(cell).strip().casefold().removesuffix(".0"))
            return None if truth is None else self.allowed.index(bool(truth))
        cell = str(cell) if isinstance(cell, bool | np.bool_) else cell
        for form in (folded, _in_small_letters) if isinstance(cell, str) else (_as_number,):
            same = [i for i, label in enumerate(self.allowed) if form(label) == form(cell)]
            if same:
                return same[0] if len(same) == 1 else None
        return None

    def settled(self, values: np.ndarray) -> np.ndarray:
        """The values; all that can be read are allowed."""
        return values

    def labels(self, values: np.ndarray) -> Any:
        """What users see of values."""
        labels = [self.allowed[int(value)] for value in values]
        return pd.Series(labels, dtype=type(self.allowed[0])).array

    def contains(self, other: Input) -> bool:
        """Whether it allows all values of another input, and they mean the same labels."""
        known = len(other.allowed) if isinstance(other, Category) else 0
        return known > 0 and tuple(self.allowed[:known]) == tuple(other.allowed)  # type: ignore[union-attr]

    def described(self) -> str:
        """The labels, in words."""
        return _listed(self.allowed)


Input = Range | Levels | Category


def input_from(name: str, given: Any, *, log: bool, integer: bool) -> Input:
    """An input as users describe it.

    Args:
        name: Its name.
        given: Lower and upper bound, or a list of numbers, of texts, or of booleans.
        log: Whether it is on a logarithmic scale.
        integer: Whether a range has integers only.

    Raises:
        InputError: for bounds or values that cannot be.
        UnsupportedError: for anything else.
    """
    if isinstance(given, str | set | dict):
        raise UnsupportedError(
            f"a lower and an upper bound, or a list of values, for {name!r}",
            repr(given),
            "Give the bounds as (low, high), or the values as a list.",
        )
    if isinstance(given, list):
        return _listed_input(name, given, log=log, integer=integer)
    try:
        low, high = (float(bound) for bound in given)
        if any(isinstance(bound, bool | np.bool_ | str) for bound in given):
            raise TypeError
    except (TypeError, ValueError, OverflowError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(
            f"two finite bounds for {name!r}, the lower one first",
            repr(given),
            "Correct them, or give a list of all values.",
        )
    _check_positive(name, (low, high), log)
    if not integer:
        return Range(name, low, high, log)
    if not (low.is_integer() and high.is_integer()):
        raise InputError(f"integer bounds for {name!r}", repr(given), "Round them.")
    return Levels(name, range(int(low), int(high) + 1), log, integers=True)


def _listed_input(name: str, given: list[Any], *, log: bool, integer: bool) -> Input:
    plain = [value.item() if isinstance(value, np.generic) else value for value in given]
    kinds = {_kind(value) for value in plain}
    if len(kinds) != 1 or None in kinds or len(plain) < 2 or len(set(plain)) < len(plain):
        raise InputError(
            f"a list of at least two different values for {name!r}, all of them finite numbers, "
            "texts or booleans",
            repr(given),
            "Correct it. Bounds of a range are a pair: (low, high).",
        )
    if integer:
        raise InputError(
            f"integer bounds for {name!r}",
            repr(given),
            "A list names all values already: leave the input out of integer.",
        )
    if kinds == {float}:
        _check_positive(name, plain, log)
        return Levels(name, tuple(sorted(plain)), log)
    if log:
        raise InputError(
            f"numbers for {name!r}, which is on a logarithmic scale",
            repr(given),
            "Leave the input out of log.",
        )
    return Category(name, tuple(plain))


def _kind(value: Any) -> type | None:
    if isinstance(value, bool):
        return bool
    if isinstance(value, str):
        return str if value.strip() else None
    return float if isinstance(value, int | float) and math.isfinite(value) else None


def _check_positive(name: str, values: Sequence[float], log: bool) -> None:
    if log and min(values) <= 0.0:
        raise InputError(
            f"positive values of {name!r}, which is on a logarithmic scale",
            f"{min(values):g}",
            "Raise the lower bound, or leave the input out of log.",
        )


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


def _scale(log: bool) -> str:
    return ", on a logarithmic scale" if log else ""


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
