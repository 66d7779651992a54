"""Every table and split streamed, and compared with a GP on all rows at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from bo_stream.campaign.records import environment, write_table
from experiments.common.expand import plain
from experiments.common.provenance import provenance
from experiments.common.splits import TableSplit
from experiments.common.sweep import Callback, table
from experiments.model_size.recipe import errors, reference, rows, stream

__all__ = ["Run", "found", "planned"]


@dataclass(frozen=True)
class Run:
    """One split of one table.

    Attributes:
        name: Of the table.
        seed: Of the split.
        steps: Batches.
        c: The recipe.
    """

    name: str
    seed: int
    steps: int
    c: dict[str, Any]

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return f"{plain(self.name)}_{self.seed}"

    def execute(self, folder: Path, progress: Callback) -> None:
        """Stream it; write a row a batch, and in the JSON how it compares in the end.

        The excess error is how much of the way back from the full GP's error to that of the mean a
        stream goes.
        """
        split = TableSplit.sorted(*rows(self.name), self.c["share"], self.seed)
        model, course = stream(split, self.steps, self.c, progress)
        full, kind = reference(split, self.c)
        (rmse, nlpd), (rmse_full, nlpd_full) = errors(split, model), errors(split, full)
        rmse_mean = errors(split, None)[0]
        result = {
            "table": self.name,
            "split": self.seed,
            "points": len(model.inducing_points),
            "rmse": rmse,
            "rmse_full": rmse_full,
            "rmse_mean": rmse_mean,
            "excess_%": 100.0 * (rmse - rmse_full) / (rmse_mean - rmse_full),
            "nlpd": nlpd,
            "nlpd_full": nlpd_full,
            "full": kind,
        }
        facts = {"dim": split.X.shape[1], "scenario": self.name, "seed": self.seed}
        facts |= {"policy": "VIPS", "rmse_full": rmse_full, "nlpd_full": nlpd_full}
        frame = pd.DataFrame([facts | row for row in course])
        about = {"result": result, "dtype": str(split.X.dtype), "config": self.c, **provenance()}
        about["environment"] = environment()
        write_table(frame, folder / f"{self.stem}.csv", about)


def planned(c: dict[str, Any]) -> list[Run]:
    """A run for each table and split of a configuration.

    Raises:
        DataNotFound: if the data of any table is not there.
    """
    for name in c["tables"]:
        rows(name)
    unsaid = ("tables", "splits", "output", "takes")
    recipe = {key: value for key, value in c.items() if key not in unsaid}
    return [
        Run(name, seed, batches, recipe)
        for name, batches in c["tables"].items()
        for seed in c["splits"]
    ]


def found(runs: Sequence[Run], folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Results by table and split, and by batch, of runs that are done."""
    about = [json.loads((folder / f"{run.stem}.json").read_text()) for run in runs]
    results = pd.DataFrame([each["result"] for each in about])
    return results, pd.concat([table(folder, run.stem) for run in runs], ignore_index=True)
