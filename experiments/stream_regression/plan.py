"""The runs of a configuration: every table, order, surrogate and seed."""

from __future__ import annotations

import inspect
from dataclasses import fields
from itertools import product
from typing import Any

from bo_stream.surrogates.registry import FAMILIES
from experiments.common.baselines.registry import BASELINES
from experiments.common.command import BadParameter
from experiments.common.expand import told_apart
from experiments.common.kinds import (
    ABOUT,
    listed,
    refuse_options,
    refuse_unknown,
    surrogates,
    takes_part,
)
from experiments.stream_regression.course import Course, Sizes
from experiments.stream_regression.rows import MADE_UP, ORDERS, rows_of

__all__ = ["plan"]

TABLE = ("name", "label", "inputs", "targets")
SMOKE = {"rows": 90, "test": 40, "first": 30, "batch": 20, "evaluations": 5}


def plan(c: dict[str, Any], smoke: bool = False) -> list[Course]:
    """All runs, each with a stem of its own.

    Args:
        c: The configuration; see ``experiments/configs/stream_tables.toml``.
        smoke: Few rows that were made up instead of tables, and one seed.

    Raises:
        BadParameter: for what the configuration cannot mean, in one line.
    """
    for entry in c["table"]:
        refuse_unknown(entry, TABLE, f"table {entry.get('name')}")
    for entry in c["surrogate"]:
        _check(entry)
    refuse_unknown(listed(c["order"]), ORDERS, "order")
    sizes = {field.name: c[field.name] for field in fields(Sizes)} | (SMOKE if smoke else {})
    _check_sizes(sizes)
    tables = [{"name": MADE_UP}] if smoke else c["table"]
    inputs = [rows_of(entry)[0].shape[1] for entry in tables]
    _, titles = told_apart(tables, "tables")
    methods = surrogates(c["surrogate"])
    places = zip(tables, inputs, titles, strict=True)
    seeds = c["seeds"][:1] if smoke else c["seeds"]
    return [
        Course(label, files, entry, table, order, Sizes(**sizes), seed, title)
        for (table, dim, title), order, (entry, label, files), seed in product(
            places, listed(c["order"]), methods, seeds
        )
        if takes_part(entry, dim)
    ]


def _check(entry: dict[str, Any]) -> None:
    name = entry.get("name")
    if name in BASELINES:
        known = set(inspect.signature(BASELINES[name]).parameters) - {"seed", "given"}
        refuse_unknown(entry, {*known, *ABOUT, "rows", "seconds"}, f"baseline {name}")
    elif name in FAMILIES:
        refuse_options(entry, ["rows", "forget"])
    else:
        known_names = ", ".join([*FAMILIES, *BASELINES])
        raise BadParameter(f"no surrogate {name}; there are {known_names}.")


def _check_sizes(sizes: dict[str, Any]) -> None:
    least = {"rows": 3, "test": 1, "first": 2, "batch": 1, "evaluations": 1}
    for name, value in least.items():
        if sizes[name] < value:
            raise BadParameter(f"{name} is {sizes[name]}; it has to be at least {value}.")
    if sizes["score_every"] <= 1.0 or (sizes["fit_every"] and sizes["fit_every"] <= 1.0):
        raise BadParameter("score_every and fit_every are factors above 1; fit_every may be 0.")
