"""Bayesian optimisation from the command line: `python -m experiments.bayesopt demo`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from experiments.common.command import (
    CONFIGS,
    BadParameter,
    Config,
    Fresh,
    Out,
    Retry,
    Smoke,
    Workers,
    begin,
    commands,
    done,
    end,
    need,
    option,
    start,
    swept,
)
from experiments.common.progress import say


def demo(
    out: Out = None,
    smoke: Smoke = False,
    workers: Workers = None,
    retry: Retry = False,
    fresh: Fresh = False,
) -> None:
    """WISKI beside an exact GP on noisy Levy: minutes, pictures and tables."""
    options = (smoke, workers, retry, fresh)
    folder = _study(CONFIGS / "demo.toml", "results/demo", None, out, *options)
    from experiments.bayesopt.crossover import show  # here, so that --help need not wait for torch

    show(CONFIGS / "crossover.toml", folder, *options)


def run(
    config: Config,
    problem: Annotated[str | None, option(help="Another function than the file's.")] = None,
    out: Out = None,
    smoke: Smoke = False,
    workers: Workers = None,
    retry: Retry = False,
    fresh: Fresh = False,
) -> None:
    """Run the study of a configuration, like those in experiments/configs."""
    folder = config.stem if problem is None else f"{config.stem}_{problem}"
    _study(config, f"results/{folder}", problem, out, smoke, workers, retry, fresh)


def _study(
    config: Path, default: str, problem: str | None, out: Path | None, smoke: bool, *options: Any
) -> Path:
    need("rich", "matplotlib", "sqlalchemy", "loky")
    from experiments.bayesopt.study import Study  # here, so that --help need not wait for torch

    began = time.perf_counter()
    try:
        study = Study.read(config, smoke, problem)
    except (KeyError, TypeError, ValueError) as error:  # a key too many, too few, a wrong value
        raise BadParameter(f"{config}: {error.args[0]}") from error
    out = begin(default, out, smoke, study.takes)

    from experiments.bayesopt.peer_runs import say_skipped
    from experiments.bayesopt.results import report
    from experiments.common.sweep_display import watching

    say_skipped(study.skipped, out)
    show = watching(lambda row: f"regret of the best point observed {row['simple_regret']:.3f}")
    outcomes = swept(study.runs, out, smoke, *options, show=show, about={"study": study.source})
    if good := done(study.runs, outcomes):
        report(study.title, good, out)
    say(f"\n{time.perf_counter() - began:.0f} s in all; wrote {out}/")
    end(outcomes, out)
    return out


app = commands(__doc__, demo, run)

if __name__ == "__main__":
    start(app)
