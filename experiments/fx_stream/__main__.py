"""Streaming surrogates on an exchange rate, one day at a time, in order of time and at random.

Run `python -m experiments.fx_stream`. Prints the scores at the end of
the stream, means over seeds; writes them, every day's scores and pictures with bands over seeds to
the config's folder.
"""

from typing import Annotated, Any

from experiments.common.command import (
    CONFIGS,
    TAKES,
    Config,
    Out,
    Smoke,
    begin,
    command,
    option,
    read,
    selected,
    start,
)
from experiments.common.progress import say

CONFIG = CONFIGS / "fx.toml"

PICTURES = {
    "mean_loss": "running mean of the next day's loss (nats)",
    "running_rmse": "running RMSE of the next day (standard deviations)",
    "nll": "NLPD of days held out (nats)",
    "rmse": "RMSE of days held out (standard deviations)",
}
"""Columns drawn, and what they are; losses in deviations of the year's rates."""


def main(
    config: Config = CONFIG,
    method: Annotated[list[str] | None, option(help="Only these of the methods.")] = None,
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
    run(c, begin(c["output"], out, smoke, c.get(TAKES)))


def run(c: dict[str, Any], out: Any) -> None:
    """All orders, seeds and methods of one configuration."""
    import torch

    from experiments.common.plots import draw_bands
    from experiments.common.words import in_words
    from experiments.fx_stream.recipe import followed

    torch.set_num_threads(1)
    days = followed(c, list(PICTURES))
    days.to_csv(out / "days.csv", index=False)
    last = days[days["step"] == days.groupby(["order", "seed", "method"])["step"].transform("max")]
    means = last.groupby(["order", "method"], sort=False)[[*PICTURES]].mean()
    means["seconds"] = days.groupby(["order", "method"], sort=False)["seconds"].mean()
    means.to_csv(out / "means.csv")
    words = {name: in_words(name) for name in c["methods"]}
    for order, part in days.groupby("order", sort=False):
        about = "in order of time" if order == "time" else "in random order"
        title = "Made-up rate" if c["table"] == "synthetic" else f"Exchange rate {c['table']}"
        for column, label in PICTURES.items():
            path, labels = out / f"{order!s}_{column}.png", {"n": "days seen", column: label}
            scale, title_of = column == "rmse", f"{title}, {about}"
            draw_bands([part], column, "n", ["method"], path, scale, labels, title_of, words=words)
    say("\n" + means.round(4).to_string())


app = command(main)

if __name__ == "__main__":
    start(app)
