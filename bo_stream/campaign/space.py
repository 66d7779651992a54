"""Where a campaign may measure: a box of named inputs, or the rows of a table.

Users speak in their own units and in pandas; surrogates get tensors, in which an input on a
logarithmic scale stands as its logarithm.
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

__all__ = ["RESERVED", "Box", "Pool", "Space", "numbers", "space_from"]

RESERVED = ("trial", "y", "yvar", "status", "reason", "ask", "place", "mean", "sd")
"""Names of a campaign's own columns."""


@dataclass(frozen=True)
class Box:
    """Named continuous inputs between bounds.

    Args:
        bounds: Lower and upper bound of each input, by name, in the user's units.
        log: Inputs on a logarithmic scale; their bounds are positive.
        units: Units by name, for labels.

    Raises:
        InputError: on names, bounds or scales that cannot be.

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
                    "Raise the lower bound, or leave the input on its own scale.",
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs, in order."""
        return tuple(self.bounds)

    @property
    def dim(self) -> int:
        """How many inputs."""
        return len(self.bounds)

    @property
    def tensor_bounds(self) -> Tensor:
        """``2 x d``, logarithms where the scale is logarithmic."""
        return self.encoded(np.array(list(self.bounds.values())).T)

    def encoded(self, values: np.ndarray) -> Tensor:
        """Rows of numbers in the user's units as ``n x d`` points, within the bounds."""
        X = np.array(values, dtype=np.float64).reshape(-1, self.dim)
        for i, name in enumerate(self.names):
            if name in self.log:
                X[:, i] = np.log(X[:, i])
        return torch.from_numpy(X)

    def decoded(self, X: Tensor) -> np.ndarray:
        """Points in the user's units, none beyond the bounds."""
        values = X.detach().cpu().double().numpy().copy()
        for i, (name, (low, high)) in enumerate(self.bounds.items()):
            column = np.exp(values[:, i]) if name in self.log else values[:, i]
            values[:, i] = np.clip(column, low, high)
        return values

    def values(self, frame: pd.DataFrame) -> np.ndarray:
        """The inputs of a frame, checked, in the user's units: ``n x d``.

        Raises:
            InputError: on columns that are missing or hold no finite numbers.
            BoundsError: on points outside.
        """
        columns = [numbers(frame, name) for name in self.names]
        values = np.stack(columns, -1) if columns else np.empty((len(frame), 0))
        for i, (name, (low, high)) in enumerate(self.bounds.items()):
            outside = (values[:, i] < low) | (values[:, i] > high)
            if outside.any():
                raise BoundsError(
                    f"{name!r} between {low:g} and {high:g}",
                    f"{values[outside, i][0]:g}",
                    "Give points inside the box, in its units.",
                )
        return values

    def described(self) -> dict[str, Any]:
        """All of it as plain data, for a store."""
        return {
            "kind": "box",
            "bounds": [[name, *pair] for name, pair in self.bounds.items()],
            "log": list(self.log),
            "units": dict(self.units),
        }


@dataclass(frozen=True)
class Pool:
    """Rows of a table that can be measured, each with coordinates as named inputs.

    Args:
        table: One row a place; its index names the places and has no duplicates.
        inputs: Columns that are coordinates; all numeric ones if left out.
        repeats: Whether a place may be measured more than once.
        units: Units by name, for labels.

    Raises:
        InputError: on tables or columns that cannot be.

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
                "a table of at least two rows whose index names each place once",
                f"{len(self.table)} rows, {self.table.index.nunique()} names",
                "Use reset_index(), or drop duplicates.",
            )
        values = np.stack([numbers(self.table, name) for name in self.names], -1)
        object.__setattr__(self, "_values", values)
        for name, column in zip(self.names, values.T, strict=True):
            if column.min() == column.max():
                raise InputError(
                    f"places that differ in {name!r}", f"{column[0]:g} throughout", "Leave it out."
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs, in order."""
        return tuple(cast("Sequence[str]", self.inputs))

    @property
    def dim(self) -> int:
        """How many inputs."""
        return len(self.names)

    @property
    def points(self) -> Tensor:
        """``N x d``, every place."""
        return torch.from_numpy(self.place_values.copy())

    @property
    def place_values(self) -> np.ndarray:
        """``N x d``, every place."""
        return cast(np.ndarray, self._values)  # type: ignore[attr-defined]

    @property
    def tensor_bounds(self) -> Tensor:
        """``2 x d``, the smallest box around all places."""
        return torch.stack([self.points.amin(0), self.points.amax(0)])

    def encoded(self, values: np.ndarray) -> Tensor:
        """Rows of coordinates as ``n x d`` points."""
        return torch.from_numpy(np.array(values, dtype=np.float64).reshape(-1, self.dim))

    def values(self, frame: pd.DataFrame) -> np.ndarray:
        """The coordinates of a frame, checked: ``n x d``.

        Raises:
            InputError, BoundsError: on columns or points that do not fit.
        """
        low, high = self.place_values.min(0), self.place_values.max(0)
        box = Box(dict(zip(self.names, zip(low, high, strict=True), strict=True)))
        return box.values(frame)

    def places(self, frame: pd.DataFrame) -> list[int]:
        """Row numbers of the places that a frame names in its column ``place``, or by coordinates.

        Raises:
            InputError: for places that the table does not have.
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
                "places of the pool", ", ".join(unknown[:5]), "Name them by the table's index."
            )
        return [int(i) for i in found]

    def described(self) -> dict[str, Any]:
        """All of it as plain data, for a store."""
        return {
            "kind": "pool",
            "names": list(self.names),
            "values": self.place_values.tolist(),
            "places": [_plain(label) for label in self.table.index],
            "repeats": self.repeats,
            "units": dict(self.units),
        }


Space = Box | Pool


def space_from(described: Mapping[str, Any]) -> Space:
    """The space that `described` gave as plain data."""
    if described["kind"] == "box":
        bounds = {name: (low, high) for name, low, high in described["bounds"]}
        return Box(bounds, described["log"], described["units"])
    values = np.array(described["values"], dtype=np.float64)
    table = pd.DataFrame(values, pd.Index(described["places"]), described["names"])
    return Pool(table, described["names"], described["repeats"], described["units"])


def numbers(frame: pd.DataFrame, name: str) -> np.ndarray:
    """A column of finite numbers.

    Raises:
        InputError: if it is missing, or holds anything else.
    """
    if name not in frame:
        raise InputError(
            f"a column {name!r}",
            f"columns {', '.join(map(str, frame.columns)) or 'none'}",
            "Add it, or rename the one that holds it.",
        )
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise InputError(f"one column {name!r}", "several", "Drop the duplicates.")
    if column.dtype.kind not in "iuf":
        try:
            values = column.map(_number).to_numpy(np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"numbers in column {name!r}", f"{error}", "Convert or leave out what is no number."
            ) from error
    else:
        values = column.to_numpy(np.float64)
    if not np.isfinite(values).all():
        row = frame.index[~np.isfinite(values)][0]
        raise InputError(
            f"finite numbers in column {name!r}",
            f"{column[~np.isfinite(values)].iloc[0]} in row {row}",
            "Fill in the value, leave out the row, or report a trial that gave none with "
            "fail(ids, reason).",
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
            "Inputs are continuous: run one campaign for each category, or number them.",
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
        raise InputError("inputs of different names, at least one", f"{names}", "Name them.")
    reserved = [n for n in names if n in RESERVED or not isinstance(n, str) or not n.strip()]
    if reserved:
        raise InputError(
            f"names of inputs other than {', '.join(RESERVED)}", f"{reserved}", "Rename them."
        )
    unknown = [name for name in (*log, *units) if name not in names]
    if unknown:
        raise InputError(f"names among {', '.join(names)}", f"{unknown}", "Correct the spelling.")
