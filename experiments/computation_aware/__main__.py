"""Computation-aware GPs beside exact and variational ones, for the same seconds of learning each:
`python -m experiments.computation_aware COMMAND`.

`tables`: a row for each table and method: test density (nll, nats), error (rmse), the gap between
coverage and nominal level at 95 % and on average, learned noise and lengthscales; then the
Grassmann distance of actions to the top eigenspace. `toy`: 120 data in one dimension, 8 inducing
points, 8 actions; error and density, learned noise and lengthscale, and the least and greatest
ratio of the latent deviation to that of the exact GP with the same hyperparameters. A ratio below
one is confidence that the data do not give; computation-aware GPs have none [CaGP, figure 1].
Seconds are of one processor, scoring apart. Tables are printed and written, pictures drawn, in the
config's folder.
"""

from pathlib import Path
from typing import Any

from experiments.common.command import CONFIGS, commands, configured, start
from experiments.common.progress import say
from experiments.computation_aware.pictures import draw_calibration, draw_curves, draw_toy
from experiments.computation_aware.tables import compared
from experiments.computation_aware.toy import data, posteriors

SMALLER = {
    "tables": ["made up"],
    **{"train": 240, "test": 80, "seconds": 0.5, "seeds": [0]},
    "sizes": {"actions": 24, "cg": 6, "inducing": 30, "batch": 64},
    "subspace": {"rows": 120, "actions": 8},
}


def tables(c: dict[str, Any], folder: Path) -> None:
    """Five methods on tables: learning curves, coverage at all levels, subspaces."""
    frames = compared(c)
    for key, frame in frames.items():
        frame.to_csv(folder / f"{key}.csv", index=False)
    draw_curves(frames["curves"], folder / "curves.png")
    draw_calibration(frames["results"], folder / "calibration.png")
    results = frames["results"]
    shown = results.drop(columns=[k for k in results if str(k).startswith("coverage ")])
    say("\n" + shown.to_string(index=False, float_format="{:.4f}".format))
    far_from = frames["subspaces"][["table", "actions", "n", "i", "distance", "nll"]]
    say("\n" + far_from.to_string(index=False, float_format="{:.3f}".format))


def toy(c: dict[str, Any], folder: Path) -> None:
    """Four posteriors of the same data on one picture."""
    split, grid, truth = data()
    drawn, table = posteriors(split, grid, c["actions"], c["seconds"])
    draw_toy(drawn, grid, split, truth, folder / "posteriors.png")
    table.to_csv(folder / "table.csv", index=False)
    say(table.to_string(index=False, float_format="{:.4f}".format))


app = commands(
    __doc__,
    configured(tables, CONFIGS / "computation_aware_tables.toml", SMALLER),
    configured(toy, CONFIGS / "computation_aware_toy.toml", {"seconds": 0.3}),
)

if __name__ == "__main__":
    start(app)
