"""Reading the CSV files that people fill in, as laboratories write them.

Separators are commas, semicolons or tabs; decimals have a point or a comma; a byte order mark and
columns without a name are ignored.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bo_stream.cli.toml_reader import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from bo_stream.campaign.campaign import Campaign

__all__ = ["outcome_columns", "read_measurements", "read_table"]

SEPARATORS = ",;\t"
TEXTS = ("key", "note", "notes", "reason", "status")
"""Columns of text, unless they are inputs."""

NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?")


def outcome_columns(campaign: Campaign) -> list[str]:
    """The columns of an outcome."""
    if campaign.counts is not None:
        return campaign.counts.columns
    return campaign.settings.named.columns


def read_measurements(path: Path, campaign: Campaign) -> pd.DataFrame:
    """A CSV of outcomes, with the ids of trials in a column ``trial`` if it has some.

    Raises:
        ConfigError: for a file that is not a table.
    """
    from bo_stream.campaign.space import Pool

    space = campaign.space
    texts = {*TEXTS} - {*space.names}
    if isinstance(space, Pool) and space.table.index.dtype.kind not in "iuf":
        texts.add("place")  # so that 007 keeps its zeros
    return read_table(path, texts)


def read_table(path: Path, texts: Collection[str]) -> pd.DataFrame:
    """A CSV as people write it. A column is one of numbers if all of its cells are.

    Args:
        path: The file.
        texts: Columns that are not read as numbers.

    Raises:
        ConfigError: for a file that is not a table.
    """
    import pandas as pd

    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace")
    header = text.lstrip().partition("\n")[0]
    separator = max(SEPARATORS, key=header.count)
    rows = [row for row in csv.reader(text.splitlines(), delimiter=separator) if any(row)]
    if not rows:
        raise ConfigError(f"{path} is not a CSV: it is empty.")
    names = [name.strip() for name in rows[0]]
    for line, row in enumerate(rows[1:], 2):
        if any(cell.strip() for cell in row[len(names) :]):
            raise ConfigError(
                f"{path} is not a CSV: row {line} has {len(row)} cells, and there are {len(names)} "
                "columns. Put cells with a separator in quotes."
            )
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise ConfigError(f"{path}: Expected every column once; got two of {', '.join(twice)}.")
    columns: dict[str, Any] = {}
    for i, name in enumerate(names):
        cells = [row[i].strip() or None if i < len(row) else None for row in rows[1:]]
        if name:
            columns[name] = cells if name in texts else _values(cells)
    return pd.DataFrame(columns)


def _values(cells: list[str | None]) -> list[Any]:
    """The cells of a column, as numbers or truth values if all of them are."""
    known = [cell for cell in cells if cell is not None]
    if known and set(known) <= {"True", "False"}:
        return [None if cell is None else cell == "True" for cell in cells]
    if not all(NUMBER.fullmatch(cell) for cell in known):
        return cells
    plain = [math.nan if cell is None else float(cell.replace(",", ".")) for cell in cells]
    whole = all("." not in cell and "," not in cell and "e" not in cell.lower() for cell in known)
    return [int(value) for value in plain] if whole and len(known) == len(cells) else plain
