"""Campaigns of two policies compared, with a map maker's baseline and an exact GP."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from bo_stream.scores import inverse_distance
from experiments.active_learning.campaigns import exact_like, saved
from experiments.common.command import BadParameter

__all__ = ["KEYS", "compared", "found"]

KEYS = ["cells", "observation", "surrogate", "kernel"]
"""What pairs of campaigns have in common, beside the seed."""


def found(
    folders: Iterable[Path],
) -> tuple[dict[tuple[Any, ...], dict[str, Path]], dict[str, str]]:
    """Saved campaigns in pairs, and whom to credit for their cells.

    Returns:
        For each `KEYS` and seed the JSON of either policy, and each cells' attribution.

    Raises:
        BadParameter: if a JSON is not that of a campaign, or there is no pair.
    """
    folders = list(folders)
    runs: dict[tuple[Any, ...], dict[str, Path]] = {}
    credits = {}
    for path in sorted(p for folder in folders for p in folder.glob("*.json") if p.stem != "sweep"):
        about = json.loads(path.read_text())
        missing = {*KEYS, "seed", "policy", "source"} - about.keys()
        if missing:
            raise BadParameter(
                f"{path}: expected the JSON of a saved campaign, got none of {sorted(missing)}."
            )
        key = (*(about[k] for k in KEYS), about["seed"])
        runs.setdefault(key, {})[about["policy"]] = path
        credits[about["cells"]] = about["attribution"]
    pairs = {key: paths for key, paths in runs.items() if {"nipv", "random"} <= set(paths)}
    if not pairs:
        raise BadParameter(
            "expected campaigns of the policies nipv and random that are alike but for the policy, "
            f"got {sum(map(len, runs.values()))} campaigns without such a pair in "
            f"{', '.join(map(str, folders))}. Run experiments.active_learning first."
        )
    return pairs, credits


def compared(paths: dict[str, Path], half: int | None, exact: bool) -> dict[str, float]:
    """One seed's numbers, from the campaigns of both policies."""
    nipv, random = (pd.read_csv(paths[p].with_suffix(".csv")) for p in ("nipv", "random"))
    if nipv["n"].tolist() != random["n"].tolist():
        raise BadParameter(
            f"expected campaigns of one length, got {nipv['n'].iloc[-1]} cells in {paths['nipv']} "
            f"and {random['n'].iloc[-1]} in {paths['random']}. Run the shorter one again."
        )
    half = int(nipv["n"].iloc[len(nipv) // 2]) if half is None else half
    if half not in nipv["n"].to_numpy():
        raise BadParameter(
            f"expected --half to be among the cells recorded in {paths['nipv']}, "
            f"{', '.join(map(str, nipv['n'].head(3)))}, ..., {nipv['n'].iloc[-1]}; got {half}."
        )
    random_one = saved(paths["random"])
    cells, split = random_one.campaign.cells, random_one.campaign.split
    queried, test = random_one.queried, split.test
    guess = inverse_distance(cells.X[queried], split.observed[queried], cells.X[test])
    idw = float((guess - cells.Y[test]).square().mean().sqrt())
    last, late = nipv.iloc[-1], nipv[nipv["n"] >= half]
    middle = float(nipv.loc[nipv["n"] == half, "rmse"].iloc[0])
    numbers = {
        "n": float(last["n"]),
        "nipv": last["rmse"],
        "random": random["rmse"].iloc[-1],
        "nipv / random": last["rmse"] / random["rmse"].iloc[-1],
        "inverse distance": idw,
        "n half way": float(half),
        "nipv half way": middle,
        "least coverage": late["coverage"].min(),
        "largest coverage": late["coverage"].max(),
    }
    if exact:
        numbers["exact GP half way"] = exact_like(paths["nipv"], half)
        numbers["nipv / exact half way"] = middle / numbers["exact GP half way"]
    return numbers
