"""How many inducing points online SGPR takes on real streams, and how near it comes to a full GP.

Run `python -m experiments.model_size`. Prints a row for each table and split and the means; writes
both, and size, processor time and test errors after each batch with pictures, to the config's
folder. Errors are drawn against those of a GP fitted to all training rows at once. Streams are
sorted by their first input, so that until the last batch some test rows lie where the stream has
not been yet, and errors are large.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.command import CONFIGS, Config, Out, Smoke, folder, read, selected, start

CONFIG = CONFIGS / "model_size.toml"

PICTURES = {
    "points": "inducing points",
    "seconds": "processor seconds of a batch",
    "rmse": "test RMSE, in deviations",
    "nlpd": "test NLPD, nats",
}
"""Columns drawn, and what they are."""


def main(
    config: Config = CONFIG,
    table: Annotated[list[str] | None, typer.Option(help="Only these of the tables.")] = None,
    out: Out = None,
    smoke: Smoke = False,
) -> None:
    """Stream every table in batches; compare size and error with those of a full GP."""
    c = read(config, CONFIG)
    c["tables"] = {k: c["tables"][k] for k in selected(table, c["tables"], "--table")}
    if smoke:
        c |= {"tables": {"synthetic": 4}, "splits": [0]}
    run(c, folder(c["output"], out, smoke))


def run(c: dict[str, Any], out: Path) -> None:
    """All tables and splits of one configuration."""
    import pandas as pd
    import torch

    from experiments.plots import draw_sizes
    from experiments.stream_recipe import SortedSplit, reference, stream

    torch.set_num_threads(1)
    rows, batches = [], []
    names = [(name, seed) for name in c["tables"] for seed in c["splits"]]
    splits = {key: SortedSplit.of(*key, c["share"]) for key in names}  # all, should one be missing
    for (name, seed), split in splits.items():
        model, course = stream(split, c["tables"][name], c)
        full, kind = reference(split, c)
        (rmse, nlpd), (rmse_full, nlpd_full) = split.scores(model), split.scores(full)
        rmse_mean = split.scores(None)[0]
        excess = 100.0 * (rmse - rmse_full) / (rmse_mean - rmse_full)
        M = len(model.inducing_points)
        errors = (rmse, rmse_full, rmse_mean, excess, nlpd, nlpd_full)
        rows.append((name, seed, M, *errors, kind))
        facts = {"dim": split.X.shape[1], "scenario": name, "seed": seed, "policy": "VIPS"}
        facts |= {"rmse_full": rmse_full, "nlpd_full": nlpd_full}
        batches += [facts | row for row in course]
        typer.echo(f"{name}, split {seed}: {M} points, excess error {excess:.1f} %")
    columns = ["table", "split", "points", "rmse", "rmse_full", "rmse_mean", "excess_%"]
    results = pd.DataFrame(rows, columns=[*columns, "nlpd", "nlpd_full", "full"])
    means = results.groupby("table", sort=False).mean(numeric_only=True).drop(columns="split")
    results.to_csv(out / "splits.csv", index=False)
    means.to_csv(out / "means.csv")
    per_batch = pd.DataFrame(batches)
    per_batch.to_csv(out / "batches.csv", index=False)
    full_errors = {y: per_batch[f"{y}_full"] for y in ("rmse", "nlpd")}
    at_once = per_batch.assign(policy="all rows at once", **full_errors)
    for y, label in PICTURES.items():
        shown = pd.concat([per_batch, at_once]) if y in full_errors else per_batch
        draw_sizes(shown, out / f"{y}.png", y, label)
    typer.echo("\n" + results.round(4).to_string(index=False) + "\n\n" + means.round(4).to_string())


if __name__ == "__main__":
    start(main)
