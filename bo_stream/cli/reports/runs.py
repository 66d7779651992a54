"""Reading the results of a study: a CSV per run, a JSON beside it, and summaries."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from bo_stream.errors import InputError

__all__ = ["StudyResults", "StudyRun", "describe", "read_results"]

TASK = ("problem", "cells", "observation", "kernel")
"""Keys of a JSON that describe the task; runs of different tasks are shown separately."""
METHOD = ("surrogate", "policy")
FEW = 300
"""Maximum number of rows of a CSV that is shown as a summary."""


@dataclass(frozen=True)
class StudyRun:
    """One run of a study.

    Attributes:
        label: Name of its method.
        seed: Number of the run among those of its method.
        task: Description of its task; empty if unknown.
        table: Its table, one row per step.
        about: Its JSON; empty if there is none.
    """

    label: str
    seed: int
    task: str
    table: pd.DataFrame
    about: Mapping[str, Any]


@dataclass(frozen=True)
class StudyResults:
    """The results in a folder.

    Attributes:
        runs: Runs, sorted by task, label and seed.
        summaries: Other tables, by the names of their files.
    """

    runs: list[StudyRun]
    summaries: dict[str, pd.DataFrame]

    @property
    def tasks(self) -> list[str]:
        """All tasks."""
        return list(dict.fromkeys(run.task for run in self.runs))


def read_results(folder: Path) -> StudyResults:
    """The results in a folder.

    A run is a file ``<label>_<seed>.csv`` with a column ``step``.

    Raises:
        InputError: if there is no run, or an invalid CSV.
    """
    runs, summaries = [], {}
    for path in sorted(folder.glob("*.csv")):
        table = _read(path)
        if "step" not in table or not re.search(r"_\d+$", path.stem):
            if 0 < len(table) <= FEW:
                summaries[path.stem] = table
        elif len(table):
            runs.append(_run(path, table))
    if not runs:
        inner = sorted({p.parent.relative_to(folder).as_posix() for p in folder.glob("*/**/*.csv")})
        raise InputError(
            "a folder with runs: files like wiski_0.csv with a column step",
            f"none in {folder}",
            f"Name one of its folders: {', '.join(inner[:5])}." if inner else "Correct the path.",
        )
    return StudyResults(_distinguish(runs), summaries)


def describe(choice: Any) -> str:
    """A name, or a mapping of name and options, as text."""
    if not isinstance(choice, Mapping):
        return str(choice)
    rest = (f"{key} {describe(value)}" for key, value in choice.items() if key != "name")
    return ", ".join([*([str(choice["name"])] if "name" in choice else []), *rest])


def _read(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path)
    except ValueError as error:
        raise InputError(
            "a table in CSV", f"{path}: {error}", "Remove the file from the folder."
        ) from error


def _run(path: Path, table: pd.DataFrame) -> StudyRun:
    stem, _, seed = path.stem.rpartition("_")
    beside = path.with_suffix(".json")
    try:
        about = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    except ValueError as error:
        raise InputError("JSON", f"{beside}: {error}", "Remove the file.") from error
    method = [describe(about[key]) for key in METHOD if isinstance(about.get(key), str)]
    label = str(about.get("label") or ", ".join(method) or stem)
    task = "; ".join(describe(about[key]) for key in TASK if about.get(key))
    return StudyRun(label, int(seed), task, table.sort_values("step"), about)


def _distinguish(runs: list[StudyRun]) -> list[StudyRun]:
    """Add the acquisition function to labels where a task has several."""
    rules: dict[str, set[str]] = {}
    for run in runs:
        rules.setdefault(run.task, set()).add(describe(run.about.get("acquisition", "")))
    named = [
        replace(run, label=f"{run.label}, {describe(run.about['acquisition'])}")
        if len(rules[run.task]) > 1 and "acquisition" in run.about
        else run
        for run in runs
    ]
    return sorted(named, key=lambda run: (run.task, run.label, run.seed))
