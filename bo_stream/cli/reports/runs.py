"""The results of a study as it left them in a folder: a CSV a run, a JSON beside it, summaries."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from bo_stream.errors import InputError

__all__ = ["Results", "Run", "results", "words"]

TASK = ("problem", "cells", "observation", "kernel")
"""What a JSON says about the task; runs of different tasks stand apart."""
METHOD = ("surrogate", "policy")
FEW = 300
"""Rows up to which a CSV that is no run is shown."""


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        label: Of its method.
        seed: Its number among the runs of the method.
        task: What it was run on, in words; empty if nothing says so.
        table: A row a step.
        about: Its JSON; empty if there is none.
    """

    label: str
    seed: int
    task: str
    table: pd.DataFrame
    about: Mapping[str, Any]


@dataclass(frozen=True)
class Results:
    """A folder of results.

    Attributes:
        runs: By task, label and seed.
        summaries: Tables that are no runs, by the names of their files.
    """

    runs: list[Run]
    summaries: dict[str, pd.DataFrame]

    @property
    def tasks(self) -> list[str]:
        """Every task once."""
        return list(dict.fromkeys(run.task for run in self.runs))


def results(folder: Path) -> Results:
    """The results in a folder.

    A run is a file ``<label>_<seed>.csv`` with a column ``step``.

    Raises:
        InputError: if there is no run, or a file that is no CSV.
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
            "a folder with runs, files like wiski_0.csv with a column step",
            f"none in {folder}",
            f"Name one of its folders: {', '.join(inner[:5])}." if inner else "Correct the path.",
        )
    return Results(_told_apart(runs), summaries)


def words(said: Any) -> str:
    """A choice in a JSON, a name or a mapping of name and options, in words."""
    if not isinstance(said, Mapping):
        return str(said)
    rest = (f"{key} {words(value)}" for key, value in said.items() if key != "name")
    return ", ".join([*([str(said["name"])] if "name" in said else []), *rest])


def _read(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path)
    except ValueError as error:
        raise InputError(
            "tables in CSV", f"{path}: {error}", "Take the file out of the folder."
        ) from error


def _run(path: Path, table: pd.DataFrame) -> Run:
    stem, _, seed = path.stem.rpartition("_")
    beside = path.with_suffix(".json")
    try:
        about = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    except ValueError as error:
        raise InputError("JSON", f"{beside}: {error}", "Take the file away.") from error
    said = [words(about[key]) for key in METHOD if isinstance(about.get(key), str)]
    label = str(about.get("label") or ", ".join(said) or stem)
    task = "; ".join(words(about[key]) for key in TASK if about.get(key))
    return Run(label, int(seed), task, table.sort_values("step"), about)


def _told_apart(runs: list[Run]) -> list[Run]:
    """Runs whose labels say their acquisition function where a task has several."""
    rules: dict[str, set[str]] = {}
    for run in runs:
        rules.setdefault(run.task, set()).add(words(run.about.get("acquisition", "")))
    told = [
        replace(run, label=f"{run.label}, {words(run.about['acquisition'])}")
        if len(rules[run.task]) > 1 and "acquisition" in run.about
        else run
        for run in runs
    ]
    return sorted(told, key=lambda run: (run.task, run.label, run.seed))
