"""The campaigns of a configuration run one after another, saved and drawn."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.active_learning.campaigns import Planned, provenance
from experiments.active_learning.maps import described, draw_maps
from experiments.common.plots import draw_bands
from experiments.common.progress import Progress, say
from experiments.common.words import in_words
from problems.malaria import Malaria

__all__ = ["run_all"]

CURVES = ["surrogate", "policy", "observation", "kernel"]
SHOWN = ["n", "rmse", "nlpd", "coverage", "wallclock_seconds"]


def run_all(cells: Malaria, planned: list[Planned], c: dict[str, Any], out: Path) -> None:
    """Run every campaign; write its table, JSON and maps, and bands over seeds in the end.

    Args:
        cells: What is measured.
        planned: As `experiments.active_learning.campaigns.campaigns` gives it.
        c: The configuration.
        out: Folder of the results.
    """
    tables = []
    progress = Progress(len(planned) * c["steps"], "steps")

    def tell(row: dict[str, Any]) -> None:
        progress(f"RMSE {row['rmse']:.4g} after {row['n']} cells", done=int(row["step"] > 0))

    for facts, make in planned:
        label = "_".join(str(v) for v in facts.values()).replace(" ", "-")
        say(label)
        campaign = make(callback=tell)
        table = campaign.run()
        campaign.save(out / f"{label}.csv", **facts, **provenance(cells, c))
        draw_maps(campaign, cells, out / f"{label}.png", title=described(facts))
        say(table.iloc[-1][SHOWN].to_string())
        tables.append(table.assign(**facts))
    draw_errors(pd.concat(tables), cells.units, out)


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
