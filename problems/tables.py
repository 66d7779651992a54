"""UCI and other regression and classification tables, and tables of one's own, read in place.

The files are not part of the project: put them in one folder and name it in the environment
variable ``BO_STREAM_DATA`` (or pass ``folder``); a CSV of one's own is named by its path. Each is a
CSV with a header, gzipped or not, with one row per observation. Nothing is scaled, shuffled or
split here. Some sources have centred their columns, as stated in the notes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from problems.errors import BadData
from problems.files import DATA_VARIABLE, locate

_UCI = "UCI Machine Learning Repository, CC BY 4.0 (to be confirmed)"
_CENTRED = "Columns are centred, not scaled, by the source; 5 significant digits."


@dataclass(frozen=True)
class TableSpec:
    """How to read one file.

    Attributes:
        targets: Target columns.
        inputs: Input columns; by default every column that is neither target nor left out.
        left_out: Columns that are not inputs.
        leaks: Inputs that contain the target, left out unless ``leak=True``.
        train: (column, value) that marks the source's training rows.
        attribution: Where the data come from and under which licence.
        tests_only: No open licence: for tests only, not for published figures or wheels.
        notes: Units and warnings.
    """

    targets: tuple[str, ...]
    inputs: tuple[str, ...] | None = None
    left_out: tuple[str, ...] = ()
    leaks: tuple[str, ...] = ()
    train: tuple[str, str] | None = None
    attribution: str = _UCI
    tests_only: bool = False
    notes: str = ""


TABLES: dict[str, TableSpec] = {
    "concrete": TableSpec(
        ("strength_mpa",),
        notes="Components kg/m3, age days; strength MPa. 25 rows are repeated in the original.",
    ),
    "powerplant": TableSpec(
        ("PE",), notes="AT degC, V cm Hg, AP mbar, RH %; net output PE MW. 41 repeated rows."
    ),
    "skillcraft": TableSpec(("y",), notes=_CENTRED + " x0 looks like the game's id."),
    "bike": TableSpec(
        ("log_cnt",),
        leaks=("casual", "registered"),
        notes=_CENTRED + " log_cnt is the centred log of casual + registered, which therefore leak "
        "the target; dteday_yr and dteday_mnth repeat yr and mnth.",
    ),
    "elevators": TableSpec(
        ("y",),
        attribution="LIACC (Camacho, Torgo), no explicit licence",
        tests_only=True,
        notes=_CENTRED,
    ),
    "kin8nm": TableSpec(
        ("y",),
        attribution="DELVE / LIACC (Torgo), no explicit licence",
        tests_only=True,
        notes="Joint angles rad; distance of the end effector from a point.",
    ),
    "magnetic_path1": TableSpec(
        ("mag_x", "mag_y", "mag_z"),
        inputs=("x_m", "y_m"),
        attribution="Solin et al., IEEE T-RO 34(4):1112-1127, 2018; MIT",
        notes="Position m, field microtesla, in order of time at 50 Hz: neighbours correlate.",
    ),
    "fx2007": TableSpec(
        ("GBP_per_USD",),
        inputs=("day",),
        left_out=("date",),
        attribution="Rates (c) PACIFIC Exchange Rate Service; non-commercial use",
        tests_only=True,
        notes="Daily 2007 rates, units of XXX per US dollar; 59 missing values.",
    ),
    "road3d_first5000": TableSpec(
        ("altitude_m",), notes="Degrees, metres; the first 5,000 rows in road order, no sample."
    ),
    "sarcos_test4449": TableSpec(
        tuple(f"tau{i}" for i in range(1, 8)),
        attribution="Vijayakumar and Schaal; Rasmussen and Williams 2006, no explicit licence",
        tests_only=True,
        notes="Joint positions, velocities, accelerations (7 each) to torques; overlaps its own "
        "published training set.",
    ),
    "banana": TableSpec(
        ("label",),
        train=("split", "train"),
        attribution="Raetsch, IDA benchmark; Apache-2.0",
        notes="Binary label 0/1.",
    ),
    "malaria_ethiopia_school_survey_2009": TableSpec(
        ("pf_pos", "examined"),
        inputs=("longitude", "latitude"),
        attribution="Contains data of the Malaria Atlas Project (https://malariaatlas.org), CC BY; "
        "Ashton et al., Malaria Journal 2011;10:25",
        notes="Degrees; children positive, and children examined, in 203 schools.",
    ),
    "svmguide1": TableSpec(
        ("label",),
        train=("split", "train"),
        attribution="Hsu, Chang and Lin, LIBSVM guide (J. Conrad), no explicit licence",
        tests_only=True,
        notes="Binary label 0/1, features not scaled; 179 repeated rows.",
    ),
}

_OWN = TableSpec((), attribution="A table of one's own")


@dataclass(frozen=True, eq=False)
class Table:
    """A table as tensors, in the file's order and units.

    Attributes:
        name: Key of :data:`TABLES`, or of a table of one's own the file's name without suffix.
        X: ``n x d`` inputs, float64.
        Y: ``n x m`` targets, float64.
        train: ``n`` booleans, the source's own training rows; None where it has no split.
        inputs: The ``d`` column names of ``X``.
        targets: The ``m`` column names of ``Y``.
        attribution: Source and licence, which must accompany figures.
        tests_only: True if the licence does not allow more.
        notes: Units and warnings.
        dropped: Number of rows dropped because a selected column is missing a value.
    """

    name: str
    X: Tensor
    Y: Tensor
    train: Tensor | None
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    attribution: str
    tests_only: bool
    notes: str
    dropped: int


def load_table(
    name: str | os.PathLike[str],
    target: str | Sequence[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    *,
    inputs: Sequence[str] | None = None,
    leak: bool = False,
) -> Table:
    r"""Read one of the tables :data:`TABLES`, or a CSV of one's own, in place.

    Args:
        name: ``concrete, powerplant, skillcraft, bike, elevators, kin8nm, magnetic_path1, fx2007,
            road3d_first5000, sarcos_test4449, banana, svmguide1,
            malaria_ethiopia_school_survey_2009``; or the path of a ``.csv`` or ``.csv.gz`` with a
            header, which is read from the working directory or from ``folder``.
        target: Column to be predicted, or several, in this order; a CSV of one's own needs it. The
            tables have one of their own, but three field components in ``magnetic_path1`` and seven
            torques in ``sarcos_test4449``; ``fx2007`` has pounds per dollar among thirteen rates.
        folder: Folder of the files; default: ``BO_STREAM_DATA``.
        inputs: Columns to use as inputs, in this order. By default all columns except the targets
            and those the table leaves out. For ``magnetic_path1`` the default is the position, for
            ``fx2007`` the day.
        leak: Keep inputs that contain the target (``bike``: casual and registered), as some papers
            do.

    Raises:
        DataNotFound: if the file does not exist.
        BadData: for an unknown name or column, a CSV without a target, a column used as both input
            and target, text where numbers are expected, or a file without a complete row.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "oven.csv")
        ...     _ = path.write_text("hours,celsius,yield\n1,180,.4\n2,190,.7\n")
        ...     oven = load_table(path, target="yield")
        >>> oven.inputs, oven.Y.tolist()
        (('hours', 'celsius'), [[0.4], [0.7]])
    """
    own = _is_path(name)
    if not own and name not in TABLES:
        raise BadData(
            f"Expected a table out of {', '.join(TABLES)}, or the path of a .csv or .csv.gz; got "
            f"{os.fspath(name)!r}."
        )
    spec = _OWN if own else TABLES[os.fspath(name)]
    title = Path(name).name.removesuffix(".gz").removesuffix(".csv") if own else os.fspath(name)
    remedy = f"Put {title}.csv.gz or {title}.csv there, or pass folder=... ({spec.attribution})"
    path = locate(
        name,
        folder=folder if own or folder is not None else os.environ.get(DATA_VARIABLE) or None,
        suffixes=() if own else (".csv.gz", ".csv"),
        remedy="Paths are relative to the working directory." if own else remedy,
    )
    frame = _read(path)
    y_names = (
        (target,) if isinstance(target, str) else tuple(spec.targets if target is None else target)
    )
    if not y_names:
        raise BadData(
            f"{title}: expected a target, one of its columns {list(frame.columns)}; got none. Pass "
            "target=..."
        )
    x_names = tuple(inputs) if inputs is not None else _own_inputs(spec, frame, y_names, leak)
    _check_columns(title, frame, x_names, y_names)
    values = frame[[*x_names, *y_names]]
    complete = values.notna().all(axis=1).to_numpy()
    numbers = _numbers(values[complete], title)
    train = None
    if spec.train is not None:
        column, mark = spec.train
        train = torch.tensor((frame.loc[complete, column] == mark).tolist())
    return Table(
        name=title,
        X=numbers[:, : len(x_names)].contiguous(),
        Y=numbers[:, len(x_names) :].contiguous(),
        train=train,
        inputs=x_names,
        targets=y_names,
        attribution=spec.attribution,
        tests_only=spec.tests_only,
        notes=spec.notes,
        dropped=int((~complete).sum()),
    )


def _is_path(name: str | os.PathLike[str]) -> bool:
    """Whether a table is named by its file."""
    return not isinstance(name, str) or name.endswith((".csv", ".csv.gz"))


def _read(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path)
    except ValueError as error:  # of pandas' parser, or of text that is not UTF-8
        raise BadData(
            f"Expected a CSV with a header, got {path}: {error}. Save it as one, with commas, in "
            "UTF-8."
        ) from error


def _own_inputs(
    spec: TableSpec, frame: pd.DataFrame, targets: tuple[str, ...], leak: bool
) -> tuple[str, ...]:
    if spec.inputs is not None:
        return tuple(column for column in spec.inputs if column not in targets)
    out = {*spec.targets, *targets, *spec.left_out, *(() if leak else spec.leaks)}
    if spec.train is not None:
        out.add(spec.train[0])
    return tuple(str(column) for column in frame.columns if column not in out)


def _check_columns(
    name: str, frame: pd.DataFrame, inputs: tuple[str, ...], targets: tuple[str, ...]
) -> None:
    unknown = [column for column in (*inputs, *targets) if column not in frame.columns]
    if unknown:
        raise BadData(
            f"{name}: expected columns out of {list(frame.columns)}, got {unknown}. Choose among "
            "these in inputs and target, or check that the file is the right one, with commas."
        )
    if not inputs or not targets or len({*inputs, *targets}) < len(inputs) + len(targets):
        raise BadData(
            f"{name}: expected inputs and targets without a column in common and none twice, got "
            f"inputs {list(inputs)} and targets {list(targets)}. Name both."
        )


def _numbers(values: pd.DataFrame, name: str) -> Tensor:
    text = [column for column in values if not pd.api.types.is_numeric_dtype(values[column])]
    if text:
        raise BadData(
            f"{name}: expected numbers in {list(values.columns)}, got text in {text}. Choose other "
            "columns, with inputs=..., or turn them into numbers."
        )
    array = values.to_numpy(dtype=np.float64)
    if len(array) == 0 or not np.isfinite(array).all():
        raise BadData(
            f"{name}: expected complete rows of finite numbers, got {len(array)} rows. Is the "
            "file complete?"
        )
    return torch.from_numpy(array.copy())
