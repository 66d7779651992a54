"""The page of a study: scores and costs of its runs, and their configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from bo_stream.cli.reports.figures import Curve, Figure, Panels, band, numbers
from bo_stream.cli.reports.page import PageSection, page
from bo_stream.cli.reports.paired import difference_figure, differences
from bo_stream.cli.reports.runs import StudyResults, StudyRun, read_results
from bo_stream.cli.reports.tables import facts, table

__all__ = ["study_page"]


@dataclass(frozen=True)
class PlotColumn:
    """How a column of a run is drawn.

    Attributes:
        title: Description of the column.
        axis: Short description with the unit.
        logarithmic: Whether its axis is logarithmic.
        least: Lower bound of the values drawn.
        steps: Whether a value holds until the next one.
    """

    title: str
    axis: str
    logarithmic: bool = True
    least: float | None = None
    steps: bool = False


AXES = {"wallclock_seconds": "wall-clock time (seconds)", "n": "number of observations"}
REGRETS = {
    "inference_regret": PlotColumn("regret of the recommended point", "regret", True, 1e-3, True),
    "simple_regret": PlotColumn("regret of the best point observed", "regret", True, 1e-3, True),
}
ERRORS = {
    "rmse": PlotColumn("root mean squared error", "RMSE"),
    "nlpd": PlotColumn("negative log predictive density", "NLPD (nats)", False),
    "coverage": PlotColumn("coverage of 95 % intervals", "coverage", False),
    "integrated_variance": PlotColumn("mean variance over the test points", "variance"),
    "accuracy": PlotColumn("accuracy", "accuracy", False),
    "log_loss": PlotColumn("log loss", "nats", False),
    "stream_rmse": PlotColumn("error of all batches so far, each before it was observed", "RMSE"),
    "stream_nlpd": PlotColumn(
        "negative log density of all batches so far, each before it was observed", "nats", False
    ),
    "stream_accuracy": PlotColumn(
        "accuracy on all batches so far, each before it was observed", "accuracy", False
    ),
}
SECONDS = {
    "step_seconds": PlotColumn("a whole step", "seconds", True, 1e-6),
    "fit_seconds": PlotColumn("fit", "seconds", True, 1e-6),
    "fit_evaluation_seconds": PlotColumn("one evaluation of a fit, with gradient", "seconds", True),
    "acquisition_seconds": PlotColumn("acquisition", "seconds", True, 1e-6),
    "update_seconds": PlotColumn("update", "seconds", True, 1e-6),
    "predict_seconds": PlotColumn("prediction", "seconds", True, 1e-6),
}
STATE = {
    "bytes": PlotColumn("bytes of the surrogate's state", "bytes"),
    "log_predictive": PlotColumn(
        "log density of every batch before it was observed", "nats", False
    ),
}
COMPARED = ("inference_regret", "rmse")
WIDE = 1000.0
"""Ratio of the largest to the smallest number of observations for a logarithmic axis."""
UNEVEN = 5.0
"""Ratio of the last numbers of the longest and the shortest curve for a logarithmic axis."""
LONG = 12
"""Number of entries above which a list in a JSON is data rather than a setting."""


def study_page(folder: Path) -> str:
    """The HTML of a study's page.

    Args:
        folder: Folder of its results.

    Raises:
        InputError: if there are no results.
    """
    found = read_results(folder)
    panels = Panels(len({(run.task, run.label) for run in found.runs}))
    names = {"methods": "label", "seeds": "seed", "tasks": "task"}
    counts = {noun: len({getattr(run, name) for run in found.runs}) for noun, name in names.items()}
    about = f"{len(found.runs)} runs; " + ", ".join(f"{noun}: {n}" for noun, n in counts.items())
    sections = [PageSection("Results in numbers", _summary(found))]
    for title, make in (
        ("Regret", _regrets),
        ("Errors at test points", _errors),
        ("Differences between methods", _paired),
        ("Seconds per step", _seconds),
        ("State and predictions", _state),
    ):
        sections.append(PageSection(title, "".join(_by_task(found, make, panels))))
    sections.append(PageSection("Configuration of the runs", _provenance(found.runs)))
    return page(f"Study: {folder.resolve().name}", about, sections)


def _by_task(found: StudyResults, make: Any, panels: Panels) -> Iterable[str]:
    """The part of each task, under its heading if there are several."""
    for task in found.tasks:
        body = make([run for run in found.runs if run.task == task], panels, task)
        several = len(found.tasks) > 1
        yield f"<h3>{escape(task or 'Other runs')}</h3>{body}" if body and several else body


def _summary(found: StudyResults) -> str:
    rows = []
    for task in found.tasks:
        for label, runs in _by_label([run for run in found.runs if run.task == task]).items():
            ends = pd.DataFrame([t.ffill().iloc[-1] for t in runs])
            known = {**REGRETS, **ERRORS, "bytes": STATE["bytes"]}
            scores = {c.title: _median(ends, name) for name, c in known.items()}
            spent = {"total seconds (median)": _median(ends, "wallclock_seconds")}
            counts = {"seeds": len(runs), "steps": int(ends["step"].min())}
            n = {"observations": _median(ends, "n")}
            rows.append({"task": task, "method": label, **counts, **n, **spent, **scores})
    frame = pd.DataFrame(rows).dropna(axis="columns", how="all")
    frame = frame.drop(columns=["task"]) if len(found.tasks) == 1 else frame
    medians = table("Medians over seeds at the end of the runs", frame)
    return medians + "".join(table(f"{name}.csv", rows) for name, rows in found.summaries.items())


def _median(ends: pd.DataFrame, name: str) -> float:
    return float(pd.to_numeric(ends[name]).median()) if name in ends else float("nan")


def _by_label(runs: Sequence[StudyRun]) -> dict[str, list[pd.DataFrame]]:
    tables: dict[str, list[pd.DataFrame]] = {}
    for run in runs:
        tables.setdefault(run.label, []).append(run.table)
    return tables


def _regrets(runs: Sequence[StudyRun], panels: Panels, task: str) -> str:
    return _drawn(runs, panels, task, [(c, x) for c in REGRETS.items() for x in AXES])


def _errors(runs: Sequence[StudyRun], panels: Panels, task: str) -> str:
    return _drawn(runs, panels, task, [(c, x) for c in ERRORS.items() for x in AXES])


def _seconds(runs: Sequence[StudyRun], panels: Panels, task: str) -> str:
    return _drawn(runs, panels, task, [(c, "n") for c in SECONDS.items()])


def _state(runs: Sequence[StudyRun], panels: Panels, task: str) -> str:
    return _drawn(runs, panels, task, [(c, "n") for c in STATE.items()])


def _drawn(
    runs: Sequence[StudyRun],
    panels: Panels,
    task: str,
    wanted: Iterable[tuple[tuple[str, PlotColumn], str]],
) -> str:
    tables = _by_label(runs)
    figures = [_figure(tables, name, column, x, panels.most) for (name, column), x in wanted]
    return panels.html(figures, list(tables), task)


def _figure(
    tables: Mapping[str, Sequence[pd.DataFrame]],
    name: str,
    column: PlotColumn,
    x: str,
    most: int,
) -> Figure | None:
    drawn = [(k, Curve.of(label, runs, x, name)) for k, (label, runs) in enumerate(tables.items())]
    curves = [(k, curve) for k, curve in drawn if curve is not None]
    if not curves:
        return None
    traces = [t for k, curve in curves for t in band(curve, k, column.least, column.steps, most)]
    several = any(curve.seeds > 1 for _, curve in curves)
    note = "Median and quartiles over seeds" if several else "One seed"
    lowest = min(float(curve.frame["low"].min()) for _, curve in curves)
    below = column.least is not None and lowest < column.least
    note += f"; values below {column.least:g} are drawn at {column.least:g}." if below else "."
    scale = {"type": "log"} if column.logarithmic else {}
    least, largest = (pick(float(pick(c.frame["x"])) for _, c in curves) for pick in (min, max))
    shortest = min(float(c.frame["x"].iloc[-1]) for _, c in curves)
    uneven = largest >= WIDE * least or largest >= UNEVEN * shortest
    wide = x == "wallclock_seconds" or (uneven and least > 0.0)
    against = {"wallclock_seconds": "wall-clock", "n": "observations"}[x]
    return Figure(
        f"{column.title[0].upper()}{column.title[1:]} against {against}",
        traces,
        {"title": AXES[x], **({"type": "log"} if wide else {})},
        {"title": column.axis, **scale},
        note,
        numbers((curve for _, curve in curves), AXES[x]),
    )


def _paired(runs: Sequence[StudyRun], panels: Panels, task: str) -> str:
    tables, figures = "", []
    for score in COMPARED:
        frame = differences(runs, score)
        name = {**REGRETS, **ERRORS}[score].title
        title = f"Logarithm of the {name}, paired by seed"
        figures.append(difference_figure(frame, title))
        tables += table(f"{title}: mean over the last tenth of the steps", frame)
    return panels.html(figures, about=task) + tables


def _provenance(runs: Sequence[StudyRun]) -> str:
    """Configuration that all runs have in common, and that which differs."""
    flat = pd.DataFrame([_flat(run.about) for run in runs]).drop(columns=["seed"], errors="ignore")
    flat = flat.drop(columns=[c for c in flat if str(c).endswith((".seed", "queried", "readings"))])
    if flat.empty:
        return "<p>There is no JSON with a configuration beside the tables.</p>"
    common = [c for c in flat if flat[c].nunique(dropna=False) == 1]
    same = {str(c): flat[c].iloc[0] for c in common if pd.notna(flat[c].iloc[0])}
    own = flat.drop(columns=[*common, "label"], errors="ignore")
    own.insert(0, "method", [run.label for run in runs])
    return facts("The same in all runs", same) + table(
        "What differs", own.drop_duplicates() if len(own.columns) > 1 else own[:0]
    )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted names, without long lists, which are data."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif not (isinstance(value, list) and len(value) > LONG):
            flat[f"{prefix}{key}"] = None if value is None else str(value)
    return flat
