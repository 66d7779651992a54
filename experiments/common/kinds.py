"""What kinds of studies that plan runs from a TOML file share: its keys, labels, running them.

A kind has a function ``plan`` that turns the file into runs; each writes a table with a row a step
and, beside it, how it came about, as ``bo-stream report`` reads them.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pandas as pd
import torch

from bo_stream import actions, growth
from bo_stream.families import FAMILIES
from experiments.common.command import TAKES, BadParameter, parsed, read
from experiments.common.progress import Progress

__all__ = [
    "PlannedRun",
    "built",
    "configured",
    "finished",
    "listed",
    "quiet",
    "refuse_unknown",
    "takes_part",
    "told_apart",
    "without",
]

ABOUT = ("name", "label", "least_inputs", "most_inputs")
"""Keys of a surrogate that say which it is and where it takes part."""

Entry = dict[str, Any]
Told = Callable[[Mapping[str, Any]], None]
R = TypeVar("R", bound="PlannedRun")


class PlannedRun(Protocol):
    """One run of a plan, which can be sent to another process.

    Attributes:
        stem: Name of its files, without suffix.
        steps: Amount of work.
    """

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        ...

    @property
    def steps(self) -> int:
        """Amount of work."""
        ...

    def execute(self, folder: Path, progress: Told) -> None:
        """Do it and write its files, calling ``progress`` with rows as they come."""
        ...


def configured(config: Path, default: Path) -> dict[str, Any]:
    """A configuration with the keys of the default one and no others (but for ``takes``)."""
    c = read(config, default)
    refuse_unknown(c, {*parsed(default), TAKES}, str(config))
    return c


def refuse_unknown(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """End the command in one line if there is a key that means nothing."""
    known = list(known)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise BadParameter(
            f"{what} has {', '.join(unknown)}; known are {', '.join(sorted(known))}."
        )


def listed(value: Any) -> list[Any]:
    """A list as it is, anything else as a list of one."""
    return list(value) if isinstance(value, list) else [value]


def told_apart(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """A label of each entry, and what the names of its files have of it.

    An entry whose name occurs once goes by its name. One whose name occurs more than once goes by
    its options where it has no label, and its files have the label in their names.
    """
    names = [entry["name"] for entry in entries]
    told = []
    for entry in entries:
        name, options = entry["name"], without(entry, ("name", "label"))
        alone = names.count(name) == 1
        described = ", ".join([name, *(f"{key} {value}" for key, value in options.items())])
        label = str(entry.get("label", name if alone else described))
        told.append((label, _plain(name if alone else f"{name}_{label}")))
    for one in zip(*told, strict=True):
        if len({said.lower() for said in one}) < len(told):
            raise BadParameter(
                f"{', '.join(label for label, _ in told)} cannot all be told apart; give each a "
                "label of its own, different in letters or digits."
            )
    return told


def without(entry: Mapping[str, Any], keys: Iterable[str] = ABOUT) -> Entry:
    """An entry less some keys."""
    left = set(keys)
    return {key: value for key, value in entry.items() if key not in left}


def takes_part(entry: Mapping[str, Any], inputs: int) -> bool:
    """Whether a surrogate is for so many inputs."""
    return bool(entry.get("least_inputs", 1) <= inputs <= entry.get("most_inputs", inputs))


def refuse_options(entry: Mapping[str, Any], also: Iterable[str] = ()) -> None:
    """End the command in one line if a family of bo_stream does not exist or has no such option.

    Args:
        entry: Of a surrogate.
        also: Keys that the study has a use for.
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
    """One torch thread, and no advice from BoTorch on scaling, while a run is under way."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def finished(runs: Sequence[R], folder: Path) -> list[tuple[R, pd.DataFrame]]:
    """Carry out a plan; its runs with their tables, as they lie in the folder."""
    _serial(runs, folder)
    paths = [(run, folder / f"{run.stem}.csv") for run in runs]
    return [(run, pd.read_csv(path)) for run, path in paths if path.exists()]


def _serial(runs: Sequence[PlannedRun], folder: Path) -> None:
    """All runs, one after the other."""
    progress = Progress(len(runs), "runs")
    for run in runs:
        run.execute(folder, lambda row, stem=run.stem: progress(stem, done=0))  # type: ignore[misc]
        progress(run.stem)


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-")
