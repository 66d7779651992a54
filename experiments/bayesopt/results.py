"""What a study found, by problem and acquisition: pictures, and tables printed and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from bo_stream.reports.runs import words
from experiments.bayesopt.plots import draw_regret
from experiments.bayesopt.study import Run
from experiments.common.progress import say
from experiments.common.summary import paired, summary
from experiments.common.sweep import table

__all__ = ["report"]

Part = tuple[Run, list[pd.DataFrame]]
"""A run of a problem and acquisition, and the tables of all of them."""


def report(title: str, runs: Sequence[Run], folder: Path) -> None:
    """Draw and tabulate the runs that are done.

    Writes a picture of the regrets for each problem and acquisition, ``summary.csv`` and
    ``paired.csv``.
    """
    parts: dict[str, Part] = {}
    for run in runs:
        named = table(folder, run.stem).assign(surrogate=run.label, seed=run.config.seed)
        parts.setdefault(run.task, (run, []))[1].append(named)
    for task, (run, tables) in parts.items():
        path = "_".join(filter(None, ("regret_vs_wallclock", task)))
        draw_regret(tables, folder / f"{path}.png", _titled(title, run, parts))
    lines = _written(parts, folder / "summary.csv", lambda run, t: summary(t, run.config.q))
    pairs = _written(parts, folder / "paired.csv", lambda run, t: paired(t))
    for task, (run, _) in parts.items():
        say(f"\n{_titled(title, run, parts)}\n")
        printed = lines[task].map(lambda v: f"{v:.3f}" if isinstance(v, float) else f"{v}")
        say(printed.set_index("surrogate").T.to_string())
        if len(pairs[task]):
            say("\nlog inference regret, paired by seed\n")
            say(pairs[task].to_string(index=False, float_format="{:.3f}".format))


def _written(
    parts: dict[str, Part], path: Path, made: Callable[[Run, list[pd.DataFrame]], pd.DataFrame]
) -> dict[str, pd.DataFrame]:
    """A table of each part, and a file of all of them that says which they are of."""
    frames = {task: made(run, tables) for task, (run, tables) in parts.items()}
    named = []
    for task, frame in frames.items():
        run = parts[task][0]
        facts = {"problem": words(run.problem), "acquisition": words(run.acquisition)}
        named.append(frame.assign(**facts)[[*facts, *frame.columns]])
    pd.concat(named, ignore_index=True).to_csv(path, index=False)
    return frames


def _titled(title: str, run: Run, parts: dict[str, Part]) -> str:
    """The title, with the problem and acquisition where there are several."""
    if len(parts) == 1:
        return title
    return f"{title}: {words(run.problem)}; {words(run.acquisition)}"
