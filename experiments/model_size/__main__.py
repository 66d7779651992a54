"""How many inducing points online SGPR takes on real streams, and how near it comes to a full GP.

Run `python -m experiments.model_size`. Prints a row for each table and split and the means; writes
both, and size, processor time and test errors after each batch with pictures, to the config's
folder. Errors are drawn against those of a GP fitted to all training rows at once. Streams are
sorted by their first input, so that until the last batch some test rows lie where the stream has
not been yet, and errors are large.
"""

from pathlib import Path
from typing import Annotated, Any

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
    done,
    end,
    need,
    option,
    read,
    selected,
    start,
    swept,
)
from experiments.common.progress import say

CONFIG = CONFIGS / "model_size.toml"

PICTURES = {
    "points": "number of inducing points",
    "seconds": "processor time of a batch (seconds)",
    "rmse": "test RMSE (standard deviations)",
    "nlpd": "test NLPD (nats)",
}
"""Columns drawn, and what they are."""


def main(
    config: Config = CONFIG,
    table: Annotated[list[str] | None, option(help="Only these of the tables.")] = None,
    out: Out = None,
    smoke: Smoke = False,
    workers: Workers = None,
    retry: Retry = False,
    fresh: Fresh = False,
) -> None:
    """Stream every table in batches; compare size and error with those of a full GP."""
    need("sqlalchemy", "loky")
    c = read(config, CONFIG)
    c["tables"] = {k: c["tables"][k] for k in selected(table, c["tables"], "--table")}
    if smoke:
        c |= {"tables": {"synthetic": 4}, "splits": [0]}
    folder = begin(c["output"], out, smoke, c.get(TAKES))

    from experiments.common.sweep_display import watching
    from experiments.model_size.tables import planned

    runs = planned(c)
    show = watching(lambda row: f"{row['points']} points")
    options = (smoke, workers, retry, fresh)
    outcomes = swept(runs, folder, *options, show=show, about={"study": c})
    if good := done(runs, outcomes):
        report(good, folder)
    end(outcomes, folder)


def report(runs: list[Any], out: Path) -> None:
    """Tables and pictures of the runs that are done."""
    import pandas as pd

    from experiments.common.plots import draw_sizes
    from experiments.model_size.tables import found

    results, batches = found(runs, out)
    means = results.groupby("table", sort=False).mean(numeric_only=True).drop(columns="split")
    results.to_csv(out / "splits.csv", index=False)
    means.to_csv(out / "means.csv")
    batches.to_csv(out / "batches.csv", index=False)
    full_errors = {y: batches[f"{y}_full"] for y in ("rmse", "nlpd")}
    at_once = batches.assign(policy="a GP on all rows at once", **full_errors)
    for y, label in PICTURES.items():
        shown = pd.concat([batches, at_once]) if y in full_errors else batches
        path, title = out / f"{y}.png", lambda dim, name: f"{name}, {dim} inputs"
        draw_sizes(shown, path, y, label, title)
    say("\n" + results.round(4).to_string(index=False) + "\n\n" + means.round(4).to_string())


app = command(main)

if __name__ == "__main__":
    start(app)
