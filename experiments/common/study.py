"""Studies that plan runs from a TOML file, sweep them and report on them.

A list in a configuration stands for several values, one after the other: ``dim = [3, 6]`` are two
problems. A value that is itself a list is written as a list of one: ``weights = [[0.2, 0.8]]`` is
one value. `python -m experiments.report FOLDER` makes a page of the results.
"""

import inspect
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from typing import Any

import typer

from bo_stream.cli.page import describe  # what its page of the results calls a choice
from bo_stream.errors import BoStreamError, InputError
from experiments.common.baselines.registry import FAMILIES
from experiments.common.command import TAKES, BadParameter, begin, refuse_unknown
from experiments.common.loops import FitPolicy
from experiments.common.progress import say
from experiments.common.sweep import Redo, finished, sweep
from problems.errors import BadData

TABLE = ("name", "label", "target", "inputs", "leak")
"""Keys of a table: see `experiments.common.data.rows_of`."""
ABOUT = ("name", "label", "least_inputs", "most_inputs")
"""Keys of a surrogate that are not options of its family."""

Entry = Mapping[str, Any]


def conduct(
    own: Any,
    c: dict[str, Any],
    output: str | Path,
    out: Path | None = None,
    smoke: bool = False,
    workers: int | None = None,
    retry: bool = False,
    fresh: bool = False,
    only: Sequence[str] | None = None,
    minutes: float | None = None,
) -> Path:
    """Sweep the runs of a configuration and report on them; returns the folder of the results.

    ``own`` is the study: ``plan(c, smoke)`` gives its runs, ``report(c, done, folder)`` gets those
    that are done, now or before, each with its table. The rest are the options of
    `experiments.common.command`; a smoke run ignores results from before, and has no processes of
    its own.
    """
    redo: Redo = "all" if fresh or smoke else "failed" if retry else "nothing"
    number = workers if workers is not None else 0 if smoke else 2
    try:
        runs = own.plan(c, smoke)
        chosen = [run for run in runs if any(fnmatch(run.stem, one) for one in only or ["*"])]
        if runs and not chosen:  # none where packages are missing
            raise BadParameter(f"no run is named like {only}; there are {runs[0].stem} and others.")
        folder = begin(output, out, smoke, c.get(TAKES))
        how: dict[str, Any] = {"workers": number, "redo": redo, "minutes": minutes}
        outcomes = sweep(chosen, folder, about={"study": c}, **how)
    except (BoStreamError, BadData) as error:
        raise BadParameter(str(error)) from error
    failed = {outcome.stem: outcome for outcome in outcomes if outcome.reason}
    if done := finished(runs, folder):
        own.report(c, done, folder)
    for outcome in failed.values():
        say(f"{outcome.stem} failed: {outcome.reason}; see {folder / outcome.stem}.error.txt")
    if left := len(chosen) - len(outcomes):
        say(f"{left} of {len(chosen)} runs are left; the same command goes on with them.")
    if failed:
        say(f"{len(failed)} of {len(chosen)} runs failed; --retry runs them again.")
        raise typer.Exit(1)
    return folder


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings such as BoTorch's advice on scaling, and retries of optimisers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# -- entries of a configuration ------------------------------------------------------------------


def listed(value: Any) -> list[Any]:
    """A list as it is, anything else as a list of one."""
    return list(value) if isinstance(value, list) else [value]


def expanded(table: Entry) -> list[dict[str, Any]]:
    """Every combination of the values in a table's lists, the last key's values changing fastest.

    Lists inside tables count, too: ``actions = { num_actions = [32, 64] }`` are two tables.
    """
    choices = []
    for key, values in table.items():
        each = [expanded(v) if isinstance(v, Mapping) else [v] for v in listed(values)]
        if not each:
            raise InputError(f"{key}, a value or a list of values", "an empty list", "Give one.")
        choices.append([(key, value) for part in each for value in part])
    return [dict(pairs) for pairs in product(*choices)]


def told_apart(entries: Sequence[Entry], what: str) -> tuple[list[str], list[str]]:
    """Labels of a configuration's entries, and their parts in names of files.

    The label of an entry is its ``label`` or, without one, its ``name``; where several entries have
    the same, the options in which they differ are added. The part in names of files is the
    entry's name, followed by its label where others have the same name.

    Raises:
        InputError: if two entries cannot be told apart; ``what`` they are, in the plural.
    """
    names = [_base(entry) for entry in entries]
    labels = [_label(entry, entries) for entry in entries]
    files = [
        name if names.count(name) == 1 else f"{name}_{plain(label)}"
        for name, label in zip(names, labels, strict=True)
    ]
    if len({file.lower() for file in files}) < len(files) or len(set(labels)) < len(labels):
        raise InputError(
            f"{what} that can be told apart by their labels",
            f"{labels}",
            "Give each a label of its own, different in letters or digits.",
        )
    return labels, files


def plain(label: str) -> str:
    """A label as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", label).strip("-")


def tables(
    entries: Sequence[Entry], also: Sequence[str] = ()
) -> list[tuple[dict[str, Any], str, str]]:
    """Every table of a configuration: its entry, its label, its part in names of files.

    A list of targets stands for a table each. ``also`` are further keys that the study knows.
    """
    for entry in entries:
        refuse_unknown(entry, (*TABLE, *also), f"table {entry.get('name')}")
    whole = [{k: [v] if k == "inputs" else v for k, v in entry.items()} for entry in entries]
    every = [one for entry in whole for one in expanded(entry)]
    return list(zip(every, *told_apart(every, "tables"), strict=True))


def surrogates(entries: Sequence[Entry]) -> list[tuple[dict[str, Any], str, str]]:
    """Every surrogate of a configuration: its entry, its label, its part in names of files."""
    every = [one for entry in entries for one in expanded(entry)]
    return list(zip(every, *told_apart(every, "surrogates"), strict=True))


def without(entry: Entry, keys: Sequence[str] = ABOUT) -> dict[str, Any]:
    """An entry without some of its keys."""
    return {key: value for key, value in entry.items() if key not in keys}


def takes_part(entry: Entry, inputs: int) -> bool:
    """Whether a surrogate is meant for so many inputs, by its own entry."""
    return bool(entry.get("least_inputs", 1) <= inputs <= entry.get("most_inputs", inputs))


def refuse_options(entry: Entry, also: Sequence[str] = ()) -> None:
    """End the command in one line if a family does not exist or has no such option.

    ``also`` are further keys that the study knows.
    """
    name = entry.get("name")
    if name not in FAMILIES:
        raise BadParameter(f"no surrogate {name}; there are {', '.join(FAMILIES)}.")
    options = inspect.signature(FAMILIES[name]).parameters
    known = {key for key in options if not key.startswith("train_")} - {"bounds"}
    refuse_unknown(entry, {*known, *ABOUT, *also}, f"surrogate {name}")


def fit_policy(settings: Entry) -> FitPolicy:
    """When a loop fits, from a table of a configuration."""
    refuse_unknown(settings, (field.name for field in fields(FitPolicy)), "fit")
    return FitPolicy(**settings)


def _base(entry: Entry) -> str:
    """An entry's name; of a table that is named by its file, that of the file without suffix."""
    return Path(str(entry["name"])).name.removesuffix(".gz").removesuffix(".csv")


def _label(entry: Entry, entries: Sequence[Entry]) -> str:
    base = entry.get("label", _base(entry))
    kin = [other for other in entries if other.get("label", _base(other)) == base]
    own = [
        f"{key} {describe(value)}"
        for key, value in entry.items()
        if key != "label" and any(key not in other or other[key] != value for other in kin)
    ]
    return ", ".join([str(base), *own])
