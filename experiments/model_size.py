"""How many inducing points online SGPR takes on real streams, and how near it comes to a full GP.

Run `python -m experiments.model_size experiments/configs/model_size.toml`. Prints a row for each
table and split and the means; writes both, and the sizes after each batch, to the config's folder.
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

    from experiments.stream_recipe import Split, reference, stream

    torch.set_num_threads(1)
    rows, sizes = [], []
    for name, batches in c["tables"].items():
        for seed in c["splits"]:
            split = Split.of(name, seed, c["share"])
            model, M = stream(split, batches, c)
            full, kind = reference(split, c)
            rmse, rmse_full, rmse_mean = split.rmse(model), split.rmse(full), split.rmse(None)
            excess = 100.0 * (rmse - rmse_full) / (rmse_mean - rmse_full)
            rows.append((name, seed, M[-1], rmse, rmse_full, rmse_mean, excess, kind))
            sizes += [(name, seed, i, m) for i, m in enumerate(M)]
            typer.echo(f"{name}, split {seed}: {M[-1]} points, excess error {excess:.1f} %")
    columns = ["table", "split", "points", "rmse", "rmse_full", "rmse_mean", "excess_%", "full"]
    results = pd.DataFrame(rows, columns=columns)
    means = results.groupby("table", sort=False).mean(numeric_only=True).drop(columns="split")
    out = Path(c["output"])
    out.mkdir(parents=True, exist_ok=True)
    results.to_csv(out / "splits.csv", index=False)
    means.to_csv(out / "means.csv")
    pd.DataFrame(sizes, columns=["table", "split", "batch", "points"]).to_csv(
        out / "sizes.csv", index=False
    )
    typer.echo("\n" + results.round(4).to_string(index=False) + "\n\n" + means.round(4).to_string())


if __name__ == "__main__":
    typer.run(main)
