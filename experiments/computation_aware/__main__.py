"""What computation-aware GPs make of a budget of actions.

Run `python -m experiments.computation_aware`. A curve under a small budget beside SGPR and the
exact GP; how far learned actions are from the best subspace; hyperparameters by the two losses of
the paper and by exact evidence; seconds against rows and actions. Tables are printed and written,
pictures drawn, in the folder of the configuration.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from experiments.common.along import draw_along
from experiments.common.command import CONFIGS, commands, configured, start
from experiments.common.data import MADE_UP
from experiments.common.progress import say
from experiments.computation_aware.pictures import draw_distances
from experiments.computation_aware.study import curves, distances, losses, seconds

SMALLER: dict[str, Any] = {
    "curve": {"rows": 40, "noise": 0.1, "actions": 4, "evaluations": 5, "seconds": 0.0},
    "subspace": {"rows": 60, "seeds": [0, 1], "actions": [4], "evaluations": [0, 5]},
    "loss": {"rows": 80, "test": 40, "seeds": [0], "actions": [8], "evaluations": 5},
    "cost": {"rows": [100, 200], "actions": [4, 8], "inputs": 3, "repetitions": 1},
    "table": [{"name": MADE_UP}],
}


def computation_aware(c: dict[str, Any], folder: Path) -> None:
    """All four parts, one after the other."""
    table, along = curves(c["curve"])
    draw_along(along, folder / "curves.png")
    _show(table, folder / "curves.csv", "A curve: scores between the rows")
    table = distances(c["subspace"])
    draw_distances(table, folder / "subspaces.png")
    grouped = table.groupby(["actions", "policy", "evaluations"], sort=False)
    about = "Grassmann distance of actions from the leading eigenvectors, and the bound in nats"
    means = grouped[["distance", "bound"]].mean()
    _show(means.reset_index(), folder / "subspaces.csv", about)
    table = losses(c["loss"], c["table"])
    means = table.groupby(["table", "actions", "learned by"], sort=False).mean(numeric_only=True)
    about = "Hyperparameters by three losses: test scores"
    _show(means.drop(columns="seed").reset_index(), folder / "losses.csv", about)
    _show(seconds(c["cost"]), folder / "cost.csv", "Milliseconds of processor time")


def _show(table: pd.DataFrame, path: Path, about: str) -> None:
    table.to_csv(path, index=False)
    say(f"\n{about}\n\n{table.to_string(index=False, float_format='{:.4g}'.format)}")


app = commands(None, configured(computation_aware, CONFIGS / "computation_aware.toml", SMALLER))

if __name__ == "__main__":
    start(app)
