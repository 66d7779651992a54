"""How many inducing points online SGPR takes on real streams, and how near it comes to a full GP.

Run `python -m experiments.model_size experiments/configs/model_size.toml`. Prints a row for each
table and split and the means; writes both, and size, processor time and test errors after each
batch with pictures, to the config's folder. Errors are drawn against those of a GP fitted to all
training rows at once. Streams are sorted by their first input, so that until the last batch some
test rows lie where the stream has not been yet, and errors are large.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

PICTURES = {
    "points": "inducing points",
    "seconds": "processor seconds of a batch",
    "rmse": "test RMSE, in deviations",
    "nlpd": "test NLPD, nats",
}
"""Columns drawn, and what they are."""


def main(
    config: Annotated[Path, typer.Argument(help="TOML; keys as in configs/model_size.toml.")],
    table: Annotated[list[str] | None, typer.Option(help="Only these of the tables.")] = None,
    smoke: Annotated[bool, typer.Option(help="A synthetic table, one split, seconds.")] = False,
) -> None:
    """Stream every table in batches; compare size and error with those of a full GP."""
    c = tomllib.loads(config.read_text())
    if smoke:
        c |= {"tables": {"synthetic": 4}, "splits": [0], "output": c["output"] + "_smoke"}
    run(c | {"tables": {k: v for k, v in c["tables"].items() if not table or k in table}})


def run(c: dict[str, Any]) -> None:
    """All tables and splits of one configuration."""
    import pandas as pd
    import torch

    from experiments.plots import draw_sizes
    from experiments.stream_recipe import SortedSplit, reference, stream

    torch.set_num_threads(1)
    rows, batches = [], []
    for name, parts in c["tables"].items():
        for seed in c["splits"]:
            split = SortedSplit.of(name, seed, c["share"])
            model, course = stream(split, parts, c)
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
    out = Path(c["output"])
    out.mkdir(parents=True, exist_ok=True)
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
    typer.run(main)
