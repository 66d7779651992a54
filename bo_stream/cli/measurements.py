"""Reading the CSV files that people fill in, as laboratories write them.

Separators are commas, semicolons, tabs or bars; decimals have a point or a comma; a byte order mark
and columns without a name are ignored. What a column means decides how its cells are read: labels
stay as they are written, and numbers that can be read in two ways are refused.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bo_stream.cli.cells import decimal_marks, is_number, read_number
from bo_stream.cli.toml_reader import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from bo_stream.campaign.campaign import Campaign

__all__ = ["CsvTable", "outcome_columns", "read_measurements", "read_table"]

SEPARATORS = ",;\t|"

SEPARATOR_LINE = "sep="
"""How the first line of a file names the separator for Excel."""

WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""First bytes of files of Excel and LibreOffice."""

UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks."""


def outcome_columns(campaign: Campaign) -> list[str]:
    """The columns of an outcome."""
    if campaign.counts is not None:
        return campaign.counts.columns
    return campaign.settings.named.columns


def read_measurements(path: Path, campaign: Campaign) -> pd.DataFrame:
    """A CSV of outcomes, with the ids of trials in a column ``trial`` if it has some.

    The index is the row of the file.

    Raises:
        ConfigError: for a file that is not a table, and for cells without a number where one is
            expected.
    """
    from bo_stream.campaign.names import RESERVED
    from bo_stream.campaign.space import Pool
    from bo_stream.campaign.space.inputs import Category

    space, counts = campaign.space, campaign.counts
    outcomes = campaign.settings.named.known_columns if counts is None else counts.columns
    kinds = space.kinds
    numeric = ["trial", *(one.name for one in kinds if not isinstance(one, Category)), *outcomes]
    if isinstance(space, Pool) and space.table.index.dtype.kind in "iuf":
        numeric.append("place")
    if counts is not None and counts.name == "bernoulli":
        numeric.remove(counts.column)
    table = read_table(path, list(dict.fromkeys([*RESERVED, *space.names, *outcomes])))
    return table.frame(numeric)


@dataclass(frozen=True)
class CsvTable:
    """The cells of a CSV.

    Attributes:
        path: The file.
        columns: Texts by the name of the column; None for an empty cell.
        rows: The row of the file of every text, from 1.
    """

    path: Path
    columns: dict[str, list[str | None]]
    rows: list[int]

    def frame(self, numeric: Collection[str]) -> pd.DataFrame:
        """A frame of texts, and of numbers in some columns; the index is the row of the file.

        Raises:
            ConfigError: for a cell without a number, or with one that can be read in two ways.
        """
        import pandas as pd

        numeric = [name for name in numeric if name in self.columns]
        marks = decimal_marks(cell for name in numeric for cell in self.columns[name] if cell)
        columns: dict[str, Any] = {
            name: self._numbers(name, marks) if name in numeric else pd.Series(cells, dtype=object)
            for name, cells in self.columns.items()
        }
        frame = pd.DataFrame(columns)
        return frame.set_axis(pd.Index(self.rows, name="row", dtype="int64"), axis=0)

    def _numbers(self, name: str, marks: set[str]) -> list[float] | list[int]:
        """A column of numbers, NaN where there is none: integers if all of them are."""
        cells = self.columns[name]
        marks = decimal_marks(cell for cell in cells if cell) or marks
        values: list[float] = []
        for row, cell in zip(self.rows, cells, strict=True):
            try:
                values.append(math.nan if cell is None else read_number(cell, marks))
            except ValueError as error:
                raise self.error(row, name, "a number", f"{cell!r}, {error}") from error
        whole = all(cell is not None and cell.isdecimal() for cell in cells)
        return [int(value) for value in values] if whole else values

    def error(self, row: int, name: str, expected: str, got: str) -> ConfigError:
        """The error for a cell."""
        remedy = "Write a plain number, or leave the cell empty where there is none"
        if "may be" in got:
            remedy = "Write it without marks of thousands, and with a decimal point if it has one"
        return ConfigError(
            f"{self.path}, row {row}, column {name!r}: Expected {expected}; got {got}. {remedy}."
        )

    def numeric(self, inputs: Collection[str] | None, labels: Collection[str]) -> list[str]:
        """The columns that have numbers, of a table of places whose columns can be of any kind.

        Args:
            inputs: Columns that are read; None: those with numbers.
            labels: Columns of labels, which are none of numbers.

        Raises:
            ConfigError: for a column that is read and has other texts among more numbers.
        """
        found = []
        for name, cells in self.columns.items():
            if name in labels:
                continue
            filled = [(row, cell) for row, cell in zip(self.rows, cells, strict=True) if cell]
            others = [(row, cell) for row, cell in filled if not is_number(cell)]
            if not others:
                found.append(name)
            elif 2 * len(others) < len(filled) and (inputs is None or name in inputs):
                row, cell = others[0]
                raise self.error(row, name, "a number, as in other rows", repr(cell))
        return found


def read_table(path: Path, known: Collection[str]) -> CsvTable:
    """A CSV as people write it.

    Args:
        path: The file.
        known: Names of columns that it may have. They tell separators from commas in names, and
            names that look like one of them are this one.

    Raises:
        ConfigError: for a file that is not a table.
    """
    from bo_stream.campaign.names import spelled

    text = _text(path)
    lines = text.splitlines()
    first = next((line for line in lines if line.strip()), "")
    given = first.strip(' "').casefold()
    separator = given.removeprefix(SEPARATOR_LINE) if given.startswith(SEPARATOR_LINE) else ""
    skipped = 0
    if len(separator) == 1:
        skipped = 1 + lines.index(first)
    else:
        separator = max(SEPARATORS, key=lambda one: _resemblance(first, one, known))
    content = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        numbered = list(enumerate(content, 1))
    except csv.Error as error:
        raise ConfigError(
            f"{path} is not a CSV: {error}, at line {content.line_num}. Correct its quotes."
        ) from error
    rows = [(i, row) for i, row in numbered if i > skipped and any(map(str.strip, row))]
    if not rows:
        raise ConfigError(f"{path} is not a CSV: it is empty.")
    names = [spelled(name.strip(), known) for name in rows[0][1]]
    for line, row in rows[1:]:
        if any(cell.strip() for cell in row[len(names) :]):
            raise ConfigError(
                f"{path} is not a CSV: row {line} has {len(row)} cells, and there are {len(names)} "
                "columns. Put cells with a separator in quotes."
            )
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise ConfigError(f"{path}: Expected every column once; got two of {', '.join(twice)}.")
    columns = {
        name: [row[i].strip() or None if i < len(row) else None for _, row in rows[1:]]
        for i, name in enumerate(names)
        if name
    }
    return CsvTable(path, columns, [line for line, _ in rows[1:]])


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


def _resemblance(header: str, separator: str, known: Collection[str]) -> tuple[int, int]:
    """How many known columns a header has with a separator, and how many columns."""
    from bo_stream.campaign.names import spelled

    names = [
        spelled(name.strip(), known) for name in next(csv.reader([header], delimiter=separator))
    ]
    return sum(name in known for name in names), len(names)
