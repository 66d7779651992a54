"""What a study found, by problem and acquisition: pictures, and tables printed and written."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt

from bo_stream.cli.reports.runs import describe
from experiments.bayesopt.peers.registry import skipped
from experiments.bayesopt.runs import BayesoptRun
from experiments.bayesopt.tables import budgets, paired, standings, summary
from experiments.common.plots import CROWD, draw_band, legend, logarithmic_axis, save
from experiments.common.progress import say
from experiments.common.study import expanded, listed

Part = tuple[BayesoptRun, list[pd.DataFrame]]
"""A run of a problem and acquisition, and the tables of all of them."""
LEAST = 1e-3
"""Regrets below this are drawn here, since the axis is logarithmic."""
COLUMNS = 5
"""Of panels."""
PANELS = {"wallclock_seconds": "wall-clock time (seconds)", "n": "number of observations"}


def report(
    c: dict[str, Any], done: Sequence[tuple[BayesoptRun, pd.DataFrame]], folder: Path
) -> None:
    """Draw and tabulate the runs that are done.

    Writes a picture of the regrets for each problem and acquisition, ``summary.csv``,
    ``budgets.csv`` and ``paired.csv``, and prints these tables. Where there are several problems or
    acquisitions, it writes and prints ``standings.csv``, and leaves the others to their files.
    """
    parts: dict[str, Part] = {}
    for run, table in done:
        named = table.assign(surrogate=run.label, seed=run.config.seed)
        parts.setdefault(run.task, (run, []))[1].append(named)
    title = c.get("title", "Regret")
    for task, (run, tables) in parts.items():
        over = title if len(parts) == 1 else f"{title}: {'; '.join(_facts(run).values())}"
        of_task = f"_{task}" if task else ""
        wallclock = folder / f"regret_vs_wallclock{of_task}.png"
        if len({str(t["surrogate"].iloc[0]) for t in tables}) > CROWD:
            draw_each(tables, "wallclock_seconds", wallclock, over)
            draw_each(tables, "n", folder / f"regret_vs_observations{of_task}.png", over)
        else:
            draw_regret(tables, wallclock, over)
    lines = _written(parts, folder / "summary.csv", lambda run, t: summary(t, run.config.q))
    equal = _written(parts, folder / "budgets.csv", lambda run, t: budgets(t))
    pairs = _written(parts, folder / "paired.csv", lambda run, t: paired(t))
    say(f"\n{title}")
    if len(parts) > 1:
        _say_standings(parts, folder)
    else:
        (task,) = parts
        _say_tables(lines[task], equal[task], pairs[task])
    if absent := skipped(each for entry in listed(c.get("peer", [])) for each in expanded(entry)):
        why = pd.DataFrame({"peer": absent.keys(), "why": absent.values()})
        why.to_csv(folder / "skipped.csv", index=False)
    say(f"\nWrote {folder}/")


def draw_regret(tables: Sequence[pd.DataFrame], path: Path, title: str) -> None:
    """Draw the regret of the recommendation against wall-clock and against observations.

    Args:
        tables: One per run, as a `BOLoop` records them, with a column ``surrogate``.
        path: Of the picture; folders are made.
        title: Of the figure.
    """
    table = pd.concat(list(tables), ignore_index=True).dropna(subset=["inference_regret"])
    table["inference_regret"] = table["inference_regret"].clip(lower=LEAST)
    figure, panels = plt.subplots(1, 2, sharey=True, figsize=(11, 4.5), layout="constrained")
    for ax, (x, name) in zip(panels, PANELS.items(), strict=True):
        seeds = []
        for label, runs in table.groupby("surrogate", sort=False):
            seeds.append(draw_band(ax, runs, "inference_regret", x, str(label))[1])
        ax.set(xlabel=name)
        logarithmic_axis(ax, "y")
        ax.grid(True, alpha=0.25)
    logarithmic_axis(panels[0], "x")
    panels[0].set_ylabel("regret of the recommended point, without noise")
    legend(panels[1], seeds)
    figure.suptitle(title)
    save(figure, path)


def draw_each(tables: Sequence[pd.DataFrame], x: str, path: Path, title: str) -> None:
    """Draw inference regret against one of `PANELS` in a panel for each surrogate, over the medians
    of all others; otherwise as `draw_regret`.
    """
    table = pd.concat(list(tables), ignore_index=True).dropna(subset=["inference_regret"])
    table["inference_regret"] = table["inference_regret"].clip(lower=LEAST)
    parts = list(table.groupby("surrogate", sort=False))
    rows = -(-len(parts) // COLUMNS)
    size = (2.6 * COLUMNS, 2.3 * rows + 0.8)
    figure, panels = plt.subplots(
        rows, COLUMNS, figsize=size, sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for ax in panels.flat[len(parts) :]:
        ax.set_axis_off()
    for ax in panels.flat[max(len(parts) - COLUMNS, 0) : len(parts)]:
        ax.tick_params(labelbottom=True)
    medians = [runs.groupby("step")[[x, "inference_regret"]].median() for _, runs in parts]
    seeds = 0
    for ax, (label, runs) in zip(panels.flat, parts, strict=False):
        for median in medians:
            ax.plot(median[x], median["inference_regret"], color="0.8", linewidth=0.7, zorder=1)
        seeds = max(seeds, draw_band(ax, runs, "inference_regret", x, str(label))[1])
        ax.set_title(str(label), fontsize=9)
    logarithmic_axis(panels[0, 0], "x")
    logarithmic_axis(panels[0, 0], "y")
    figure.supxlabel(PANELS[x], fontsize=10)
    figure.supylabel("regret of the recommended point, without noise", fontsize=10)
    about = f"median and range of {seeds} seeds" if seeds > 1 else "one seed, hence no bands"
    figure.suptitle(f"{title}\n{about}; grey: the others", fontsize=10)
    save(figure, path)


def _facts(run: BayesoptRun) -> dict[str, str]:
    """Problem and acquisition of a run, as ``bo-stream report`` calls them."""
    return {"problem": describe(run.problem), "acquisition": describe(run.acquisition)}


def _written(
    parts: dict[str, Part],
    path: Path,
    made: Callable[[BayesoptRun, list[pd.DataFrame]], pd.DataFrame],
) -> dict[str, pd.DataFrame]:
    """A table of each part, and a file of all of them that says which they are of."""
    frames, named = {task: made(run, tables) for task, (run, tables) in parts.items()}, []
    for task, frame in frames.items():
        facts = _facts(parts[task][0])
        named.append(frame.assign(**facts)[[*facts, *frame.columns]])
    pd.concat(named, ignore_index=True).to_csv(path, index=False)
    return frames


def _say_standings(parts: dict[str, Part], folder: Path) -> None:
    """Print and write how surrogates stand on all parts."""
    found = standings({task: tables for task, (_, tables) in parts.items()})
    for budget, standing in found.items():
        say(f"\ninference regret at {budget}, medians over seeds; ranks over all runs\n")
        say(standing.to_string(index=False, float_format="{:.3g}".format))
    if found:
        named = [standing.assign(budget=budget) for budget, standing in found.items()]
        whole = pd.concat(named, ignore_index=True)
        whole.insert(0, "budget", whole.pop("budget"))
        whole.to_csv(folder / "standings.csv", index=False)
    say("\nseconds by part and pairs by seed: summary.csv, paired.csv")


def _say_tables(line: pd.DataFrame, equal: pd.DataFrame, pairs: pd.DataFrame) -> None:
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
