"""Seconds of each part of a step against the number of points seen.

Run `python -m experiments.cost` (or name a configuration like experiments/configs/cost.toml). Every
surrogate is given n points first; then one point observed, the posterior at some points, one
evaluation of a fit with its gradient and one acquisition step are timed, and so is one 1,000 x
1,000 Cholesky factorisation in the same process, the unit c. Prints medians of repetitions in
seconds and in c, and writes them with a picture for each number of inputs to the config's folder;
`bo-stream report FOLDER` draws them too. With `--workers 1`, timings do not share the machine.
"""

from pathlib import Path
from typing import Any

from experiments.common.command import (
    CONFIGS,
    TAKES,
    Config,
    Fresh,
    Out,
    Retry,
    Smoke,
    Workers,
    begin,
    command,
    end,
    start,
    swept,
)
from experiments.common.progress import say

CONFIG = CONFIGS / "cost.toml"


def main(
    config: Config = CONFIG,
    out: Out = None,
    smoke: Smoke = False,
    workers: Workers = None,
    retry: Retry = False,
    fresh: Fresh = False,
) -> None:
    """Time every surrogate at every n."""
    from experiments.common.kinds import configured, finished, planned  # here: they bring torch
    from experiments.cost.plan import plan

    c = configured(config, CONFIG)
    runs = planned(plan, c, smoke)
    packages = ["rich", "matplotlib", "sqlalchemy", "loky"]
    folder = begin(c["output"], out, smoke, c.get(TAKES), packages)
    outcomes = swept(runs, folder, smoke, workers, retry, fresh, about={"study": c})
    done = finished(runs, outcomes, folder)
    if done:
        report(c, done, folder)
    end(outcomes, folder)


def report(c: dict[str, Any], done: Any, folder: Path) -> None:
    """Pictures, and medians in seconds and in c."""
    import pandas as pd

    from experiments.cost.measured import PARTS
    from experiments.cost.plot import draw_costs

    tables = [
        table.assign(surrogate=run.label, inputs=run.inputs, seed=run.seed) for run, table in done
    ]
    whole = pd.concat(tables, ignore_index=True).drop(columns="step")
    whole.to_csv(folder / "cost.csv", index=False)
    points = done[0][0].sizes.points
    for inputs, part in whole.groupby("inputs"):
        title = f"{c['title']}: {c['function']}, {inputs} inputs"
        draw_costs(part, folder / f"cost_{inputs}_inputs.png", title, points)
    keys = ["inputs", "surrogate", "n"]
    for unit, words in (("seconds", "processor seconds"), ("c", "one Cholesky factorisation")):
        shown = whole.groupby(keys, sort=False)[[f"{part}_{unit}" for part in PARTS]].median()
        shown.columns = [part.format(points=points) for part in PARTS.values()]
        say(f"\nIn units of {words}\n")
        say(shown.reset_index().to_string(index=False, float_format="{:.3g}".format))
    say(f"\nWrote {folder}/")


app = command(main)

if __name__ == "__main__":
    start(app)
