"""Computation-aware GPs beside exact and variational ones on tables, for the same seconds each.

Run `python -m experiments.computation_aware_tables` (add `--smoke` for a run of seconds). Prints a
row for each table and contender: test density (nll, nats), error (rmse), the gap between coverage
and nominal level at 95 % and on average, learned noise and lengthscales; then the Grassmann
distance of actions to the top eigenspace. Writes these, the learning curves, the coverage at all
levels and two pictures to the config's folder. Seconds are of one processor, scoring apart.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.command import CONFIGS, Config, Out, Smoke, folder, read, selected, start

CONFIG = CONFIGS / "computation_aware_tables.toml"


def main(
    config: Config = CONFIG,
    table: Annotated[list[str] | None, typer.Option(help="Only these of the tables.")] = None,
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
    run(c, folder(c["output"], out, smoke))


def run(c: dict[str, Any], out: Path) -> None:
    """All tables, seeds and contenders of one configuration."""
    import pandas as pd
    import torch

    from experiments.computation_aware_plots import draw_calibration, draw_curves
    from experiments.computation_aware_report import distances, results
    from experiments.contenders import CONTENDERS, Course
    from experiments.tables import Split

    torch.set_num_threads(1)
    rows, curves, far = [], [], []
    for name in c["tables"]:
        for seed in c["seeds"]:
            split = Split.of(name, c["train"], c["test"], seed)
            for label in c["contenders"]:
                course = Course(split, c["seconds"])
                trained = CONTENDERS[label](split, course, c["sizes"])
                head = {"table": name, "seed": seed, "contender": label}
                rows.append(head | results(course, trained))
                curves += [head | row for row in course.rows]
                last = rows[-1]
                typer.echo(f"{name}, seed {seed}, {label}: nll {last['nll']:.3f}")
        far += [{"table": name, **row} for row in distances(name, c)]
    tables = {"results": rows, "curves": curves, "subspaces": far}
    frames = {key: pd.DataFrame(value) for key, value in tables.items()}
    for key, frame in frames.items():
        frame.to_csv(out / f"{key}.csv", index=False)
    draw_curves(frames["curves"], out / "curves.png")
    draw_calibration(frames["results"], out / "calibration.png")
    shown = frames["results"].drop(columns=[k for k in rows[0] if k.startswith("coverage ")])
    typer.echo("\n" + shown.to_string(index=False, float_format="{:.4f}".format))
    far_from = frames["subspaces"][["table", "actions", "n", "i", "distance", "nll"]]
    typer.echo("\n" + far_from.to_string(index=False, float_format="{:.3f}".format))


if __name__ == "__main__":
    start(main)
