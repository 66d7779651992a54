"""Streaming surrogates on an exchange rate, one day at a time, in order of time and at random.

Run `python -m experiments.fx_stream experiments/configs/fx.toml`. Prints the scores at the end of
the stream, means over seeds; writes them, every day's scores and pictures with bands over seeds to
the config's folder.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

PICTURES = {"mean_loss": False, "running_rmse": False, "nll": False, "rmse": True}
"""Columns drawn, and whether on a logarithmic axis."""


def main(
    config: Annotated[Path, typer.Argument(help="TOML; keys as in configs/fx.toml.")],
    method: Annotated[list[str] | None, typer.Option(help="Only these of the methods.")] = None,
    smoke: Annotated[bool, typer.Option(help="A synthetic rate, two seeds, seconds.")] = False,
) -> None:
    """Follow the rate with every surrogate, in every order and for every seed; draw the scores."""
    c = tomllib.loads(config.read_text())
    if smoke:
        c |= {"table": "synthetic", "orders": ["random"], "seeds": [0, 1]}
        c["output"] += "_smoke"
        c["methods"]["online_svgp"]["options"] |= {"steps": 2, "initial_steps": 50}
    c["methods"] = {k: v for k, v in c["methods"].items() if not method or k in method}
    run(c)


def run(c: dict[str, Any]) -> None:
    """All orders, seeds and methods of one configuration."""
    import pandas as pd
    import torch

    from experiments.fx_recipe import Stream, follow, pretrained
    from experiments.plots import draw_bands

    torch.set_num_threads(1)
    tables = []
    for order in c["orders"]:
        for seed in c["seeds"]:
            stream = Stream.of(order, seed, c)
            first = pretrained(stream)
            for name, method in c["methods"].items():
                scores = follow(name, stream, first, method)
                tables.append(scores.assign(method=name, order=order, seed=seed))
                end = scores[["mean_loss", "running_rmse", "nll", "rmse"]].iloc[-1].round(3)
                typer.echo(f"{order}, seed {seed}, {name}: {end.to_dict()}")
    out = Path(c["output"])
    out.mkdir(parents=True, exist_ok=True)
    days = pd.concat(tables, ignore_index=True)
    days.to_csv(out / "days.csv", index=False)
    last = days[days["step"] == days.groupby(["order", "seed", "method"])["step"].transform("max")]
    means = last.groupby(["order", "method"], sort=False)[[*PICTURES]].mean()
    means["seconds"] = days.groupby(["order", "method"], sort=False)["seconds"].mean()
    means.to_csv(out / "means.csv")
    for order, part in days.groupby("order", sort=False):
        for column, logarithmic in PICTURES.items():
            path = out / f"{order!s}_{column}.png"
            draw_bands([part], column, "n", ["method", "order"], path, logarithmic)
    typer.echo("\n" + means.round(4).to_string())


if __name__ == "__main__":
    typer.run(main)
