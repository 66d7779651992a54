"""The rows of a table as places that can be measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_stream.campaign.names import check_names, in_spelling, listed_names
from bo_stream.campaign.space.base import SpaceOfInputs
from bo_stream.campaign.space.columns import column, numbers
from bo_stream.campaign.space.inputs import CLOSE, Category, Input, Range
from bo_stream.errors import InputError

__all__ = ["Pool"]


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
    def kinds(self) -> tuple[Input, ...]:
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
            "places": [_plain(label) for label in self.table.index],
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
            table[name] = Category(name, labels).labels(table[name].to_numpy())
        return cls(table, plain["names"], plain["repeats"], plain["units"])


def _input(table: pd.DataFrame, name: str) -> Input:
    """The kind of a column."""
    given = column(table, name)
    if all(isinstance(value, str | bool | np.bool_) for value in given):
        return Category(name, tuple(_plain(label) for label in sorted(given.unique())))
    values = numbers(table, name)
    return Range(name, float(values.min()), float(values.max()))


def _plain(label: Any) -> Any:
    """An index label as plain data."""
    return label.item() if isinstance(label, np.generic) else label
