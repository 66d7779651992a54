"""The campaigns of a configuration, and the pictures of all of them."""

import textwrap
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.active_learning.campaigns import KERNELS, SOURCE, LearningRun, load_cells, name_of
from experiments.common.command import BadParameter, refuse_unknown
from experiments.common.loops.policies import POLICIES
from experiments.common.loops.pool_config import OBSERVATIONS
from experiments.common.plots import draw_bands, in_words
from experiments.common.progress import say
from experiments.common.study import ABOUT, refuse_options, surrogates, without
from problems.errors import DataNotFound

KNOWN: dict[str, Iterable[str]] = {
    "observations": OBSERVATIONS,
    "policies": POLICIES,
    "kernels": KERNELS,
}
"""Lists of a configuration, and what may be in them."""
SIZES = ("steps", "q", "num_initial", "num_test")
SMOKE = {"steps": 3, "num_test": 300, "raster": [{"cells": 900}]}
SHOWN = ["n", "rmse", "nlpd", "coverage", "wallclock_seconds"]


def plan(c: dict[str, Any], smoke: bool = False) -> list[LearningRun]:
    """A run for every combination of a configuration that its cells allow.

    Args:
        c: Keys of ``configs/malaria_senegal.toml``.
        smoke: Three steps on a small synthetic field; one observation model, kernel and seed.

    Raises:
        InputError: for sizes that no campaign can have.
    """
    for key, known in KNOWN.items():
        refuse_unknown(c[key], known, key)
    for entry in c["surrogate"]:
        refuse_options(entry)
    if smoke:
        c = c | SMOKE | {key: c[key][:1] for key in ("kernels", "seeds")}
        c["observations"] = c["observations"][-1:]
    runs = [run for raster in c["raster"] for run in _campaigns(c, raster)]
    for run in runs:
        run.campaign()  # too few cells are refused now, not at the last campaign
    return runs


def report(
    c: dict[str, Any], done: Sequence[tuple[LearningRun, pd.DataFrame]], folder: Path
) -> None:
    """Print the last row of every run that is done, and draw bands over seeds."""
    for run, rows in done:
        say(f"\n{run.stem}\n{rows.iloc[-1][SHOWN].to_string()}")
    whole = pd.concat([rows.assign(**run.facts) for run, rows in done])
    units = {run.cells: load_cells(run.c).units for run, _ in done}
    for cells, part in whole.groupby("cells", sort=False):
        draw_errors(part, units[str(cells)], folder)


def draw_errors(table: pd.DataFrame, units: str, folder: Path) -> None:
    """Draw errors against steps and time, a picture for each raster, observation model and kernel.

    The table has all campaigns' rows with their facts; ``units`` are those of the values.
    """
    rmse = textwrap.fill(f"RMSE at the test cells ({units})", 50)
    axes = {
        "steps": ("step", "step (a batch of cells each)"),
        "wallclock": ("wallclock_seconds", "wall-clock time (seconds)"),
    }
    curves = ["surrogate", "policy"]
    words = {name: in_words(name) for key in curves for name in table[key].unique()}
    for key, part in table.groupby(["cells", "observation", "kernel"], sort=False):
        stem = "_".join(map(str, key)).replace(" ", "-")
        title = "Error of the map: " + ", ".join(in_words(str(k)) for k in key)
        for name, (x, label) in axes.items():
            path, labels = folder / f"{stem}_rmse_{name}.png", {x: label, "rmse": rmse}
            timed = name == "wallclock"
            draw_bands([part], "rmse", x, curves, path, True, labels, title, timed, words)


def _campaigns(c: dict[str, Any], raster: dict[str, Any]) -> list[LearningRun]:
    """The runs on one raster, those of a seed together."""
    refuse_unknown(raster, SOURCE, "raster")
    try:
        cells = load_cells(raster)
    except DataNotFound as error:
        say(f"{error}\nRunning on the SYNTHETIC field instead.")
        raster = raster | {"source": None}
        cells = load_cells(raster)
    observations = c["observations"]
    if cells.Yvar is None and "known noise" in observations:
        say(f"{cells.name}: no standard deviations, no known noise.")
        observations = [o for o in observations if o != "known noise"]
    if not observations:
        raise BadParameter("these cells allow no observation model of these; take 'raster'.")
    shared = {key: c[key] for key in (*SIZES, "fit")} | raster
    families = surrogates(c["surrogate"])
    each = product(c["seeds"], observations, families, c["policies"], c["kernels"])
    runs = [
        LearningRun(name_of(cells), seen, label, policy, kernel, seed, own, shared)
        for seed, seen, (entry, label, _), policy, kernel in each
        if (own := without(entry, ABOUT[1:]))
    ]
    say(f"{len(runs)} campaigns on {len(cells.X)} cells. {cells.attribution}")
    return runs
