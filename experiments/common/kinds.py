"""What studies that plan runs from a TOML file share: checks of its keys, labels, results.

Such a study has a function ``plan`` that turns the file into runs. Each run writes a table with a
row for each step and, beside it, how it came about, as ``bo-stream report`` reads them.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import torch

from bo_stream import actions, growth
from bo_stream.errors import BoStreamError
from bo_stream.surrogates.registry import FAMILIES
from experiments.common.command import TAKES, BadParameter, done, parsed, read
from experiments.common.expand import expanded, told_apart
from experiments.common.sweep import Outcome, Run, table

__all__ = [
    "built",
    "configured",
    "finished",
    "listed",
    "planned",
    "quiet",
    "refuse_options",
    "refuse_unknown",
    "surrogates",
    "takes_part",
    "without",
]

ABOUT = ("name", "label", "least_inputs", "most_inputs")
"""Keys of a surrogate that are not options of its family."""

Entry = dict[str, Any]
R = TypeVar("R", bound=Run)


def configured(config: Path, default: Path) -> dict[str, Any]:
    """A configuration with the keys of the default one and no others (but for ``takes``)."""
    c = read(config, default)
    refuse_unknown(c, {*parsed(default), TAKES}, str(config))
    return c


def refuse_unknown(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """End the command in one line if there is an unknown key."""
    known = list(known)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise BadParameter(
            f"{what} has {', '.join(unknown)}; known are {', '.join(sorted(known))}."
        )


def listed(value: Any) -> list[Any]:
    """A list as it is, anything else as a list of one."""
    return list(value) if isinstance(value, list) else [value]


def planned(
    plan: Callable[[dict[str, Any], bool], list[R]], c: dict[str, Any], smoke: bool
) -> list[R]:
    """The runs of a configuration; one that is refused ends the command in one line."""
    try:
        return plan(c, smoke)
    except BoStreamError as error:
        raise BadParameter(str(error)) from error


def surrogates(entries: Sequence[Entry]) -> list[tuple[Entry, str, str]]:
    """Every surrogate of a configuration, with the lists among its options expanded.

    Args:
        entries: Each has ``name`` and options, and may have ``label``.

    Returns:
        The entry of each surrogate, its label, and its part in names of files.
    """
    every = [one for entry in entries for one in expanded(entry)]
    return list(zip(every, *told_apart(every, "surrogates"), strict=True))


def without(entry: Mapping[str, Any], keys: Iterable[str] = ABOUT) -> Entry:
    """An entry without some of its keys."""
    left = set(keys)
    return {key: value for key, value in entry.items() if key not in left}


def takes_part(entry: Mapping[str, Any], inputs: int) -> bool:
    """Whether a surrogate is meant for so many inputs, by its own entry."""
    return bool(entry.get("least_inputs", 1) <= inputs <= entry.get("most_inputs", inputs))


def refuse_options(entry: Mapping[str, Any], also: Iterable[str] = ()) -> None:
    """End the command in one line if a family of bo_stream does not exist or has no such option.

    Args:
        entry: Of a surrogate.
        also: Further keys that the study knows.
    """
    if entry["name"] not in FAMILIES:
        raise BadParameter(f"no surrogate {entry['name']}; there are {', '.join(FAMILIES)}.")
    options = inspect.signature(FAMILIES[entry["name"]]).parameters
    known = {key for key in options if not key.startswith("train_")} - {"bounds"}
    refuse_unknown(entry, {*known, *ABOUT, *also}, f"surrogate {entry['name']}")


def built(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a family with its growth or action policy built, from its ``name`` and options."""
    made = dict(options)
    for key, policies in (("growth", growth), ("actions", actions)):
        if isinstance(made.get(key), dict):
            choice = dict(made[key])
            made[key] = getattr(policies, choice.pop("name"))(**choice)
    return made


@contextmanager
def quiet() -> Iterator[None]:
    """One torch thread, and no warnings such as BoTorch's advice on scaling, during a run."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def finished(
    runs: Sequence[R], outcomes: Iterable[Outcome], folder: Path
) -> list[tuple[R, pd.DataFrame]]:
    """The runs that did not fail, with their tables."""
    return [(run, table(folder, run.stem)) for run in done(runs, outcomes)]
