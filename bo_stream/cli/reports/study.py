"""The page of a study: what its runs reached, at what cost, and how they came about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from bo_stream.cli.reports.figures import Curve, Figure, Panels, band, numbers
from bo_stream.cli.reports.page import Section, page
from bo_stream.cli.reports.paired import difference_figure, differences
from bo_stream.cli.reports.runs import Results, Run, results
from bo_stream.cli.reports.tables import facts, table

__all__ = ["study_page"]


@dataclass(frozen=True)
class Column:
    """How a column of a run is drawn.

    Attributes:
        words: What it is.
        axis: The same in short, with its unit.
        logarithmic: Whether its axis is.
        least: Smaller values are drawn here.
        steps: Whether values hold until the next one.
    """

    words: str
    axis: str
    logarithmic: bool = True
    least: float | None = None
    steps: bool = False


AXES = {"wallclock_seconds": "wall-clock time (seconds)", "n": "number of observations"}
REGRETS = {
    "inference_regret": Column("regret of the recommended point", "regret", True, 1e-3, True),
    "simple_regret": Column("regret of the best point observed", "regret", True, 1e-3, True),
}
ERRORS = {
    "rmse": Column("root mean squared error", "RMSE"),
    "nlpd": Column("negative log predictive density", "NLPD (nats)", False),
    "coverage": Column("coverage of 95 % intervals", "coverage", False),
    "integrated_variance": Column("mean variance over the test points", "variance"),
    "accuracy": Column("accuracy", "accuracy", False),
    "log_loss": Column("log loss", "nats", False),
    "stream_rmse": Column("error of all batches so far, each before it was learned", "RMSE"),
    "stream_nlpd": Column(
        "negative log density of all batches so far, each before it was learned", "nats", False
    ),
    "stream_accuracy": Column(
        "accuracy on all batches so far, each before it was learned", "accuracy", False
    ),
}
SECONDS = {
    "step_seconds": Column("a whole step", "seconds", True, 1e-6),
    "fit_seconds": Column("fit", "seconds", True, 1e-6),
    "fit_evaluation_seconds": Column("one evaluation of a fit, with gradient", "seconds", True),
    "acquisition_seconds": Column("acquisition", "seconds", True, 1e-6),
    "update_seconds": Column("update", "seconds", True, 1e-6),
    "predict_seconds": Column("prediction", "seconds", True, 1e-6),
}
STATE = {
    "bytes": Column("bytes of the surrogate's state", "bytes"),
    "log_predictive": Column("log density of batches not yet learned", "nats", False),
}
COMPARED = ("inference_regret", "rmse")
WIDE = 1000.0
"""Ratio of the largest number of observations to the least from which its axis is logarithmic."""
UNEVEN = 5.0
"""The ratio of the longest curve's last number to the shortest's from which it is, too."""
LONG = 12
"""Entries above which a list in a JSON is data rather than a setting."""


def study_page(folder: Path) -> str:
    """The HTML of a study's page.

    Args:
        folder: Its results.

    Raises:
        InputError: if there are none.
    """
    found = results(folder)
    panels = Panels(len({(run.task, run.label) for run in found.runs}))
    names = {"methods": "label", "seeds": "seed", "tasks": "task"}
    counts = {word: len({getattr(run, name) for run in found.runs}) for word, name in names.items()}
    about = f"{len(found.runs)} runs; " + ", ".join(f"{word}: {n}" for word, n in counts.items())
    sections = [Section("Results in numbers", _summary(found))]
    for title, make in (
        ("Regret", _regrets),
        ("Errors at test points", _errors),
        ("Differences between methods", _paired),
        ("Seconds a step", _seconds),
        ("State and predictions", _state),
    ):
        sections.append(Section(title, "".join(_by_task(found, make, panels))))
    sections.append(Section("How the runs came about", _provenance(found.runs)))
    return page(f"Study: {folder.resolve().name}", about, sections)


def _by_task(found: Results, make: Any, panels: Panels) -> Iterable[str]:
    """What each task has to say, under its heading where there are several."""
    for task in found.tasks:
        body = make([run for run in found.runs if run.task == task], panels, task)
        several = len(found.tasks) > 1
        yield f"<h3>{escape(task or 'Other runs')}</h3>{body}" if body and several else body


def _summary(found: Results) -> str:
    rows = []
    for task in found.tasks:
        for label, runs in _labelled([run for run in found.runs if run.task == task]).items():
            ends = pd.DataFrame([t.ffill().iloc[-1] for t in runs])
            known = {**REGRETS, **ERRORS, "bytes": STATE["bytes"]}
            scores = {c.words: _median(ends, name) for name, c in known.items()}
            spent = {"seconds in all (median)": _median(ends, "wallclock_seconds")}
            counts = {"seeds": len(runs), "steps": int(ends["step"].min())}
            n = {"observations": _median(ends, "n")}
            rows.append({"task": task, "method": label, **counts, **n, **spent, **scores})
    frame = pd.DataFrame(rows).dropna(axis="columns", how="all")
    frame = frame.drop(columns=["task"]) if len(found.tasks) == 1 else frame
    said = table("Medians over seeds at the end of the runs", frame)
    return said + "".join(table(f"{name}.csv", rows) for name, rows in found.summaries.items())


def _median(ends: pd.DataFrame, name: str) -> float:
    return float(pd.to_numeric(ends[name]).median()) if name in ends else float("nan")


def _labelled(runs: Sequence[Run]) -> dict[str, list[pd.DataFrame]]:
    tables: dict[str, list[pd.DataFrame]] = {}
    for run in runs:
        tables.setdefault(run.label, []).append(run.table)
    return tables


def _regrets(runs: Sequence[Run], panels: Panels, task: str) -> str:
    return _drawn(runs, panels, task, [(c, x) for c in REGRETS.items() for x in AXES])


def _errors(runs: Sequence[Run], panels: Panels, task: str) -> str:
    return _drawn(runs, panels, task, [(c, x) for c in ERRORS.items() for x in AXES])


def _seconds(runs: Sequence[Run], panels: Panels, task: str) -> str:
    return _drawn(runs, panels, task, [(c, "n") for c in SECONDS.items()])


def _state(runs: Sequence[Run], panels: Panels, task: str) -> str:
    return _drawn(runs, panels, task, [(c, "n") for c in STATE.items()])


def _drawn(
    runs: Sequence[Run],
    panels: Panels,
    task: str,
    wanted: Iterable[tuple[tuple[str, Column], str]],
) -> str:
    tables = _labelled(runs)
    figures = [_figure(tables, name, column, x, panels.most) for (name, column), x in wanted]
    return panels.html(figures, list(tables), task)


def _figure(
    tables: Mapping[str, Sequence[pd.DataFrame]],
    name: str,
    column: Column,
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
    note += f"; values below {column.least:g} are drawn there." if below else "."
    scale = {"type": "log"} if column.logarithmic else {}
    least, largest = (pick(float(pick(c.frame["x"])) for _, c in curves) for pick in (min, max))
    shortest = min(float(c.frame["x"].iloc[-1]) for _, c in curves)
    uneven = largest >= WIDE * least or largest >= UNEVEN * shortest
    wide = x == "wallclock_seconds" or (uneven and least > 0.0)
    against = {"wallclock_seconds": "wall-clock", "n": "observations"}[x]
    return Figure(
        f"{column.words[0].upper()}{column.words[1:]} against {against}",
        traces,
        {"title": AXES[x], **({"type": "log"} if wide else {})},
        {"title": column.axis, **scale},
        note,
        numbers((curve for _, curve in curves), AXES[x]),
    )


def _paired(runs: Sequence[Run], panels: Panels, task: str) -> str:
    said, figures = "", []
    for score in COMPARED:
        frame = differences(runs, score)
        words = {**REGRETS, **ERRORS}[score].words
        title = f"Logarithm of the {words}, paired by seed"
        figures.append(difference_figure(frame, title))
        said += table(f"{title}: mean over the last tenth of the steps", frame)
    return panels.html(figures, about=task) + said


def _provenance(runs: Sequence[Run]) -> str:
    """What all runs have in common, and what tells methods apart."""
    flat = pd.DataFrame([_flat(run.about) for run in runs]).drop(columns=["seed"], errors="ignore")
    flat = flat.drop(columns=[c for c in flat if str(c).endswith((".seed", "queried", "readings"))])
    if flat.empty:
        return "<p>No file beside the tables says how they came about.</p>"
    common = [c for c in flat if flat[c].nunique(dropna=False) == 1]
    same = {str(c): flat[c].iloc[0] for c in common if pd.notna(flat[c].iloc[0])}
    own = flat.drop(columns=[*common, "label"], errors="ignore")
    own.insert(0, "method", [run.label for run in runs])
    return facts("The same in all runs", same) + table(
        "What differs", own.drop_duplicates() if len(own.columns) > 1 else own[:0]
    )


def _flat(said: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Settings by dotted names; long lists are data and left out."""
    flat: dict[str, Any] = {}
    for key, value in said.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{above}{key}.")
        elif not (isinstance(value, list) and len(value) > LONG):
            flat[f"{above}{key}"] = None if value is None else str(value)
    return flat
