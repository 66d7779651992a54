"""Every table and split streamed, and compared with a GP on all rows at once."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from experiments.common.progress import Progress, say
from experiments.common.splits import TableSplit
from experiments.model_size.recipe import errors, reference, rows, stream

__all__ = ["streamed"]

COLUMNS = ["table", "split", "points", "rmse", "rmse_full", "rmse_mean", "excess_%"]


def streamed(c: dict[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Results by table and split, and by batch.

    The excess error is how much of the way back from the full GP's error to that of the mean a
    stream goes.
    """
    results, batches = [], []
    names = [(name, seed) for name in c["tables"] for seed in c["splits"]]
    tables = {name: rows(name) for name in c["tables"]}  # all of them, should one be missing
    progress = Progress(len(names), "splits")
    for name, seed in names:
        split = TableSplit.sorted(*tables[name], c["share"], seed)
        model, course = stream(split, c["tables"][name], c, partial(progress, done=0))
        full, kind = reference(split, c)
        (rmse, nlpd), (rmse_full, nlpd_full) = errors(split, model), errors(split, full)
        rmse_mean = errors(split, None)[0]
        excess = 100.0 * (rmse - rmse_full) / (rmse_mean - rmse_full)
        M = len(model.inducing_points)
        scores = (rmse, rmse_full, rmse_mean, excess, nlpd, nlpd_full)
        results.append((name, seed, M, *scores, kind))
        facts = {"dim": split.X.shape[1], "scenario": name, "seed": seed, "policy": "VIPS"}
        facts |= {"rmse_full": rmse_full, "nlpd_full": nlpd_full}
        batches += [facts | row for row in course]
        say(f"{name}, split {seed}: {M} points, excess error {excess:.1f} %")
        progress()
    columns = [*COLUMNS, "nlpd", "nlpd_full", "full"]
    return pd.DataFrame(results, columns=columns), pd.DataFrame(batches)
