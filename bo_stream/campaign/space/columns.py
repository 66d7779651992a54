"""Columns of a user's frame as numbers, and the names that inputs may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import pandas as pd

from bo_stream.errors import InputError

__all__ = ["RESERVED", "check_names", "column", "is_text", "numbers"]

RESERVED = ("trial", "y", "yvar", "status", "reason", "ask", "place", "mean", "sd")
"""Names of columns that a campaign itself uses."""


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


def numbers(frame: pd.DataFrame, name: str) -> np.ndarray:
    """A column of finite numbers.

    Raises:
        InputError: if it is missing, or has other values.
    """
    given = column(frame, name)
    if given.dtype.kind not in "iuf":
        try:
            values = given.map(_number).to_numpy(np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"numbers in column {name!r}",
                f"{error}",
                "Convert the other values or leave them out.",
            ) from error
    else:
        values = given.to_numpy(np.float64)
    if not np.isfinite(values).all():
        row = frame.index[~np.isfinite(values)][0]
        raise InputError(
            f"finite numbers in column {name!r}",
            f"{given[~np.isfinite(values)].iloc[0]} in row {row}",
            "Fill in the value or leave out the row. If a trial gave none, use fail(ids, reason).",
        )
    return cast(np.ndarray, values)


def check_names(names: Iterable[str], named: Mapping[str, Iterable[str]]) -> None:
    """Refuse names of inputs that cannot be, and options of inputs that there are not.

    Args:
        names: Names of the inputs.
        named: Names that each option has.
    """
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
    broken = [name for name in names if not is_text(name)]
    if broken:
        raise InputError(
            "names of whole characters", f"{broken}", "Read the names again, in their encoding."
        )
    for option, given in named.items():
        unknown = [name for name in given if name not in names]
        if unknown:
            raise InputError(
                f"names among {', '.join(names)} in {option}", f"{unknown}", "Correct the spelling."
            )


def is_text(name: str) -> bool:
    """Whether a name can be written to a file: it has no halves of surrogate pairs."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _number(value: Any) -> float:
    if isinstance(value, bool | str) or value is None:
        raise ValueError(repr(value))
    return float(value)
