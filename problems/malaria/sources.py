"""Tables of cells: CSV files and the HDF5 layout of the WISKI study [Stanton2021].

References:
    [Stanton2021] S. Stanton, W. J. Maddox, I. Delbridge, A. G. Wilson. Kernel Interpolation for
        Scalable Online Gaussian Processes. AISTATS 2021.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from problems.errors import BadData
from problems.files import need
from problems.malaria.columns import NUMBERS, Columns

HDF_KEY = "full"
_WANTED = (*NUMBERS, "year")


def read_csv(path: Path) -> Columns:
    """Read ``longitude, latitude, year, mean[, lower, upper, std_dev]``, plain or gzipped.

    Other columns are ignored.

    Raises:
        BadData: if the file is not such a table.
    """
    try:
        frame = pd.read_csv(path)
    except (ValueError, EOFError, OSError) as error:  # parser, encoding and gzip errors
        raise BadData(
            f"{path.name}: expected a CSV file with a header line (or such a file gzipped as "
            f".csv.gz), could not read it: {error}"
        ) from error
    return _columns(frame, path.name)


def read_hdf(path: Path) -> Columns:
    """Read the HDF5 layout of the WISKI study and keep the rows of Nigeria (``is_ng == 1``).

    The file holds a pandas frame under the key ``full`` with the columns longitude, latitude, year,
    mean, std_dev, is_ng [Stanton2021]. It needs PyTables (extra ``hdf``).

    Raises:
        MissingExtra: without PyTables.
        BadData: for another layout.
    """
    tables = need("tables", "hdf", f"Reading {path.name} (HDF5)")
    try:
        frame = pd.read_hdf(path, key=HDF_KEY)
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"{HDF_KEY!r} is no frame but a {type(frame).__name__}")
    except (KeyError, TypeError, ValueError, OSError, tables.HDF5ExtError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise BadData(
            f"{path.name}: expected an HDF5 file with a pandas frame under the key {HDF_KEY!r}, "
            f"could not read it: {reason}. Pass a CSV with longitude, latitude, year, mean instead."
        ) from error
    if "is_ng" not in frame:
        raise BadData(
            f"{path.name}: expected the column is_ng (1 in Nigeria), got {sorted(frame.columns)}. "
            "Add it, or save the rows you want as CSV."
        )
    return _columns(frame[frame["is_ng"] == 1], path.name)


def _columns(frame: pd.DataFrame, name: str) -> Columns:
    columns: Columns = {}
    for key in _WANTED:
        if key in frame:
            try:
                columns[key] = frame[key].to_numpy(dtype=np.float64, na_value=np.nan)
            except (TypeError, ValueError) as error:
                raise BadData(f"{name}: expected numbers in column {key}: {error}") from error
    if "mean" not in columns or "year" not in columns:
        raise BadData(
            f"{name}: expected the columns longitude, latitude, year, mean[, lower, upper, "
            f"std_dev], got {list(frame.columns)}. Rename them, or add a year column."
        )
    return columns
