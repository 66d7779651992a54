"""Streaming classification beside an exact Dirichlet GP, whatever the order of the labels.

Run `python -m experiments.stream_classification` (or name a configuration like
experiments/configs/classes.toml). `DirichletClassifier` over each family takes the training rows of
each table in batches: in random order; one class after the other; and with the second class absent
from the first quarter of the stream, unknown until it turns up. It fits after an eighth and three
eighths of the rows, and at the end. The exact GP sees all rows at once; it is gpytorch's, on the
same transformed labels. Prints accuracies and log losses and writes them, with a table a run, to
the config's folder: `bo-stream report FOLDER` draws them.
"""

from pathlib import Path
from typing import Any

from experiments.common.command import (
    CONFIGS,
    TAKES,
    Config,
    Fresh,
    Out,
    Retry,
    Smoke,
    Workers,
    begin,
    command,
    end,
    start,
    swept,
)
from experiments.common.progress import say

CONFIG = CONFIGS / "classes.toml"


def main(
    config: Config = CONFIG,
    out: Out = None,
    smoke: Smoke = False,
    workers: Workers = None,
    retry: Retry = False,
    fresh: Fresh = False,
) -> None:
    """Stream labels in several orders, and fit an exact GP to all of them."""
    from experiments.common.kinds import configured, finished, planned  # here: they bring torch
    from experiments.stream_classification.plan import plan

    c = configured(config, CONFIG)
    runs = planned(plan, c, smoke)
    folder = begin(c["output"], out, smoke, c.get(TAKES), ["rich", "sqlalchemy", "loky"])
    outcomes = swept(runs, folder, smoke, workers, retry, fresh, about={"study": c})
    done = finished(runs, outcomes, folder)
    if done:
        report(c, done, folder)
    end(outcomes, folder)


def report(c: dict[str, Any], done: Any, folder: Path) -> None:
    """Accuracies and log losses at the end."""
    import pandas as pd

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


app = command(main)

if __name__ == "__main__":
    start(app)
