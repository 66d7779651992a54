"""The matrix of a malaria study: lists in a TOML file, checked, and narrowed by options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.common.command import TAKES, BadParameter, parsed

__all__ = ["narrowed", "read", "smoked"]

LISTS = ("observations", "surrogates", "grid_size", "policies", "kernels", "seeds")
REQUIRED = {*LISTS, "output", "steps", "q", "num_initial", "num_test", "fit"}
OPTIONAL = {"source", "year", "release", "cells", "num_actions", TAKES}
FIT = {"every_step_until", "then_every", "max_evals", "first_max_evals"}


def read(path: Path) -> dict[str, Any]:
    """A configuration with all the keys it needs and no other.

    Raises:
        BadParameter: for anything else, naming the keys.
    """
    c = parsed(path)
    missing, unknown = REQUIRED - c.keys(), c.keys() - REQUIRED - OPTIONAL
    if missing or unknown:
        raise BadParameter(
            f"{path}: expected the keys of configs/malaria_senegal.toml; missing: "
            f"{_names(missing)}; unknown: {_names(unknown)}."
        )
    for key in LISTS:
        if not isinstance(c[key], list) or not c[key]:
            raise BadParameter(f"{path}: expected {key} to be a list, got {c[key]!r}.")
    if not isinstance(c["fit"], dict) or c["fit"].keys() - FIT:
        raise BadParameter(f"{path}: expected [fit] with {_names(FIT)}, got {c['fit']!r}.")
    return c


def narrowed(c: dict[str, Any], chosen: dict[str, list[Any] | None]) -> dict[str, Any]:
    """A configuration with only the chosen values of some of its lists.

    Raises:
        BadParameter: for a value that the configuration does not have.
    """
    for key, values in chosen.items():
        for value in values or []:
            if value not in c[key]:
                raise BadParameter(
                    f"expected one of the configuration's {key}, {_names(c[key])}; got {value!r}."
                )
    return c | {key: values for key, values in chosen.items() if values}


def smoked(c: dict[str, Any]) -> dict[str, Any]:
    """A configuration of seconds on a small synthetic field: one kernel, one seed, three steps."""
    small = {"steps": 3, "num_test": 300, "cells": 900, "grid_size": [16], "source": None}
    first = {key: c[key][:1] for key in ("kernels", "seeds")}
    return c | small | first


def _names(values: Any) -> str:
    return ", ".join(sorted(map(str, values))) or "none"
