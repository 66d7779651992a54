"""A study run before one's eyes: bars on a terminal, a line now and then where output is piped."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from experiments.bayesopt.study import Run, Study, execute
from experiments.common.progress import Progress

__all__ = ["watched"]

Show = Callable[[Run, dict[str, Any]], None]


def watched(study: Study, out: Path, workers: int) -> list[pd.DataFrame]:
    """Run a study and show how far it is; returns a table a run, in the study's order."""
    if not sys.stdout.isatty():
        progress = Progress(sum(run.config.steps for run in study.runs), "steps")

        def line(run: Run, row: dict[str, Any]) -> None:
            progress(f"{_name(run)}: {_regret(row)}", done=int(row["step"] > 0))

        return _tables(study, out, workers, line)
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, "{task.fields[note]}") as bars:
        tasks = {
            run.stem: bars.add_task(_name(run), total=run.config.steps, start=False, note="")
            for run in study.runs
        }

        def bar(run: Run, row: dict[str, Any]) -> None:
            if row["step"] == 0:
                bars.start_task(tasks[run.stem])
            bars.update(tasks[run.stem], completed=row["step"], note=_regret(row))

        return _tables(study, out, workers, bar)


def _tables(study: Study, out: Path, workers: int, show: Show) -> list[pd.DataFrame]:
    tables: dict[str, pd.DataFrame] = {}
    for run, result in execute(study, out, workers):
        if isinstance(result, pd.DataFrame):
            tables[run.stem] = result.assign(surrogate=run.label, seed=run.config.seed)
        else:
            show(run, result)
    return [tables[run.stem] for run in study.runs]


def _name(run: Run) -> str:
    return f"{run.label}, seed {run.config.seed}"


def _regret(row: dict[str, Any]) -> str:
    return f"regret {row['inference_regret']:.3f}"
