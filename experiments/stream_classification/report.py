"""Accuracies and log losses at the end of the streams."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.common.progress import say
from experiments.stream_classification.streams import Exact, Stream

__all__ = ["report"]


def report(
    c: dict[str, Any], done: Sequence[tuple[Stream | Exact, pd.DataFrame]], folder: Path
) -> None:
    """Print medians over seeds and write them to ``accuracies.csv``.

    Args:
        c: The configuration.
        done: Runs with their tables.
        folder: Of the results.
    """
    lines = []
    for run, table in done:
        of = {"table": run.table, "order": run.order, "surrogate": run.label}
        last = table.iloc[-1]
        scored = {name: last[name] for name in ("accuracy", "log_loss", "bytes")}
        seconds = last["wallclock_seconds"] + last["predict_seconds"]
        lines.append(of | {"seed": run.seed} | scored | {"seconds": seconds})
    keys = ["table", "order", "surrogate"]
    ends = pd.DataFrame(lines).groupby(keys, sort=False)
    result = pd.concat([ends.size().rename("seeds"), ends.median().drop(columns="seed")], axis=1)
    result = result.reset_index()
    result.to_csv(folder / "accuracies.csv", index=False)
    say(f"\n{c['title']}: medians over seeds at the end\n")
    say(result.to_string(index=False, float_format="{:.4g}".format, na_rep="-"))
    say(f"\nPictures: bo-stream report {folder}")
