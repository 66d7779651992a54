"""How many inducing points online SGPR takes on real streams, and how near it comes to a full GP.

Run `python -m experiments.model_size experiments/configs/model_size.toml`. Prints a row for each
table and split and the means; writes both, and size and processor time of each batch with pictures,
to the config's folder.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer


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
    from experiments.stream_recipe import Split, reference, stream

    torch.set_num_threads(1)
    rows, sizes = [], []
    for name, batches in c["tables"].items():
        for seed in c["splits"]:
            split = Split.of(name, seed, c["share"])
            model, batch = stream(split, batches, c)
            full, kind = reference(split, c)
            (rmse, nlpd), (rmse_full, nlpd_full) = split.scores(model), split.scores(full)
            rmse_mean = split.scores(None)[0]
            excess = 100.0 * (rmse - rmse_full) / (rmse_mean - rmse_full)
            M = len(model.inducing_points)
            errors = (rmse, rmse_full, rmse_mean, excess, nlpd, nlpd_full)
            rows.append((name, seed, M, *errors, kind))
            facts = {"dim": split.X.shape[1], "scenario": name, "seed": seed, "policy": "VIPS"}
            sizes += [facts | row for row in batch]
            typer.echo(f"{name}, split {seed}: {M} points, excess error {excess:.1f} %")
    columns = ["table", "split", "points", "rmse", "rmse_full", "rmse_mean", "excess_%"]
    results = pd.DataFrame(rows, columns=[*columns, "nlpd", "nlpd_full", "full"])
    means = results.groupby("table", sort=False).mean(numeric_only=True).drop(columns="split")
    out = Path(c["output"])
    out.mkdir(parents=True, exist_ok=True)
    results.to_csv(out / "splits.csv", index=False)
    means.to_csv(out / "means.csv")
    per_batch = pd.DataFrame(sizes)
    per_batch.to_csv(out / "sizes.csv", index=False)
    draw_sizes(per_batch, out / "sizes.png")
    draw_sizes(per_batch, out / "seconds.png", "seconds")
    typer.echo("\n" + results.round(4).to_string(index=False) + "\n\n" + means.round(4).to_string())


if __name__ == "__main__":
    typer.run(main)
