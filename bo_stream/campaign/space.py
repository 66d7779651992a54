"""Where a campaign may measure: a box of named inputs, or the rows of a table.

Users give inputs in their own units as pandas frames. Surrogates are given tensors, in which an
input on a logarithmic scale is replaced by its logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_stream.errors import BoundsError, InputError, UnsupportedError

__all__ = ["RESERVED", "Box", "Pool", "Space", "numbers", "space_from_dict"]

RESERVED = ("trial", "y", "yvar", "status", "reason", "ask", "place", "mean", "sd")
"""Names of columns that a campaign itself uses."""


@dataclass(frozen=True)
class Box:
    """Named continuous inputs between bounds.

    Args:
        bounds: Lower and upper bound of each input, by name, in the user's units.
        log: Inputs on a logarithmic scale; their bounds have to be positive.
        units: Units by name, for labels.

    Raises:
        InputError: for invalid names, bounds or scales.

    Example:
        >>> box = Box({"pressure": (1.0, 10.0), "rate": (1e-4, 0.1)}, log=["rate"])
        >>> box.names
        ('pressure', 'rate')
    """

    bounds: Mapping[str, tuple[float, float]]
    log: Sequence[str] = ()
    units: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, pair in self.bounds.items():
            _check_bounds(name, pair)
        plain = {name: (float(low), float(high)) for name, (low, high) in self.bounds.items()}
        object.__setattr__(self, "bounds", plain)
        object.__setattr__(self, "log", tuple(self.log))
        object.__setattr__(self, "units", dict(self.units))
        _check_names(self.names, self.log, self.units)
        for name in self.log:
            if self.bounds[name][0] <= 0.0:
                raise InputError(
                    f"positive bounds for {name!r}, which is on a logarithmic scale",
                    f"{self.bounds[name]}",
                    "Raise the lower bound, or leave the input out of log.",
                )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs, in order."""
        return tuple(self.bounds)

    @property
    def dim(self) -> int:
        """Number of inputs."""
        return len(self.bounds)

    @property
    def tensor_bounds(self) -> Tensor:
        """Bounds, ``2 x d``, as logarithms where the scale is logarithmic."""
        return self.encode(np.array(list(self.bounds.values())).T)

    def encode(self, values: np.ndarray) -> Tensor:
        """Points ``n x d`` from rows of inputs in the user's units."""
        X = np.array(values, dtype=np.float64).reshape(-1, self.dim)
        for i, name in enumerate(self.names):
            if name in self.log:
                X[:, i] = np.log(X[:, i])
        return torch.from_numpy(X)

    def decode(self, X: Tensor) -> np.ndarray:
        """Rows of inputs in the user's units, clipped to the bounds, from points."""
        values = X.detach().cpu().double().numpy().copy()
        for i, (name, (low, high)) in enumerate(self.bounds.items()):
            column = np.exp(values[:, i]) if name in self.log else values[:, i]
            values[:, i] = np.clip(column, low, high)
        return values

    def values(self, frame: pd.DataFrame) -> np.ndarray:
        """Inputs of a frame in the user's units, ``n x d``.

        Raises:
            InputError: for missing columns, or values that are not finite numbers.
            BoundsError: for inputs outside the bounds.
        """
        columns = [numbers(frame, name) for name in self.names]
        values = np.stack(columns, -1) if columns else np.empty((len(frame), 0))
        for i, (name, (low, high)) in enumerate(self.bounds.items()):
            outside = (values[:, i] < low) | (values[:, i] > high)
            if outside.any():
                raise BoundsError(
                    f"{name!r} between {low:g} and {high:g}",
                    f"{values[outside, i][0]:g}",
                    "Give inputs inside the bounds, in their units.",
                )
        return values

    def to_dict(self) -> dict[str, Any]:
        """The space as plain data."""
        return {
            "kind": "box",
            "bounds": [[name, *pair] for name, pair in self.bounds.items()],
            "log": list(self.log),
            "units": dict(self.units),
        }


@dataclass(frozen=True)
class Pool:
    """Places that can be measured, given as rows of a table.

    Args:
        table: One row per place. Its index names the places and has no duplicates.
        inputs: Columns with the inputs; by default all numeric columns.
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
        inputs = self.inputs
        if inputs is None:
            inputs = [str(c) for c in self.table.select_dtypes("number").columns]
        object.__setattr__(self, "inputs", tuple(inputs))
        object.__setattr__(self, "units", dict(self.units))
        _check_names(self.names, (), self.units)
        if len(self.table) < 2 or not self.table.index.is_unique:
            raise InputError(
                "a table of at least two rows whose index has no duplicates",
                f"{len(self.table)} rows with {self.table.index.nunique()} index values",
                "Use reset_index(), or drop duplicates.",
            )
        values = np.stack([numbers(self.table, name) for name in self.names], -1)
        object.__setattr__(self, "_values", values)
        for name, column in zip(self.names, values.T, strict=True):
            if column.min() == column.max():
                raise InputError(
                    f"places that differ in {name!r}",
                    f"{column[0]:g} for all",
                    "Leave that column out.",
                )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs, in order."""
        return tuple(cast("Sequence[str]", self.inputs))

    @property
    def dim(self) -> int:
        """Number of inputs."""
        return len(self.names)

    @property
    def points(self) -> Tensor:
        """All places as points, ``N x d``."""
        return torch.from_numpy(self.place_values.copy())

    @property
    def place_values(self) -> np.ndarray:
        """Inputs of all places, ``N x d``."""
        return cast(np.ndarray, self._values)  # type: ignore[attr-defined]

    @property
    def tensor_bounds(self) -> Tensor:
        """Bounds of the smallest box around all places, ``2 x d``."""
        return torch.stack([self.points.amin(0), self.points.amax(0)])

    def encode(self, values: np.ndarray) -> Tensor:
        """Points ``n x d`` from rows of inputs."""
        return torch.from_numpy(np.array(values, dtype=np.float64).reshape(-1, self.dim))

    def values(self, frame: pd.DataFrame) -> np.ndarray:
        """Inputs of a frame, ``n x d``.

        Raises:
            InputError, BoundsError: for invalid columns or inputs.
        """
        low, high = self.place_values.min(0), self.place_values.max(0)
        box = Box(dict(zip(self.names, zip(low, high, strict=True), strict=True)))
        return box.values(frame)

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
            found = np.array([rows.get(tuple(row), -1) for row in values], dtype=int)
            unknown = [str(tuple(row)) for row, i in zip(values, found, strict=True) if i < 0]
        if unknown:
            raise InputError(
                "places of the pool", ", ".join(unknown[:5]), "Use the names in the table's index."
            )
        return [int(i) for i in found]

    def to_dict(self) -> dict[str, Any]:
        """The space as plain data."""
        return {
            "kind": "pool",
            "names": list(self.names),
            "values": self.place_values.tolist(),
            "places": [_plain(label) for label in self.table.index],
            "repeats": self.repeats,
            "units": dict(self.units),
        }


Space = Box | Pool


def space_from_dict(to_dict: Mapping[str, Any]) -> Space:
    """The space whose `to_dict` returned this plain data."""
    if to_dict["kind"] == "box":
        bounds = {name: (low, high) for name, low, high in to_dict["bounds"]}
        return Box(bounds, to_dict["log"], to_dict["units"])
    values = np.array(to_dict["values"], dtype=np.float64)
    table = pd.DataFrame(values, pd.Index(to_dict["places"]), to_dict["names"])
    return Pool(table, to_dict["names"], to_dict["repeats"], to_dict["units"])


def numbers(frame: pd.DataFrame, name: str) -> np.ndarray:
    """A column of finite numbers.

    Raises:
        InputError: if it is missing, or has other values.
    """
    if name not in frame:
        raise InputError(
            f"a column {name!r}",
            f"columns {', '.join(map(str, frame.columns)) or 'none'}",
            "Add it, or rename the column that has these values.",
        )
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise InputError(f"one column {name!r}", "several", "Drop the duplicates.")
    if column.dtype.kind not in "iuf":
        try:
            values = column.map(_number).to_numpy(np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"numbers in column {name!r}",
                f"{error}",
                "Convert the other values or leave them out.",
            ) from error
    else:
        values = column.to_numpy(np.float64)
    if not np.isfinite(values).all():
        row = frame.index[~np.isfinite(values)][0]
        raise InputError(
            f"finite numbers in column {name!r}",
            f"{column[~np.isfinite(values)].iloc[0]} in row {row}",
            "Fill in the value or leave out the row. If a trial gave none, use fail(ids, reason).",
        )
    return cast(np.ndarray, values)


def _number(value: Any) -> float:
    if isinstance(value, bool | str) or value is None:
        raise ValueError(repr(value))
    return float(value)


def _plain(label: Any) -> Any:
    """An index label as plain data."""
    return label.item() if isinstance(label, np.generic) else label


def _check_bounds(name: str, pair: Any) -> None:
    if isinstance(pair, str | list | set) and not (isinstance(pair, list) and len(pair) == 2):
        raise UnsupportedError(
            f"a lower and an upper bound for {name!r}",
            repr(pair),
            "Only continuous inputs are supported: run one campaign per category, or number them.",
        )
    try:
        low, high = (float(bound) for bound in pair)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(
            f"two finite bounds for {name!r}, the lower one first", repr(pair), "Correct them."
        )


def _check_names(names: Iterable[str], log: Sequence[str], units: Mapping[str, str]) -> None:
    names = list(names)
    if not names or len(set(names)) < len(names):
        raise InputError(
            "at least one input, with different names", f"{names}", "Correct the names."
        )
    reserved = [n for n in names if n in RESERVED or not isinstance(n, str) or not n.strip()]
    if reserved:
        raise InputError(
            f"names of inputs other than {', '.join(RESERVED)}", f"{reserved}", "Rename these."
        )
    unknown = [name for name in (*log, *units) if name not in names]
    if unknown:
        raise InputError(f"names among {', '.join(names)}", f"{unknown}", "Correct the spelling.")
