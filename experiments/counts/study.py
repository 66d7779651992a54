"""The surveys of a configuration, and what is printed of them."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.active_learning.campaigns import load_cells
from experiments.common.command import BadParameter, refuse_unknown
from experiments.common.plots import draw_bands
from experiments.common.progress import say
from experiments.counts.survey import POLICIES, Survey
from problems.errors import DataNotFound

OPTIONAL = ("source", "year", "release", "cells")
SMOKE = {"sites": 30, "num_test": 200, "cells": 600, "source": None}
WORDS = {
    "prevalence": "integrated variance of the prevalence",
    "latent": "integrated variance of its logit",
    "logits": "the same from empirical logits",
    "random": "random sites",
}
ABOUT = ("title", "output", "takes", "policies", "seeds")
"""Keys that no single survey depends on."""
LOOKS = (100, 200, 400)
"""Numbers of sites at which errors are printed."""


def plan(c: dict[str, Any], smoke: bool = False) -> list[Survey]:
    """A survey for every policy and seed; a smoke run has 30 sites of the synthetic field.

    Raises:
        BadParameter: for what the configuration cannot mean.
    """
    refuse_unknown(c["policies"], POLICIES, "policies")
    if smoke:
        c = c | SMOKE | {"seeds": c["seeds"][:1]}
    try:
        cells = load_cells(c)
    except DataNotFound as error:
        say(f"{error}\nRunning on the SYNTHETIC field instead.")
        c = c | {"source": None}
        cells = load_cells(c)
    if c["num_test"] + c["sites"] + c["q"] > len(cells.X) or c["examined"] < 1 or c["q"] < 1:
        raise BadParameter(f"sites and test cells are fewer than {len(cells.X)}, examined above 0.")
    shared = {key: value for key, value in c.items() if key not in ABOUT}
    say(cells.attribution)
    return [Survey(policy, seed, shared) for policy, seed in product(c["policies"], c["seeds"])]


def report(c: dict[str, Any], done: Sequence[tuple[Survey, pd.DataFrame]], folder: Path) -> None:
    """Print medians over seeds, write them to ``errors.csv``, and draw errors against sites."""
    whole = pd.concat([rows.assign(policy=run.policy, seed=run.seed) for run, rows in done])
    shown = whole[whole["n"].isin(LOOKS) | (whole["n"] == whole["n"].max())]
    keys, values = ["policy", "n"], ["rmse", "coverage", "nats"]
    result = shown.groupby(keys, sort=False)[values].median().reset_index()
    result.to_csv(folder / "errors.csv", index=False)
    say(f"\n{c['title']}: medians over seeds\n")
    say(result.to_string(index=False, float_format="{:.4f}".format, na_rep="-"))
    labels = {"n": "sites", "rmse": "RMSE of prevalence at the test cells"}
    path = folder / "errors.png"
    draw_bands([whole], "rmse", "n", ["policy"], path, True, labels, c["title"], words=WORDS)
