"""The campaigns of a configuration as runs of a sweep, and the pictures of all of them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.active_learning.campaigns import campaigns, load_cells, provenance, single
from experiments.active_learning.maps import described, draw_maps
from experiments.common import provenance as code
from experiments.common.plots import draw_bands
from experiments.common.progress import say
from experiments.common.sweep import Callback, table
from experiments.common.words import in_words
from problems.malaria import Malaria

__all__ = ["Run", "draw_errors", "planned", "report"]

CURVES = ["surrogate", "policy", "observation", "kernel"]
SHOWN = ["n", "rmse", "nlpd", "coverage", "wallclock_seconds"]


@dataclass(frozen=True)
class Run:
    """One campaign.

    Attributes:
        facts: What it is called by in tables and files.
        c: Its configuration, with one value in each list.
    """

    facts: dict[str, Any]
    c: dict[str, Any]

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return "_".join(str(value) for value in self.facts.values()).replace(" ", "-")

    @property
    def steps(self) -> int:
        """How much work it is."""
        return int(self.c["steps"])

    def execute(self, folder: Path, progress: Callback) -> None:
        """Run it, and write table, JSON and maps."""
        cells = _loaded(*(self.c.get(key) for key in ("source", "year", "release", "cells")))
        _, ((facts, make),) = campaigns(self.c, cells)
        campaign = make(callback=progress)
        campaign.run()
        about = {**facts, **provenance(cells, self.c), **code.provenance()}
        campaign.save(folder / f"{self.stem}.csv", **about)
        draw_maps(campaign, cells, folder / f"{self.stem}.png", title=described(facts))


def planned(c: dict[str, Any]) -> tuple[Malaria, list[Run]]:
    """Cells, and a run for every combination of a configuration that they allow.

    Args:
        c: Keys of ``configs/malaria_senegal.toml``.

    Raises:
        InputError: for names or sizes that no campaign can have.
    """
    cells, combinations = campaigns(c)
    facts = [facts for facts, _ in combinations]
    observations = list(dict.fromkeys(each["observation"] for each in facts))
    known = {"source": None} if cells.synthetic else {}
    each = single(c | known | {"observations": observations})
    return cells, [Run(named, one) for named, one in zip(facts, each, strict=True)]


def report(runs: Sequence[Run], units: str, out: Path) -> None:
    """Print the last row of every run that is done, and draw bands over seeds.

    Args:
        runs: Those that are done.
        units: Of the values.
        out: Folder of the results.
    """
    tables = []
    for run in runs:
        rows = table(out, run.stem)
        say(f"\n{run.stem}\n{rows.iloc[-1][SHOWN].to_string()}")
        tables.append(rows.assign(**run.facts))
    draw_errors(pd.concat(tables), units, out)


def draw_errors(table: pd.DataFrame, units: str, out: Path) -> None:
    """Draw errors against steps and time, a picture for each observation model and kernel.

    Args:
        table: All campaigns' rows with their facts.
        units: Of the values.
        out: Folder of the pictures.
    """
    rmse = textwrap.fill(f"RMSE at the test cells ({units})", 50)
    axes = {
        "steps": ("step", "step (a batch of cells each)"),
        "wallclock": ("wallclock_seconds", "wall-clock time (seconds)"),
    }
    words = {name: in_words(name) for key in CURVES for name in table[key].unique()}
    for key, part in table.groupby(["observation", "kernel"], sort=False):
        stem = "_".join(map(str, key)).replace(" ", "-")
        title = "Error of the map: " + ", ".join(in_words(str(k)) for k in key)
        for name, (x, label) in axes.items():
            path, labels = out / f"{stem}_rmse_{name}.png", {x: label, "rmse": rmse}
            draw_bands(
                [part],
                "rmse",
                x,
                CURVES[:2],
                path,
                labels=labels,
                title=title,
                logarithmic_x=name == "wallclock",
                words=words,
            )


@lru_cache(1)
def _loaded(
    source: str | None, year: int | None, release: str | None, cells: int | None
) -> Malaria:
    """Cells, once in a process."""
    said = {"source": source, "year": year, "release": release, "cells": cells}
    return load_cells({key: value for key, value in said.items() if value is not None})
