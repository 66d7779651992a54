"""What a study found, by problem and acquisition: pictures, and tables printed and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from bo_stream.cli.reports.runs import describe
from experiments.bayesopt.plots import draw_each, draw_regret
from experiments.bayesopt.standings import standings
from experiments.bayesopt.study import Run
from experiments.common.budgets import budgets
from experiments.common.plots import CROWD
from experiments.common.progress import say
from experiments.common.summary import paired, summary
from experiments.common.sweep import table

__all__ = ["report"]

Part = tuple[Run, list[pd.DataFrame]]
"""A run of a problem and acquisition, and the tables of all of them."""


def report(title: str, runs: Sequence[Run], folder: Path) -> None:
    """Draw and tabulate the runs that are done.

    Writes a picture of the regrets for each problem and acquisition, ``summary.csv``,
    ``budgets.csv`` and ``paired.csv``, and prints these tables. Where there are several problems or
    acquisitions, it writes and prints ``standings.csv``, and leaves the others to their files.
    """
    parts: dict[str, Part] = {}
    for run in runs:
        named = table(folder, run.stem).assign(surrogate=run.label, seed=run.config.seed)
        parts.setdefault(run.task, (run, []))[1].append(named)
    for task, (run, tables) in parts.items():
        over = _titled(title, run, parts)
        against = {
            x: folder / f"{'_'.join(filter(None, (f'regret_vs_{what}', task)))}.png"
            for x, what in (("wallclock_seconds", "wallclock"), ("n", "observations"))
        }
        if len({str(t["surrogate"].iloc[0]) for t in tables}) > CROWD:
            for x, path in against.items():
                draw_each(tables, x, path, over)
        else:
            draw_regret(tables, against["wallclock_seconds"], over)
    lines = _written(parts, folder / "summary.csv", lambda run, t: summary(t, run.config.q))
    equal = _written(parts, folder / "budgets.csv", lambda run, t: budgets(t))
    pairs = _written(parts, folder / "paired.csv", lambda run, t: paired(t))
    say(f"\n{title}")
    if len(parts) > 1:
        _stand(parts, folder)
    else:
        (task,) = parts
        _tell(lines[task], equal[task], pairs[task])


def _written(
    parts: dict[str, Part], path: Path, made: Callable[[Run, list[pd.DataFrame]], pd.DataFrame]
) -> dict[str, pd.DataFrame]:
    """A table of each part, and a file of all of them that says which they are of."""
    frames = {task: made(run, tables) for task, (run, tables) in parts.items()}
    named = []
    for task, frame in frames.items():
        run = parts[task][0]
        facts = {"problem": describe(run.problem), "acquisition": describe(run.acquisition)}
        named.append(frame.assign(**facts)[[*facts, *frame.columns]])
    pd.concat(named, ignore_index=True).to_csv(path, index=False)
    return frames


def _stand(parts: dict[str, Part], folder: Path) -> None:
    """Print and write how surrogates stand on all parts."""
    told = standings({task: tables for task, (_, tables) in parts.items()})
    for budget, standing in told.items():
        say(f"\ninference regret at {budget}, medians over seeds; ranks over all runs\n")
        say(standing.to_string(index=False, float_format="{:.3g}".format))
    if told:
        named = [standing.assign(budget=budget) for budget, standing in told.items()]
        whole = pd.concat(named, ignore_index=True)
        columns = ["budget", *(name for name in whole if name != "budget")]
        whole[columns].to_csv(folder / "standings.csv", index=False)
    say("\nseconds by part and pairs by seed: summary.csv, paired.csv")


def _tell(line: pd.DataFrame, equal: pd.DataFrame, pairs: pd.DataFrame) -> None:
    """Print the tables of one problem; of pairs, those with the first surrogate."""
    printed = line.map(lambda v: f"{v:.3f}" if isinstance(v, float) else f"{v}")
    say("\n" + printed.set_index("surrogate").T.to_string())
    say("\ninference regret after so many observations, and seconds of the optimiser's\n")
    say(equal.to_string(index=False, float_format="{:.3g}".format, na_rep="-"))
    first = pairs[pairs["pair"].str.startswith(f"{line['surrogate'].iloc[0]} - ")]
    if len(first):
        rest = "" if len(first) == len(pairs) else "; other pairs are in paired.csv"
        say(f"\nlog inference regret, paired by seed{rest}\n")
        say(first.to_string(index=False, float_format="{:.3f}".format))


def _titled(title: str, run: Run, parts: dict[str, Part]) -> str:
    """The title, with the problem and acquisition where there are several."""
    if len(parts) == 1:
        return title
    return f"{title}: {describe(run.problem)}; {describe(run.acquisition)}"
