"""Lists in a configuration: every combination of their values, and names that tell them apart.

A list stands for several values, one after the other: ``dim = [3, 6]`` are two problems. A value
that is itself a list is written as a list of one: ``weights = [[0.2, 0.8]]`` is one value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from bo_stream.cli.reports.runs import describe
from bo_stream.errors import InputError

__all__ = ["expanded", "plain", "told_apart"]

Entry = Mapping[str, Any]


def expanded(table: Entry) -> list[dict[str, Any]]:
    """Every combination of the values in a table's lists, the last key's values changing fastest.

    Lists inside tables count, too: ``actions = { num_actions = [32, 64] }`` are two tables.

    Args:
        table: Part of a configuration.

    Raises:
        InputError: for a list without values.

    Example:
        >>> expanded({"name": ["levy", "ackley"], "dim": 3})
        [{'name': 'levy', 'dim': 3}, {'name': 'ackley', 'dim': 3}]
    """
    choices = [[(key, value) for value in _choices(key, given)] for key, given in table.items()]
    return [dict(pairs) for pairs in product(*choices)]


def told_apart(entries: Sequence[Entry], what: str) -> tuple[list[str], list[str]]:
    """Labels of a configuration's entries, and their parts in names of files.

    The label of an entry is its ``label`` or, without one, its ``name``; where several entries have
    the same, the options in which they differ are added. The part in names of files is the
    entry's name, followed by its label where others have the same name.

    Args:
        entries: Tables with a ``name``.
        what: What they are, in the plural, for errors.

    Raises:
        InputError: if two entries cannot be told apart.

    Example:
        >>> told_apart([{"name": "wiski", "grid_size": n} for n in (8, 12)], "surrogates")[1]
        ['wiski_wiski-grid-size-8', 'wiski_wiski-grid-size-12']
    """
    names = [str(entry["name"]) for entry in entries]
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


def _choices(key: str, given: Any) -> list[Any]:
    if isinstance(given, Mapping):
        return expanded(given)
    if not isinstance(given, list):
        return [given]
    if not given:
        raise InputError(f"{key}, a value or a list of values", "an empty list", "Give one value.")
    return [each for value in given for each in (expanded(value) if _table(value) else [value])]


def _table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _label(entry: Entry, entries: Sequence[Entry]) -> str:
    base = _base(entry)
    kin = [other for other in entries if _base(other) == base]
    own = [
        f"{key} {describe(value)}"
        for key, value in entry.items()
        if key != "label" and any(key not in other or other[key] != value for other in kin)
    ]
    return ", ".join([base, *own])


def _base(entry: Entry) -> str:
    return str(entry.get("label", entry["name"]))
