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
from collections.abc import Collection
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pandas as pd

from bo_stream.campaign.campaign import Campaign
from bo_stream.campaign.frames import find_trials
from bo_stream.campaign.names import RESERVED, in_spelling, spelled
from bo_stream.campaign.space import Pool
from bo_stream.campaign.space.spaces import Category
from bo_stream.cli.toml_reader import ConfigError

__all__ = [
    "numbers",
    "numeric_columns",
    "outcome_columns",
    "read_measurements",
    "read_table",
    "tell_rows",
]

SEPARATORS = ",;\t|"

SEPARATOR_LINE = re.compile(r"\s*\"?sep=(.)", re.IGNORECASE)
"""How the first line of a file names the separator for Excel."""

WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""First bytes of files of Excel and LibreOffice."""

UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks."""

POINT, COMMA = ".", ","

SPACES = "\u00a0\u202f\u2009"
"""Spaces that break no line."""

PLAIN = str.maketrans({chr(0xFF01 + i): chr(0x21 + i) for i in range(94)} | {"\u2212": "-"})
"""Letters of full width and the typographic minus, as plain characters."""

GROUPS = {POINT: f"[{COMMA}{SPACES}]", COMMA: f"[{POINT}{SPACES}]"}
"""What may set thousands apart, by the decimal mark."""

GROUPED = r"[1-9][0-9]{{0,2}}(?P<group>{0})[0-9]{{3}}(?:(?P=group)[0-9]{{3}})*(?:\{1}[0-9]+)?"
UNGROUPED = r"(?:[0-9]+\{1}?[0-9]*|\{1}[0-9]+)(?:[eE][+-]?[0-9]+)?"
NUMBER = f"[+-]?(?:{GROUPED}|{UNGROUPED})"
"""Numbers, with places for what sets thousands apart and for the decimal mark."""


def tell_rows(path: Path, campaign: Campaign) -> list[str]:
    """Tell a campaign the rows of a CSV of outcomes; returns what was done, in lines.

    Raises:
        ConfigError: as for `read_measurements`, and without a column of outcomes.
        InputError: for rows that are no outcomes of the campaign, and unknown trials.
    """
    frame, columns = read_measurements(path, campaign), outcome_columns(campaign)
    missing = [column for column in columns if column not in frame]
    if missing and (missing == columns or len(campaign.settings.outcomes.measured) == 1):
        raise ConfigError(
            f"{path}: Expected a column {missing[0]}; got {', '.join(frame.columns)}. Rename the "
            "column with the outcomes."
        )
    frame = frame.assign(**{name: None for name in ("trial", "reason") if name not in frame})
    reasons, blank = frame.pop("reason"), frame.reindex(columns=columns).isna()
    filled, counts = ~blank.all(axis=1), campaign.settings.counts
    said = []
    for what, rows in ({} if counts is None else counts.unmeasured(frame)).items():
        left_out = frame.index[filled & rows & reasons.isna()]
        filled &= ~rows
        if len(left_out):
            said.append(f"Rows {what}, which were left out: {', '.join(map(str, left_out))}.")
    why = reasons.notna() & frame["trial"].notna() & (blank.any(axis=1) | ~filled)
    failed = find_trials(frame["trial"][why], campaign.ledger.history)
    measured = frame[filled]
    if len(measured):
        campaign.tell(measured.loc[:, measured.notna().any() | (measured.columns == "trial")])
    for trial, reason, partly in zip(failed, reasons[why], filled[why], strict=True):
        status = campaign.ledger.refresh().trials[trial.id].status
        if not partly or status == "running":  # the others may be known from before
            campaign.fail(trial.id, reason)
    return [*said, f"Rows with a value: {len(measured)}; without: {len(frame) - len(measured)}."]


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
    space, counts = campaign.space, campaign.settings.counts
    outcomes = campaign.settings.outcomes.known_columns
    numeric = ["trial", *(k.name for k in space.kinds if not isinstance(k, Category)), *outcomes]
    if isinstance(space, Pool) and space.table.index.dtype.kind in "iuf":
        numeric.append("place")
    if counts is not None and counts.is_truth:
        numeric.remove(counts.column)
    known = dict.fromkeys([*RESERVED, *space.names, *outcomes])
    return numbers(path, read_table(path, list(known)), numeric)


def read_table(path: Path, known: Collection[str]) -> pd.DataFrame:
    """The cells of a CSV as texts, None where there is none; the index is the row of the file.

    Args:
        path: The file.
        known: Names of columns that it may have. They tell separators from commas in names, and
            names that look like one of them are this one.

    Raises:
        ConfigError: for a file that is not a table.
        InputError: for several columns of one name.
    """
    text = _text(path)
    named = SEPARATOR_LINE.match(text)
    separator = named[1] if named else _separator(text, known)
    content = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        rows = [[cell.strip() or None for cell in row] for row in content]
    except csv.Error as error:
        raise ConfigError(
            f"{path} is not a CSV: {error}, at line {content.line_num}. Correct its quotes."
        ) from error
    columns = dict(enumerate(zip_longest(*rows)))
    cells = pd.DataFrame(columns, pd.RangeIndex(1, len(rows) + 1, name="row"), dtype=object)
    cells = cells.dropna(how="all").iloc[1 if named else 0 :]
    if cells.empty:
        raise ConfigError(f"{path} is not a CSV: it is empty.")
    header, cells = rows[cells.index[0] - 1], cells.iloc[1:]
    beyond = cells.index[cells.iloc[:, len(header) :].notna().any(axis=1)]
    if len(beyond):
        raise ConfigError(
            f"{path} is not a CSV: row {beyond[0]} has {len(rows[beyond[0] - 1])} cells, and there "
            f"are {len(header)} columns. Put cells with a separator in quotes."
        )
    cells = cells.iloc[:, : len(header)].set_axis(header, axis=1)
    return in_spelling(cells.loc[:, cells.columns.notna()], known)


def numbers(path: Path, table: pd.DataFrame, columns: Collection[str]) -> pd.DataFrame:
    """A table with numbers in some columns, NaN where there is none.

    Args:
        path: The file, for messages.
        table: What `read_table` returned.
        columns: Names of columns of numbers, which the table may have.

    Raises:
        ConfigError: for a cell without a number, or with one that can be read in two ways.
    """
    readings = {name: _readings(table[name]) for name in map(str, table) if name in columns}
    marks = {name: _decimal_marks(found) for name, found in readings.items()}
    of_file = set[str]().union(*marks.values())
    read = {
        name: _numbers(path, table[name], found, marks[name] or of_file)
        for name, found in readings.items()
    }
    return table.assign(**read)


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
        others = filled[_readings(filled).isna().all(axis=1)]
        if others.empty:
            found.append(name)
        elif 2 * len(others) < len(filled) and (inputs is None or name in inputs):
            raise _cell_error(path, others, "which is no number, unlike other rows")
    return found


def _readings(cells: pd.Series[str]) -> pd.DataFrame:
    """The numbers in cells by the decimal mark that they may have, NaN where it is none."""
    texts = cells.fillna("").str.translate(PLAIN)
    found = {}
    for mark, group in GROUPS.items():
        texts_of_mark = texts.where(texts.str.fullmatch(NUMBER.format(group, mark)))
        plain = texts_of_mark.str.replace(group, "", regex=True).str.replace(mark, POINT)
        values = plain.astype("float64")
        found[mark] = values.where(values.abs() < math.inf)
    return pd.DataFrame(found)


def _decimal_marks(readings: pd.DataFrame) -> set[str]:
    """The decimal marks of those cells that can be read in one way only."""
    certain = readings[readings.isna().sum(axis=1) == 1]
    return {mark for mark in GROUPS if certain[mark].notna().any()}


def _numbers(
    path: Path, cells: pd.Series[str], readings: pd.DataFrame, marks: set[str]
) -> pd.Series[Any]:
    """The numbers in a column, integers if all of its cells are.

    Of two readings of a cell, the smaller one has decimals; nobody is taken to have set thousands
    apart.

    Args:
        path: The file, for messages.
        cells: The column.
        readings: Its numbers by decimal mark.
        marks: Decimal marks of the numbers beside them.
    """
    point, comma = readings[POINT], readings[COMMA]
    by_point, by_comma = point.abs() < comma.abs(), comma.abs() < point.abs()
    unclear = (by_point & (COMMA in marks)) | (by_comma & (marks != {COMMA}))
    values = point.fillna(comma).mask(by_comma, comma)
    if (cells.notna() & values.isna()).any():
        raise _cell_error(path, cells[cells.notna() & values.isna()], "which is no number")
    if unclear.any():
        first = readings[unclear].iloc[0]
        both = f"which may be {first[POINT]:.17g} or {first[COMMA]:.17g}"
        remedy = "Write it without marks of thousands, and with a decimal point if it has one."
        raise _cell_error(path, cells[unclear], both, remedy)
    return values.astype("int64") if cells.str.isdecimal().eq(True).all() else values


def _cell_error(
    path: Path,
    wrong: pd.Series[str],
    why: str,
    remedy: str = "Write a plain number, or leave the cell empty where there is none.",
) -> ConfigError:
    """The error for the first of some cells."""
    place = f"{path}, row {wrong.index[0]}, column {str(wrong.name)!r}"
    return ConfigError(f"{place}: Expected a number; got {wrong.iloc[0]!r}, {why}. {remedy}")


def _separator(text: str, known: Collection[str]) -> str:
    """The separator of cells, by which the first row has most known names."""
    first = next((line for line in text.splitlines() if line.strip()), "")

    def resemblance(separator: str) -> tuple[int, int]:
        header = next(csv.reader([first], delimiter=separator))
        names = [spelled(name.strip(), known) for name in header]
        return sum(name in known for name in names), len(names)

    return max(SEPARATORS, key=resemblance)


def _text(path: Path) -> str:
    """The text of a file, in the encodings of usual programs."""
    raw = path.read_bytes()
    if raw.startswith(WORKBOOKS):
        raise ConfigError(
            f"{path}: Expected a CSV; got a workbook. Save its sheet as CSV (in Excel: Save as, "
            "CSV UTF-8)."
        )
    wide = raw.startswith(UTF_16) or raw[1:2] == b"\0"  # some programs leave the mark out
    for encoding in ["utf-16"] if wide else ["utf-8-sig", "cp1252"]:
        with suppress(UnicodeDecodeError):
            return raw.decode(encoding)
    raise ConfigError(f"{path} is not a text in UTF-8, UTF-16 or Windows-1252. Save it as UTF-8.")
