"""Columns of a user's frame as numbers and truth values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from bo_stream.errors import InputError

__all__ = ["TRUTHS", "column", "numbers", "told_apart", "truths"]

TRUTHS = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}
"""Truth values in small letters, as people and programs write them."""

DIGITS = (6, 9, 12, 15)
"""Significant digits that are tried before all."""


def column(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    """A column by its name.

    Raises:
        InputError: if it is missing, or there are several.
    """
    if name not in frame:
        raise InputError(
            f"a column {name!r}",
            f"columns {', '.join(map(str, frame.columns)) or 'none'}",
            "Add it, or rename the column that has these values.",
        )
    found = frame[name]
    if isinstance(found, pd.DataFrame):
        raise InputError(f"one column {name!r}", "several", "Drop the duplicates.")
    return found


def numbers(frame: pd.DataFrame, name: str, most: float = math.inf) -> np.ndarray:
    """A column of finite numbers, of at most some size.

    Raises:
        InputError: if it is missing, or has other values.
    """
    given = column(frame, name)
    try:
        cells = given if given.dtype.kind in "iuf" else given.map(_number)
        values: np.ndarray = cells.to_numpy(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"numbers in column {name!r}", f"{error}", "Convert the other values or leave them out."
        ) from error
    for wrong, expected, remedy in (
        (~np.isfinite(values), "finite numbers", "Fill in the value or leave out the row."),
        (
            np.abs(values) > most,
            f"numbers of at most {most:.1g} in size",
            "Give the column in a larger unit.",
        ),
    ):
        if wrong.any():
            raise InputError(
                f"{expected} in column {name!r}",
                f"{given[wrong].iloc[0]} in row {frame.index[wrong][0]}",
                f"{remedy} If a trial gave no outcome, use fail(ids, reason).",
            )
    return values


def truths(frame: pd.DataFrame, name: str) -> np.ndarray:
    """A column of truth values as ones and zeros: booleans, 1 and 0, true and false, yes and no.

    Raises:
        InputError: if it is missing, or has other values.
    """
    given = column(frame, name)
    if given.dtype.kind in "iuf":
        return numbers(frame, name)
    texts = [str(value).strip().casefold() for value in given]
    found = [TRUTHS.get(text.removesuffix(".0")) for text in texts]
    if None in found:
        row = found.index(None)
        raise InputError(
            f"1 or 0, true or false, yes or no in column {name!r}",
            f"{given.iloc[row]!r} in row {frame.index[row]}",
            "Correct it or leave out the row. If a trial gave none, use fail(ids, reason).",
        )
    return np.array(found, dtype=np.float64)


def told_apart(*values: float) -> list[str]:
    """The numbers in as few digits as show which of them differ."""
    for digits in DIGITS:
        texts = [f"{value:.{digits}g}" for value in values]
        if len(set(texts)) == len(set(values)):
            return texts
    return [repr(float(value)) for value in values]


def _number(value: Any) -> float:
    if isinstance(value, bool | str) or value is None:
        raise ValueError(repr(value))
    return float(value)
