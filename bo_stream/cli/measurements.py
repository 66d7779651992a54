"""Reading the CSV files that people fill in, as laboratories write them.

Separators are commas, semicolons, tabs or bars; a byte order mark and columns without a name are
ignored. What a column means decides how its cells are read: labels stay as they are written.

Numbers have a decimal point or comma, and thousands may be set apart by the other one, or by a
space that breaks no line. ``1,234`` may be either: it is read only if other numbers of the column,
or of the file, say which mark is that of decimals.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bo_stream.cli.toml_reader import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from bo_stream.campaign.campaign import Campaign

__all__ = [
    "decimal_marks",
    "numbers",
    "numeric_columns",
    "outcome_columns",
    "read_measurements",
    "read_number",
    "read_table",
]

SEPARATORS = ",;\t|"

SEPARATOR_LINE = "sep="
"""How the first line of a file names the separator for Excel."""

WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""First bytes of files of Excel and LibreOffice."""

UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks."""

POINT, COMMA = ".", ","

PLAIN = str.maketrans({chr(0xFF01 + i): chr(0x21 + i) for i in range(94)} | {"\u2212": "-"})
"""Letters of full width and the typographic minus, as plain characters."""


def outcome_columns(campaign: Campaign) -> list[str]:
    """The columns of an outcome."""
    return [column for one in campaign.settings.outcomes.measured for column in one.columns]


def read_measurements(path: Path, campaign: Campaign) -> pd.DataFrame:
    """A CSV of outcomes, with the ids of trials in a column ``trial`` if it has some.

    The index is the row of the file.

    Raises:
        ConfigError: for a file that is not a table, and for cells without a number where one is
            expected.
    """
    from bo_stream.campaign.names import RESERVED
    from bo_stream.campaign.space import Pool
    from bo_stream.campaign.space.spaces import Category

    space, counts = campaign.space, campaign.settings.counts
    outcomes = campaign.settings.outcomes.known_columns
    kinds = space.kinds
    numeric = ["trial", *(one.name for one in kinds if not isinstance(one, Category)), *outcomes]
    if isinstance(space, Pool) and space.table.index.dtype.kind in "iuf":
        numeric.append("place")
    if counts is not None and counts.is_truth:
        numeric.remove(counts.column)
    table = read_table(path, list(dict.fromkeys([*RESERVED, *space.names, *outcomes])))
    return numbers(path, table, numeric)


def read_table(path: Path, known: Collection[str]) -> pd.DataFrame:
    """The cells of a CSV as texts, None where there is none; the index is the row of the file.

    Args:
        path: The file.
        known: Names of columns that it may have. They tell separators from commas in names, and
            names that look like one of them are this one.

    Raises:
        ConfigError: for a file that is not a table.
    """
    import pandas as pd

    from bo_stream.campaign.names import spelled

    text = _text(path)
    separator, skipped = _separator(text, known)
    content = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        rows = [[cell.strip() or None for cell in row] for row in content]
    except csv.Error as error:
        raise ConfigError(
            f"{path} is not a CSV: {error}, at line {content.line_num}. Correct its quotes."
        ) from error
    columns = dict(enumerate(zip_longest(*rows)))
    cells = pd.DataFrame(columns, pd.RangeIndex(1, len(rows) + 1, name="row"), dtype=object)
    cells = cells.iloc[skipped:].dropna(how="all")
    if not len(cells):
        raise ConfigError(f"{path} is not a CSV: it is empty.")
    header, cells = rows[cells.index[0] - 1], cells.iloc[1:]
    beyond = cells.index[cells.iloc[:, len(header) :].notna().any(axis=1)]
    if len(beyond):
        raise ConfigError(
            f"{path} is not a CSV: row {beyond[0]} has {len(rows[beyond[0] - 1])} cells, and there "
            f"are {len(header)} columns. Put cells with a separator in quotes."
        )
    names = {i: spelled(name, known) for i, name in enumerate(header) if name}
    cells = cells[list(names)].set_axis(list(names.values()), axis=1)
    twice = sorted(set(cells.columns[cells.columns.duplicated()]))
    if twice:
        raise ConfigError(f"{path}: Expected every column once; got two of {', '.join(twice)}.")
    return cells


def numbers(path: Path, table: pd.DataFrame, columns: Collection[str]) -> pd.DataFrame:
    """A table with numbers in some columns, NaN where there is none.

    Args:
        path: The file, for messages.
        table: What `read_table` returned.
        columns: Names of columns of numbers, which the table may have.

    Raises:
        ConfigError: for a cell without a number, or with one that can be read in two ways.
    """
    columns = [str(name) for name in table if name in columns]
    marks = {name: decimal_marks(table[name].dropna()) for name in columns}
    of_file = set[str]().union(*marks.values())
    filled = {name: _column(path, table[name], marks[name] or of_file) for name in columns}
    return table.assign(**filled)


def numeric_columns(
    path: Path, table: pd.DataFrame, inputs: Collection[str] | None, labels: Collection[str]
) -> list[str]:
    """The columns that have numbers, of a table of places whose columns can be of any kind.

    Args:
        path: The file, for messages.
        table: What `read_table` returned.
        inputs: Columns that are read; None: those with numbers.
        labels: Columns of labels, which are none of numbers.

    Raises:
        ConfigError: for a column that is read and has other texts among more numbers.
    """
    found = []
    for name in map(str, table.columns.difference(list(labels), sort=False)):
        filled = table[name].dropna()
        others = [row for row, cell in _rows(filled) if not _readings(cell)]
        if not others:
            found.append(name)
        elif 2 * len(others) < len(filled) and (inputs is None or name in inputs):
            got = repr(filled[others[0]])
            raise _cell_error(path, others[0], name, "a number, as in other rows", got)
    return found


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


def _pattern(decimal: str, group: str) -> re.Pattern[str]:
    """Numbers with a decimal mark, whose thousands another mark may set apart."""
    grouped = rf"[1-9][0-9]{{0,2}}(?P<group>[{group}\u00a0\u202f\u2009])[0-9]{{3}}"
    grouped += rf"(?:(?P=group)[0-9]{{3}})*(?:\{decimal}[0-9]+)?"
    plain = rf"(?:[0-9]+\{decimal}?[0-9]*|\{decimal}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    return re.compile(rf"[+-]?(?:{grouped}|{plain})")


PATTERNS = {POINT: _pattern(POINT, COMMA), COMMA: _pattern(COMMA, POINT)}


def _column(path: Path, cells: pd.Series[Any], marks: set[str]) -> pd.Series[Any]:
    """A column of numbers: integers if all of its cells are."""
    import pandas as pd

    filled = cells.dropna()
    values: dict[int, float] = {}
    for row, cell in _rows(filled):
        try:
            values[row] = read_number(cell, marks)
        except ValueError as error:
            raise _cell_error(
                path, row, str(cells.name), "a number", f"{cell!r}, {error}"
            ) from error
    if len(filled) == len(cells) and all(map(str.isdecimal, filled)):
        return pd.Series([int(value) for value in values.values()], cells.index)
    return pd.Series(values, cells.index, "float64")


def _rows(cells: pd.Series[Any]) -> Iterator[tuple[int, str]]:
    """The texts of a column with their row of the file."""
    return zip(cells.index, cells, strict=True)


def _cell_error(path: Path, row: int, name: str, expected: str, got: str) -> ConfigError:
    remedy = "Write a plain number, or leave the cell empty where there is none"
    if "may be" in got:
        remedy = "Write it without marks of thousands, and with a decimal point if it has one"
    return ConfigError(
        f"{path}, row {row}, column {name!r}: Expected {expected}; got {got}. {remedy}."
    )


def _separator(text: str, known: Collection[str]) -> tuple[str, int]:
    """The separator of cells, and the number of rows before the table."""
    from bo_stream.campaign.names import spelled

    lines = text.splitlines()
    first = next((line for line in lines if line.strip()), "")
    named = first.strip(' "').casefold().partition(SEPARATOR_LINE)
    if named[0] == "" and len(named[2]) == 1:
        return named[2], 1 + lines.index(first)

    def resemblance(separator: str) -> tuple[int, int]:
        header = next(csv.reader([first], delimiter=separator))
        names = [spelled(name.strip(), known) for name in header]
        return sum(name in known for name in names), len(names)

    return max(SEPARATORS, key=resemblance), 0


def _text(path: Path) -> str:
    """The text of a file, in the encodings of usual programs."""
    raw = path.read_bytes()
    if raw.startswith(WORKBOOKS):
        raise ConfigError(
            f"{path}: Expected a CSV; got a workbook. Save its sheet as CSV (in Excel: Save as, "
            "CSV UTF-8)."
        )
    encodings = ["utf-8-sig", "cp1252"]
    if raw.startswith(UTF_16):
        encodings = ["utf-16"]
    elif b"\0" in raw[:2]:
        encodings = ["utf-16-be" if raw[0] == 0 else "utf-16-le"]
    for encoding in encodings:
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise ConfigError(f"{path} is not a text in UTF-8, UTF-16 or Windows-1252. Save it as UTF-8.")
