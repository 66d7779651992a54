"""Streaming surrogates on an exchange rate, one day at a time, in order of time and at random.

Run `python -m experiments.fx_stream`. Prints the scores at the end of
the stream, means over seeds; writes them, every day's scores and pictures with bands over seeds to
the config's folder.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.command import CONFIGS, Config, Out, Smoke, folder, read, selected, start

CONFIG = CONFIGS / "fx.toml"

PICTURES = {
    "mean_loss": "running mean of the next day's loss, nats",
    "running_rmse": "running RMSE of the next day, in deviations",
    "nll": "NLPD of days held out, nats",
    "rmse": "RMSE of days held out, in deviations",
}
"""Columns drawn, and what they are; losses in deviations of the year's rates."""


def main(
    config: Config = CONFIG,
    method: Annotated[list[str] | None, typer.Option(help="Only these of the methods.")] = None,
    out: Out = None,
    smoke: Smoke = False,
) -> None:
    """Follow the rate with every surrogate, in every order and for every seed; draw the scores."""
    c = read(config, CONFIG)
    c["methods"] = {k: c["methods"][k] for k in selected(method, c["methods"], "--method")}
    if smoke:
        c |= {"table": "synthetic", "orders": ["random"], "seeds": [0, 1]}
        if "online_svgp" in c["methods"]:
            c["methods"]["online_svgp"]["options"] |= {"steps": 2, "initial_steps": 50}
    run(c, folder(c["output"], out, smoke))


def run(c: dict[str, Any], out: Path) -> None:
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
    days = pd.concat(tables, ignore_index=True)
    days.to_csv(out / "days.csv", index=False)
    last = days[days["step"] == days.groupby(["order", "seed", "method"])["step"].transform("max")]
    means = last.groupby(["order", "method"], sort=False)[[*PICTURES]].mean()
    means["seconds"] = days.groupby(["order", "method"], sort=False)["seconds"].mean()
    means.to_csv(out / "means.csv")
    for order, part in days.groupby("order", sort=False):
        in_order = "in order of time" if order == "time" else "in random order"
        title = f"{c['table']} {in_order}; medians and bands of {len(c['seeds'])} seeds"
        for column, label in PICTURES.items():
            path, labels = out / f"{order!s}_{column}.png", {"n": "days seen", column: label}
            draw_bands([part], column, "n", ["method"], path, column == "rmse", labels, title)
    typer.echo("\n" + means.round(4).to_string())


if __name__ == "__main__":
    start(main)
