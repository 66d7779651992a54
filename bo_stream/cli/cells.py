"""Numbers in the cells of a file, as people in several countries write them.

Decimals have a point or a comma, and thousands may be set apart by the other one, or by a space
that breaks no line. ``1,234`` may be either: it is read only if other numbers of the column, or of
the file, say which mark is that of decimals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

__all__ = ["decimal_marks", "is_number", "read_number"]

POINT, COMMA = ".", ","


def _pattern(decimal: str, group: str) -> re.Pattern[str]:
    """Numbers with a decimal mark, whose thousands another mark may set apart."""
    grouped = rf"[1-9][0-9]{{0,2}}(?P<group>[{group}\u00a0\u202f\u2009])[0-9]{{3}}"
    grouped += rf"(?:(?P=group)[0-9]{{3}})*(?:\{decimal}[0-9]+)?"
    plain = rf"(?:[0-9]+\{decimal}?[0-9]*|\{decimal}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    return re.compile(rf"[+-]?(?:{grouped}|{plain})")


PATTERNS = {POINT: _pattern(POINT, COMMA), COMMA: _pattern(COMMA, POINT)}

PLAIN = str.maketrans({chr(0xFF01 + i): chr(0x21 + i) for i in range(94)} | {"\u2212": "-"})
"""Letters of full width and the typographic minus, as plain characters."""


def _readings(cell: str) -> dict[str, float]:
    """The number in a cell by the decimal mark that it may have."""
    text = cell.translate(PLAIN)
    found: dict[str, float] = {}
    for mark, pattern in PATTERNS.items():
        if match := pattern.fullmatch(text):
            digits = text.replace(match["group"], "") if match["group"] else text
            value = float(digits.replace(mark, POINT))
            if math.isfinite(value):
                found[mark] = value
    return found


def is_number(cell: str) -> bool:
    """Whether a cell has a number, perhaps one that can be read in two ways."""
    return bool(_readings(cell))


def decimal_marks(cells: Iterable[str]) -> set[str]:
    """The decimal marks of those cells that can be read in one way only."""
    readings = map(_readings, cells)
    return {mark for found in readings if len(found) == 1 for mark in found}


def read_number(cell: str, marks: set[str]) -> float:
    """The number in a cell.

    Args:
        cell: Its text.
        marks: Decimal marks of the numbers beside it.

    Raises:
        ValueError: if it has no number, or two; the message says what it may be.
    """
    found = _readings(cell)
    if not found:
        raise ValueError("which is no number")
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    decimal = COMMA if COMMA in cell.translate(PLAIN) else POINT  # unless it is of thousands
    if marks == {COMMA} if decimal == COMMA else COMMA not in marks:
        return found[decimal]
    raise ValueError(f"which may be {found[POINT]:.17g} or {found[COMMA]:.17g}")
