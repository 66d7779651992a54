"""What a configuration says, checked as far as that can be done without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from bo_stream.cli.toml_document import Document, read
from bo_stream.cli.toml_reader import Section

__all__ = ["Config", "Input", "Places", "Run", "read_config"]

Goal = Literal["maximise", "minimise", "learn"]
GOALS = ("maximise", "minimise", "learn")


@dataclass(frozen=True)
class Input:
    """A continuous input: its bounds, the unit for labels, whether its scale is logarithmic."""

    low: float
    high: float
    unit: str | None
    log: bool


@dataclass(frozen=True)
class Places:
    """A table of places that can be measured.

    Attributes:
        file: A CSV.
        inputs: Its columns that are coordinates; None: all numeric ones.
        index: Its column that names the places; None: they are numbered.
        repeats: Whether a place may be measured again.
        units: Units by input, for labels.
    """

    file: Path
    inputs: list[str] | None
    index: str | None
    repeats: bool
    units: Mapping[str, str]


@dataclass(frozen=True)
class Run:
    """How an objective is evaluated.

    Attributes:
        workers: Local processes; None: in this one.
        timeout: Seconds that an evaluation may take; only workers can be stopped.
        q: Trials asked for at a time where there are no workers.
    """

    workers: int | None
    timeout: float | None
    q: int | None


@dataclass(frozen=True)
class Config:
    """A campaign as its TOML describes it.

    Attributes:
        document: The TOML.
        name: Of the campaign in its store.
        store: URL of the store.
        goal: ``maximise``, ``minimise`` or ``learn``.
        budget: Measurements in all.
        objective: ``file.py:function`` or ``module:function``, for `run`.
        outcome: What is measured, with its unit, for labels.
        optimum: The best outcome there can be, where that is known.
        seed: Of the campaign.
        initial: Outcomes to wait for before there is a surrogate.
        space: Inputs by name, or a table of places.
        surrogate: Name and options; None: chosen by the campaign.
        acquisition: Likewise.
        run: How objectives are evaluated.
    """

    document: Document
    name: str
    store: str
    goal: Goal
    budget: int | None
    objective: str | None
    outcome: str | None
    optimum: float | None
    seed: int | None
    initial: int | None
    space: Mapping[str, Input] | Places
    surrogate: Mapping[str, Any] | None
    acquisition: Mapping[str, Any] | None
    run: Run


def read_config(path: Path) -> Config:
    """The configuration in a file.

    Raises:
        ConfigError: naming line and key of what is wrong.
    """
    document = read(path)
    top = Section(document)
    name = top.required("name", '"oven"')
    config = Config(
        document,
        name,
        _store(document, top.text("store", f"sqlite:///{name}.db") or ""),
        cast(Goal, top.choice("goal", *GOALS)),
        top.whole("budget", least=2),
        top.text("objective"),
        top.text("outcome"),
        top.number("optimum"),
        top.whole("seed", least=0),
        top.whole("initial", least=2),
        _space(top),
        _named(top, "surrogate"),
        _named(top, "acquisition"),
        _run(top),
    )
    top.done()
    return config


def _store(document: Document, url: str) -> str:
    """A URL; the file of an SQLite database is relative to the TOML."""
    kind, found, path = url.partition(":///")
    if not found or not kind.startswith("sqlite") or path in ("", ":memory:"):
        return url
    return f"{kind}:///{document.beside(path).resolve()}"


def _space(top: Section) -> Mapping[str, Input] | Places:
    if ("inputs" in top) == ("pool" in top):
        got = "both" if "pool" in top else "neither"
        raise top.document.error(
            ("pool",) if "pool" in top else (),
            "either tables [inputs.NAME] or one table [pool]",
            got,
            "Inputs have bounds and any value between; a pool is a table of places.",
        )
    if "pool" in top:
        return _places(top.inner("pool"))
    inputs = top.inner("inputs")
    if not inputs.names():
        raise inputs.document.error(
            inputs.key, "an input", "none", "Add [inputs.pressure] with low and high."
        )
    return {name: _input(inputs.inner(name)) for name in inputs.names()}


def _input(table: Section) -> Input:
    low, high = table.number("low"), table.number("high")
    for name, bound in (("low", low), ("high", high)):
        if bound is None:
            raise table.missing(name, "1.0")
    unit, log = table.text("unit"), table.yes("log")
    table.done()
    low, high = float(low or 0.0), float(high or 0.0)
    if low >= high:
        raise table.document.error(
            (*table.key, "low"),
            f"a lower bound below the upper one, {high:g}",
            f"{low:g}",
            "Correct one of them.",
        )
    if log and low <= 0.0:
        raise table.document.error(
            (*table.key, "low"),
            "a positive bound on a logarithmic scale",
            f"{low:g}",
            "Raise it, or leave out log = true.",
        )
    return Input(low, high, unit, log)


def _places(table: Section) -> Places:
    file = table.document.beside(table.required("file", '"places.csv"'))
    inputs, index = table.texts("inputs"), table.text("index")
    repeats, units = table.yes("repeats"), table.inner("units")
    known = {name: units.text(name) or "" for name in units.names()}
    table.done()
    if not file.is_file():
        raise table.document.error(
            (*table.key, "file"), "a CSV of places", f"{file}, which is not there", "Correct it."
        )
    return Places(file, inputs, index, repeats, known)


def _named(top: Section, part: str) -> Mapping[str, Any] | None:
    """Name and options; which of them there are is known to `bo_stream.cli.validation`."""
    if part not in top:
        top.inner(part)
        return None
    table = top.inner(part)
    name = table.required("name", '"wiski"' if part == "surrogate" else '"qlogei"')
    return {**table.rest(table.names()), "name": name}


def _run(top: Section) -> Run:
    table = top.inner("run")
    run = Run(table.whole("workers"), table.number("timeout"), table.whole("q"))
    table.done()
    wrong = table.document.error
    if run.timeout is not None and run.timeout <= 0.0:
        raise wrong(("run", "timeout"), "seconds, more than 0", f"{run.timeout:g}", "Correct it.")
    if run.timeout is not None and run.workers is None:
        raise wrong(
            ("run", "timeout"),
            "workers beside timeout",
            "none",
            "Add workers = 1: what hangs in the process of the campaign cannot be stopped.",
        )
    if run.q is not None and run.workers is not None:
        raise wrong(
            ("run", "q"),
            "workers or q",
            "both",
            "Leave out q: each worker keeps one trial running.",
        )
    return run
