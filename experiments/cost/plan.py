"""The runs of a configuration: every number of inputs, surrogate and seed."""

from __future__ import annotations

from dataclasses import fields
from itertools import product
from typing import Any

from acquisitions.build import NAMES
from experiments.common.command import BadParameter
from experiments.common.kinds import (
    listed,
    refuse_options,
    refuse_unknown,
    surrogates,
    takes_part,
)
from experiments.cost.measured import Cost, Sizes

__all__ = ["plan"]

SMOKE = {"n": [20, 40], "points": 10, "repetitions": 1, "unit": 50, "evaluations": 3}
SMOKE |= {"num_restarts": 1, "raw_samples": 4}


def plan(c: dict[str, Any], smoke: bool = False) -> list[Cost]:
    """All runs, each with a stem of its own.

    Args:
        c: The configuration; see ``experiments/configs/cost.toml``.
        smoke: Few points, one repetition, one number of inputs, one seed.

    Raises:
        BadParameter: for what the configuration cannot mean, in one line.
    """
    for entry in c["surrogate"]:
        refuse_options(entry, ["most"])
    refuse_unknown([c["acquisition"].get("name", "none")], NAMES, "acquisition")
    given = {field.name: c[field.name] for field in fields(Sizes)} | (SMOKE if smoke else {})
    given["n"] = tuple(sorted(listed(given["n"])))
    if not given["n"] or given["n"][0] < 2:
        raise BadParameter(f"n is {list(given['n'])}; it has to be a list of numbers from 2 on.")
    sizes = Sizes(**given)
    methods = surrogates(c["surrogate"])
    for entry, *_ in methods:
        if entry.get("most", sizes.n[0]) < sizes.n[0]:
            raise BadParameter(f"surrogate {entry['name']} has most below the least n.")
    seeds, inputs = ([c[key][0]] if smoke else c[key] for key in ("seeds", "inputs"))
    return [
        Cost(label, files, entry, c["function"], dim, c["acquisition"], sizes, seed)
        for dim, (entry, label, files), seed in product(inputs, methods, seeds)
        if takes_part(entry, dim)
    ]
