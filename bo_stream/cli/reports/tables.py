"""Tables of a page as HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["facts", "number", "table"]

DIGITS = 4


def number(value: Any, digits: int = DIGITS) -> str:
    """A value as text; empty if it is missing."""
    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    if isinstance(value, float | np.floating):
        return "" if math.isnan(value) else f"{value:.{digits}g}"
    return str(value)


def table(caption: str, frame: pd.DataFrame, digits: int = DIGITS) -> str:
    """A frame as HTML, whose first column has the row headings.

    Args:
        caption: Caption of the table.
        frame: The frame; its index is left out.
        digits: Significant digits of its numbers.
    """
    if not len(frame):
        return ""
    kinds = [' class="number"' if dtype.kind in "iuf" else "" for dtype in frame.dtypes]
    head = "".join(
        f'<th scope="col"{kind}>{escape(str(name))}</th>'
        for name, kind in zip(frame.columns, kinds, strict=True)
    )
    rows = []
    for row in frame.itertuples(index=False, name=None):
        first, *rest = (escape(number(value, digits)) for value in row)
        cells = "".join(
            f"<td{kind}>{value}</td>" for value, kind in zip(rest, kinds[1:], strict=True)
        )
        rows.append(f'<tr><th scope="row"{kinds[0]}>{first}</th>{cells}</tr>')
    return _scrolled(caption, f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>")


def facts(caption: str, values: Mapping[str, Any]) -> str:
    """Named values as HTML, without those that are None."""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(number(value))}</td></tr>'
        for name, value in values.items()
        if value is not None
    )
    return _scrolled(caption, f"<tbody>{rows}</tbody>") if rows else ""


def _scrolled(caption: str, rows: str) -> str:
    """A table that can be scrolled by keyboard if it is wider than the screen."""
    name = escape(caption)
    return (
        f'<div class="scroll" role="group" tabindex="0" aria-label="{name}">'
        f"<table><caption>{name}</caption>{rows}</table></div>"
    )
