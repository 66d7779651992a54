"""Computation-aware GPs beside exact and variational ones on tables, for the same seconds each.

Run `python -m experiments.computation_aware_tables` (add `--smoke` for a run of seconds). Prints a
row for each table and contender: test density (nll, nats), error (rmse), the gap between coverage
and nominal level at 95 % and on average, learned noise and lengthscales; then the Grassmann
distance of actions to the top eigenspace. Writes these, the learning curves, the coverage at all
levels and two pictures to the config's folder. Seconds are of one processor, scoring apart.
"""

from typing import Annotated

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

CONFIG = CONFIGS / "computation_aware_tables.toml"


def main(
    config: Config = CONFIG,
    table: Annotated[list[str] | None, option(help="Only these of the tables.")] = None,
    out: Out = None,
    smoke: Smoke = False,
) -> None:
    """Train every contender on every table."""
    c = read(config, CONFIG)
    c["tables"] = selected(table, c["tables"], "--table")
    if smoke:
        c |= {"tables": ["cohort"], "train": 240, "test": 80, "seconds": 0.5, "seeds": [0]}
        c |= {"sizes": {"actions": 24, "cg": 6, "inducing": 30, "batch": 64}}
        c |= {"subspace": {"rows": 120, "actions": 8}}
    folder = begin(c["output"], out, smoke, c.get(TAKES))

    import torch

    from experiments.computation_aware_tables.plots import draw_calibration, draw_curves
    from experiments.computation_aware_tables.training import trained

    torch.set_num_threads(1)
    frames = trained(c)
    for key, frame in frames.items():
        frame.to_csv(folder / f"{key}.csv", index=False)
    draw_curves(frames["curves"], folder / "curves.png")
    draw_calibration(frames["results"], folder / "calibration.png")
    results = frames["results"]
    shown = results.drop(columns=[k for k in results if str(k).startswith("coverage ")])
    say("\n" + shown.to_string(index=False, float_format="{:.4f}".format))
    far_from = frames["subspaces"][["table", "actions", "n", "i", "distance", "nll"]]
    say("\n" + far_from.to_string(index=False, float_format="{:.3f}".format))


app = command(main)

if __name__ == "__main__":
    start(app)
