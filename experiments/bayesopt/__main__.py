"""Bayesian optimisation from the command line: `python -m experiments.bayesopt demo`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from experiments.common.command import (
    CONFIGS,
    BadParameter,
    Config,
    Out,
    Smoke,
    begin,
    commands,
    need,
    option,
    start,
)
from experiments.common.progress import say

Workers = Annotated[int, option(min=1, help="Processes, one torch thread each.")]


def demo(out: Out = None, smoke: Smoke = False, workers: Workers = 2) -> None:
    """WISKI beside an exact GP on noisy Levy: minutes, a picture and a table."""
    folder = _study(CONFIGS / "demo.toml", Path("results/demo"), out, smoke, workers)
    from experiments.bayesopt.crossover import show  # here, so that --help need not wait for torch

    show(CONFIGS / "crossover.toml", folder, smoke, 0 if smoke else workers)


def run(
    config: Config,
    problem: Annotated[str | None, option(help="Another function than the file's.")] = None,
    out: Out = None,
    smoke: Smoke = False,
    workers: Workers = 2,
) -> None:
    """Run the study of a configuration, like those in experiments/configs."""
    folder = config.stem if problem is None else f"{config.stem}_{problem}"
    _study(config, Path("results") / folder, out, smoke, workers, problem)


def _study(
    config: Path,
    default: Path,
    out: Path | None,
    smoke: bool,
    workers: int,
    problem: str | None = None,
) -> Path:
    need("rich", "matplotlib")
    from experiments.bayesopt.study import Study  # here, so that --help need not wait for torch

    began = time.perf_counter()
    try:
        study = Study.read(config, smoke, problem)
    except (KeyError, TypeError, ValueError) as error:  # a key too many, too few, a wrong value
        raise BadParameter(f"{config}: {error.args[0]}") from error
    out = begin(default, out, smoke, study.takes)

    from experiments.bayesopt.plots import draw_regret
    from experiments.bayesopt.watch import watched
    from experiments.common.summary import paired, summary

    tables = watched(study, out, workers)
    draw_regret(tables, out / "regret_vs_wallclock.png", study.title)
    table = summary(tables, study.runs[0].config.q)
    table.to_csv(out / "summary.csv", index=False)
    say(f"\n{study.title}; times with {workers} processes of one thread\n")
    printed = table.map(lambda v: f"{v:.3f}" if isinstance(v, float) else f"{v}")
    say(printed.set_index("surrogate").T.to_string())
    differences = paired(tables)
    differences.to_csv(out / "paired.csv", index=False)
    if len(differences):
        say("\nlog inference regret, paired by seed\n")
        say(differences.to_string(index=False, float_format="{:.3f}".format))
    say(f"\n{time.perf_counter() - began:.0f} s in all; wrote {out}/")
    return out


app = commands(__doc__, demo, run)

if __name__ == "__main__":
    start(app)
