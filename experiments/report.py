"""A page about the results of a study: ``python -m experiments.report FOLDER``.

Results are a CSV for each run, ``<label>_<seed>.csv`` with a column ``step``, a JSON beside it, and
tables that summarise them.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from matplotlib.figure import Figure

from bo_stream.cli.page import PageTable, Picture, Section, describe, facts, page
from bo_stream.scores import ends_in_common, paired_bootstrap
from experiments.common.command import BadParameter

TASK = ("problem", "cells", "observation", "kernel")
"""Keys of a JSON that describe the task; runs of different tasks are shown separately."""
FEW = 300
"""Maximum number of rows of a CSV that is shown as a summary."""
MANY = 6
"""Maximum number of methods that are compared with each other; more are compared with the best."""
LEAST = 1e-6
"""Lower bound of scores that are compared by their logarithms."""
LONG = 12
"""Number of entries above which a list in a JSON is data rather than a setting."""
AGAINST = {"wallclock_seconds": "seconds", "n": "number of observations"}
REGRETS = {
    "inference_regret": "regret of the recommended point",
    "simple_regret": "regret of the best point observed",
}
ERRORS = {
    "rmse": "root mean squared error",
    "nlpd": "negative log predictive density",
    "coverage": "coverage of 95 % intervals",
    "integrated_variance": "mean variance over the test points",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "stream_rmse": "error of all batches so far, each before it was observed",
    "stream_nlpd": "negative log density of all batches so far, each before it was observed",
    "stream_accuracy": "accuracy on all batches so far, each before it was observed",
}
SECONDS = {
    "step_seconds": "seconds of a whole step",
    "fit_seconds": "seconds of fits",
    "fit_evaluation_seconds": "seconds of one evaluation of a fit, with gradient",
    "acquisition_seconds": "seconds of the acquisition",
    "update_seconds": "seconds of the update",
    "predict_seconds": "seconds of predictions",
}
STATE = {
    "bytes": "bytes of the surrogate's state",
    "log_predictive": "log density of every batch before it was observed",
}
LINEAR = {"nlpd", "coverage", "accuracy", "log_loss", "stream_nlpd", "stream_accuracy"}
LINEAR |= {"log_predictive"}
"""Columns on a linear axis; the others have a logarithmic one."""


app = typer.Typer(add_completion=False)


@dataclass(frozen=True)
class StudyRun:
    """One run: its method, seed and task, its table with a row for each step, and its JSON."""

    label: str
    seed: int
    task: str
    table: pd.DataFrame
    about: Mapping[str, Any]


@app.command()
def main(
    folder: Annotated[Path, typer.Argument(help="Folder with the results of a study.")],
    out: Annotated[Path | None, typer.Option(help="HTML; by default in the folder.")] = None,
) -> None:
    """Write a page of the results: scores against time and observations, seconds, settings."""
    target = out or folder / "report.html"
    target.write_text(study_page(folder), encoding="utf-8")
    print(f"Wrote {target}.")


def study_page(folder: Path) -> str:
    """The HTML of a study's page.

    Raises:
        BadParameter: if there are no results.
    """
    runs, summaries = read_results(folder)
    tasks = list(dict.fromkeys(run.task for run in runs))
    sections = [Section("Results in numbers", tables=[_medians(runs, tasks), *summaries])]
    for task in tasks:
        here = [run for run in runs if run.task == task]
        title = task or "Other runs"
        pictures = list(_pictures(here))
        tables = [differences(here, score) for score in ("inference_regret", "rmse")]
        sections.append(Section(title, pictures=pictures, tables=tables))
    sections.append(Section("Configuration of the runs", tables=_settings(runs)))
    counts = {name: len({getattr(run, name) for run in runs}) for name in ("label", "seed")}
    about = f"{len(runs)} runs; methods: {counts['label']}, seeds: {counts['seed']}"
    return page(f"Study: {folder.resolve().name}", f"{about}, tasks: {len(tasks)}", sections)


def read_results(folder: Path) -> tuple[list[StudyRun], list[PageTable]]:
    """Runs, sorted by task, label and seed, and other tables.

    Raises:
        BadParameter: if there is no run.
    """
    runs, summaries = [], []
    for path in sorted(folder.glob("*.csv")):
        table = pd.read_csv(path)
        if "step" not in table or not re.search(r"_\d+$", path.stem):
            if len(table) <= FEW:
                summaries.append(PageTable(path.name, table))
        elif len(table):
            runs.append(_run(path, table))
    if not runs:
        inner = sorted({p.parent.relative_to(folder).as_posix() for p in folder.glob("*/**/*.csv")})
        remedy = f"Name one of its folders: {', '.join(inner[:5])}." if inner else ""
        raise BadParameter(f"There is no run, a file like wiski_0.csv, in {folder}. {remedy}")
    runs = sorted(runs, key=lambda run: (run.task, run.label, run.seed))
    counted: dict[tuple[str, str], int] = {}
    distinct = []
    for run in runs:  # files of the same label are further seeds of it
        number = counted[run.task, run.label] = counted.get((run.task, run.label), -1) + 1
        distinct.append(replace(run, seed=number))
    return distinct, summaries


def _run(path: Path, table: pd.DataFrame) -> StudyRun:
    stem, _, seed = path.stem.rpartition("_")
    beside = path.with_suffix(".json")
    about = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    task = ", ".join(describe(about[key]) for key in TASK if key in about)
    return StudyRun(str(about.get("label", stem)), int(seed), task, table, about)


def _by_label(runs: Sequence[StudyRun]) -> dict[str, list[pd.DataFrame]]:
    tables: dict[str, list[pd.DataFrame]] = {}
    for run in runs:
        tables.setdefault(run.label, []).append(run.table)
    return tables


def _medians(runs: Sequence[StudyRun], tasks: Sequence[str]) -> PageTable:
    rows = []
    for task in tasks:
        for label, tables in _by_label([run for run in runs if run.task == task]).items():
            ends = pd.DataFrame([table.ffill().iloc[-1] for table in tables])
            row = {"task": task, "method": label, "seeds": len(tables)}
            shown = {"n": "observations", "wallclock_seconds": "seconds", **REGRETS, **ERRORS}
            row |= {title: ends[name].median() for name, title in shown.items() if name in ends}
            rows.append(row)
    return PageTable("Medians over seeds at the end of the runs", pd.DataFrame(rows))


def _pictures(runs: Sequence[StudyRun]) -> Iterator[Picture]:
    """Medians and quartiles over seeds of every score, against seconds and observations."""
    tables = _by_label(runs)
    for name, title in {**REGRETS, **ERRORS, **SECONDS, **STATE}.items():
        against = [x for x in AGAINST if x == "n" or name not in {**SECONDS, **STATE}]
        against = [x for x in against if any({x, name} <= set(run.table) for run in runs)]
        if against and any(name in run.table and run.table[name].notna().any() for run in runs):
            figure = Figure(figsize=(5.5 * len(against) + 0.5, 4.3), layout="constrained")
            panels = figure.subplots(1, len(against), squeeze=False)[0]
            for ax, x in zip(panels, against, strict=True):
                for label, several in tables.items():
                    _curve(ax, label, several, x, name)
                ax.set(xlabel=AGAINST[x], ylabel=title)
                if name not in LINEAR:
                    ax.set_yscale("log")
                if x == "wallclock_seconds":
                    ax.set_xscale("log")
            panels[0].legend(fontsize=8)
            title = f"{title[0].upper()}{title[1:]}"
            yield Picture(title, "Median and quartiles over seeds.", figure)


def _curve(ax: Any, label: str, tables: Sequence[pd.DataFrame], x: str, y: str) -> None:
    """Draw the runs of a method, matched by step."""
    kept = [t[list(dict.fromkeys(("step", x, y)))] for t in tables if {x, y} <= set(t)]
    if kept:
        whole = pd.concat(kept).replace([np.inf, -np.inf], np.nan).dropna(subset=[y])
        steps = whole.groupby("step")
        at = steps[x].median()
        (line,) = ax.plot(at, steps[y].median(), label=label)
        low, high = steps[y].quantile(0.25), steps[y].quantile(0.75)
        ax.fill_between(at, low, high, alpha=0.15, color=line.get_color())


def differences(runs: Sequence[StudyRun], score: str) -> PageTable:
    """Differences of the log scores of two methods, one row for each pair of methods.

    All pairs are compared or, with more than six methods, each with the one whose last scores are
    best. A difference is the median over their common seeds of means over the last tenth of their
    common steps, with a bootstrap interval (95 %) if there are at least three seeds.

    Args:
        runs: Runs of one task.
        score: Column of a score that is better when smaller.
    """
    logs: dict[str, dict[int, pd.Series[float]]] = {}
    for run in runs:
        if score in run.table and run.table[score].notna().any():
            known = run.table.dropna(subset=[score]).set_index("step")[score]
            logs.setdefault(run.label, {})[run.seed] = np.log(known.clip(lower=LEAST))
    pairs = list(combinations(logs, 2))
    if len(logs) > MANY:
        last = {a: float(np.median([s.iloc[-1] for s in of.values()])) for a, of in logs.items()}
        best = min(last, key=lambda label: last[label])
        pairs = [(label, best) for label in logs if label != best]
    rows = []
    for a, b in pairs:
        both = sorted(logs[a].keys() & logs[b].keys())
        ends = [end for seed in both if (end := ends_in_common(logs[a][seed], logs[b][seed]))]
        if ends:
            d = paired_bootstrap([end[0] for end in ends], [end[1] for end in ends])
            rows.append((f"{a} - {b}", d.pairs, d.median, d.low, d.high))
    frame = pd.DataFrame(rows, columns=["pair", "seeds", "median", "low", "high"])
    name = {**REGRETS, **ERRORS}[score]
    return PageTable(f"Logarithm of the {name}, paired by seed: mean over the last tenth", frame)


def _settings(runs: Sequence[StudyRun]) -> list[PageTable]:
    """Configuration that all runs have in common, and that which differs."""
    flat = pd.DataFrame([_flat(run.about) for run in runs]).drop(columns=["seed"], errors="ignore")
    flat = flat.drop(columns=[c for c in flat if str(c).endswith((".seed", "queried", "readings"))])
    common = [c for c in flat if flat[c].nunique(dropna=False) == 1]
    same = {str(c): flat[c].iloc[0] for c in common if pd.notna(flat[c].iloc[0])}
    differing = flat.drop(columns=[*common, "label"], errors="ignore")
    differing.insert(0, "method", [run.label for run in runs])
    return [
        facts("The same in all runs", same),
        PageTable("What differs", differing.drop_duplicates()),
    ]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted names, without long lists, which are data."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif not (isinstance(value, list) and len(value) > LONG):
            flat[f"{prefix}{key}"] = None if value is None else str(value)
    return flat


if __name__ == "__main__":
    app()
