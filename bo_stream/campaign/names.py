"""Columns of frames: names of inputs and outcomes beside those of results, and their numbers."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from bo_stream.errors import InputError

__all__ = [
    "OWN",
    "RESERVED",
    "RESULTS",
    "TRUTHS",
    "check_names",
    "column",
    "folded",
    "in_spelling",
    "listed_names",
    "numbers",
    "spelled",
]

OWN = ("trial", "y", "yvar", "status", "reason", "ask", "place")
"""Columns of trials beside those of inputs and outcomes."""

RESERVED = (*OWN, "mean", "sd")
"""Names that no input may have."""

RESULTS = ("mean", "sd", "lower", "upper", "gain", "feasible")
"""Columns of predictions and recommendations, beside those of inputs."""

CYRILLIC = "АВЕЅІЈКМНОРСТУХаеѕіјорсух"
GREEK = "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧο"
ALIKE = str.maketrans(
    f"∆∑∏−–‐‑’{CYRILLIC}{GREEK}", "ΔΣΠ----'ABESIJKMHOPCTYXaesijopcyxABEZHIKMNOPTYXo"
)
"""Letters and signs that look alike, beside those that Unicode calls compatible."""

TRUTHS = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}
"""Truth values in small letters, as people and programs write them."""


def folded(name: Any) -> Any:
    """The same text for all spellings of a name that look alike; anything else as it is.

    Unicode has several codes for some letters (``µ`` is a Greek letter and a sign for micro), and
    characters that are not shown.
    """
    if not isinstance(name, str):
        return name
    text = unicodedata.normalize("NFKC", name).translate(ALIKE)
    return " ".join("".join(c for c in text if unicodedata.category(c) != "Cf").split())


def spelled(name: Any, known: Collection[Any]) -> Any:
    """The known name that looks like this one; the name itself if there is none."""
    if name in known:
        return name
    return {folded(other): other for other in known}.get(folded(name), name)


def in_spelling(frame: pd.DataFrame, known: Collection[str]) -> pd.DataFrame:
    """A user's frame, whose columns that look like known ones have their names.

    Raises:
        InputError: for anything else, and if several columns have one name, or look like one.
    """
    if not isinstance(frame, pd.DataFrame):
        raise InputError(
            "a DataFrame with a column for each input",
            type(frame).__name__,
            "Give one, as ask() does.",
        )
    exact = set(known)
    names = {column: spelled(column, known) for column in frame.columns if column not in exact}
    names = {column: name for column, name in names.items() if name != column}
    renamed = frame.rename(columns=names) if names else frame
    twice = renamed.columns[renamed.columns.duplicated()]
    if len(twice):
        got = "several that look alike" if names else "several"
        raise InputError(f"one column {twice[0]!r}", got, "Drop the duplicates.")
    return renamed


def listed_names(given: Any, option: str) -> tuple[str, ...]:
    """Names in an option: one, or several.

    Raises:
        InputError: for anything else.
    """
    if isinstance(given, str):
        return (given,)
    names = tuple(given) if isinstance(given, Iterable) else (given,)
    if not isinstance(given, Iterable) or not all(isinstance(name, Hashable) for name in names):
        raise InputError(f"a list of names in {option}", repr(given), "Name the inputs.")
    return names


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
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise InputError(
            "names of inputs as text",
            f"{names}",
            "Rename them; of a table: table.columns = table.columns.astype(str).",
        )
    for option, given in named.items():
        unknown = [name for name in given if name not in names]
        if unknown:
            raise InputError(
                f"names among {', '.join(names)} in {option}", f"{unknown}", "Correct the spelling."
            )


# -- columns ---------------------------------------------------------------------------------------


def column(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    """A column by its name.

    Raises:
        InputError: if it is missing.
    """
    if name not in frame:
        raise InputError(
            f"a column {name!r}",
            f"columns {', '.join(map(str, frame.columns)) or 'none'}",
            "Add it, or rename the column that has these values.",
        )
    return frame[name]


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


def _number(value: Any) -> float:
    if isinstance(value, bool | str) or value is None:
        raise ValueError(repr(value))
    return float(value)
