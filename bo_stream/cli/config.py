"""The configuration of a campaign, read and checked from a TOML without importing torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bo_stream.campaign.digits import told_apart
from bo_stream.campaign.outcomes.goals import (
    FAILURES,
    GOALS,
    SPELLINGS,
    Failures,
    Goal,
    Goals,
    spelled,
)
from bo_stream.cli.toml_reader import TomlDocument, TomlTable, read_document

__all__ = ["CampaignConfig", "EvaluationConfig", "InputConfig", "PoolFile", "read_config"]


@dataclass(frozen=True)
class InputConfig:
    """An input: its bounds, or a list of all its values.

    Attributes:
        given: Lower and upper bound, or the values: numbers, texts or booleans.
        unit: Its unit.
        log: Whether its scale is logarithmic.
        integer: Whether it takes only the integers between its bounds.
    """

    given: tuple[float, float] | list[Any]
    unit: str | None = None
    log: bool = False
    integer: bool = False


@dataclass(frozen=True)
class PoolFile:
    """A table of places that can be measured.

    Attributes:
        file: A CSV.
        inputs: Columns with the inputs; None: all numeric ones.
        index: Column with the names of the places; None: they are numbered.
        repeats: Whether a place may be measured more than once.
        units: Units by input, for labels.
    """

    file: Path
    inputs: list[str] | None
    index: str | None
    repeats: bool
    units: Mapping[str, str]


@dataclass(frozen=True)
class EvaluationConfig:
    """How an objective is evaluated.

    Attributes:
        workers: Number of local processes; None: evaluate in this process.
        timeout: Seconds after which an evaluation is stopped; only with workers.
        seconds: Seconds after which no further trial is started.
        q: Number of trials asked for at a time; only without workers.
    """

    workers: int | None
    timeout: float | None
    q: int | None
    seconds: float | None = None


@dataclass(frozen=True)
class CampaignConfig:
    """The configuration of a campaign.

    Attributes:
        document: The TOML.
        name: Name of the campaign in its store.
        store: URL of the store.
        goal: ``maximise``, ``minimise`` or ``learn``, or goals by outcome.
        budget: Number of trials in all.
        objective: ``file.py:function`` or ``module:function``, for `run`.
        outcome: Name and unit of the outcome, for labels; or, of counts, their column, likelihood
            and options.
        optimum: The best possible outcome, if known.
        seed: Seed of the campaign.
        initial: Number of outcomes from which a surrogate is built.
        space: Inputs by name, or a table of places.
        surrogate: Name and options; None: the default.
        acquisition: Name and options; None: the default.
        noise: ``learned``, ``none`` or the variance of every outcome's noise; None: the default.
        constraints: Constraints as texts.
        failures: ``ignored`` or ``infeasible``; None: the default.
        reference: Objectives that a hypervolume is measured from; None: inferred.
        run: How objectives are evaluated.
    """

    document: TomlDocument
    name: str
    store: str
    goal: Goals
    budget: int | None
    objective: str | None
    outcome: str | Mapping[str, Any] | None
    optimum: float | None
    seed: int | None
    initial: int | None
    space: Mapping[str, InputConfig] | PoolFile
    surrogate: Mapping[str, Any] | None
    acquisition: Mapping[str, Any] | None
    noise: Any
    constraints: list[str]
    failures: Failures | None
    reference: Mapping[str, float | None] | None
    run: EvaluationConfig


def read_config(path: Path) -> CampaignConfig:
    """The configuration in a file.

    Raises:
        ConfigError: naming line and key of an error.
    """
    document = read_document(path)
    top = TomlTable(document)
    name = top.required_text("name", '"oven"')
    config = CampaignConfig(
        document,
        name,
        _store(document, top.text("store", f"sqlite:///{name}.db") or ""),
        _goal(top),
        top.integer("budget", least=2),
        top.text("objective"),
        _outcome(top),
        top.number("optimum"),
        top.integer("seed", least=0),
        top.integer("initial", least=2),
        _space(top),
        _named(top, "surrogate"),
        _named(top, "acquisition"),
        _noise(top),
        top.texts("constraints") or [],
        cast(Failures, top.choice("failures", *FAILURES)) if "failures" in top else None,
        _reference(top),
        _evaluation(top),
    )
    top.refuse_unknown()
    return config


def _store(document: TomlDocument, url: str) -> str:
    """A URL; a file, which is an SQLite database, is relative to the TOML."""
    url = url if "://" in url else f"sqlite:///{url}"
    kind, found, path = url.partition(":///")
    if not found or not kind.startswith("sqlite") or path in ("", ":memory:"):
        return url
    return f"{kind}:///{document.resolve(path).resolve()}"


def _space(top: TomlTable) -> Mapping[str, InputConfig] | PoolFile:
    if ("inputs" in top) == ("pool" in top):
        raise top.document.error(
            ("pool",) if "pool" in top else (),
            "either tables [inputs.NAME] or one table [pool]",
            "both" if "pool" in top else "neither",
            "Inputs have bounds or a list of values; a pool is a table of places.",
        )
    if "pool" in top:
        return _pool(top.table("pool"))
    inputs = top.table("inputs")
    if not inputs.names():
        raise inputs.document.error(
            inputs.key, "at least one input", "none", "Add [inputs.pressure] with low and high."
        )
    return {name: _input(inputs.table(name)) for name in inputs.names()}


def _input(table: TomlTable) -> InputConfig:
    values, unit = table.values("values"), table.text("unit")
    log = table.boolean("log")
    if values is not None:
        table.refuse_unknown()
        return InputConfig(values, unit, log)
    low, high = table.number("low"), table.number("high")
    for name, bound in (("low", low), ("high", high)):
        if bound is None:
            raise table.missing(name, "1.0")
    integer = table.boolean("integer")
    table.refuse_unknown()
    low, high = float(low or 0.0), float(high or 0.0)
    if low >= high:
        raise table.document.error(
            (*table.key, "low"),
            f"a lower bound below the upper one, {told_apart(low, high)[1]}",
            told_apart(low, high)[0],
            "Correct one of them.",
        )
    if log and low <= 0.0:
        raise table.document.error(
            (*table.key, "low"),
            "a positive bound for a logarithmic scale",
            f"{low:g}",
            "Raise it, or leave out log = true.",
        )
    return InputConfig((low, high), unit, log, integer)


def _pool(table: TomlTable) -> PoolFile:
    file = table.document.resolve(table.required_text("file", '"places.csv"'))
    inputs, index = table.texts("inputs"), table.text("index")
    repeats, units = table.boolean("repeats"), table.table("units")
    known = {name: units.text(name) or "" for name in units.names()}
    table.refuse_unknown()
    if not file.is_file():
        raise table.document.error(
            (*table.key, "file"), "an existing CSV of places", f"{file}", "Correct it."
        )
    return PoolFile(file, inputs, index, repeats, known)


def _goal(top: TomlTable) -> Goals:
    """A goal, or goals by the column of the outcome."""
    if not isinstance(top.document.values.get("goal"), Mapping):
        return cast(Goal, spelled(top.choice("goal", *GOALS, *SPELLINGS)))
    table = top.table("goal")
    goals = {name: spelled(table.choice(name, *GOALS, *SPELLINGS)) for name in table.names()}
    if not goals:
        raise table.missing("yield", '"maximise"')
    return goals


def _outcome(top: TomlTable) -> str | Mapping[str, Any] | None:
    """A label, or column and likelihood of counts, which `load_campaign` checks."""
    if not isinstance(top.document.values.get("outcome"), Mapping):
        return top.text("outcome")
    table = top.table("outcome")
    table.required_text("column", '"positive"')
    table.required_text("likelihood", '"binomial"')
    return dict(top.document.values["outcome"])


def _named(top: TomlTable, part: str) -> Mapping[str, Any] | None:
    """Name and options, which `bo_stream.cli.validation` checks."""
    table = top.table(part)
    if part not in top:
        return None
    name = table.required_text("name", '"wiski"' if part == "surrogate" else '"qlogei"')
    return {**table.rest(table.names()), "name": name}


def _noise(top: TomlTable) -> str | float | None:
    """What is known about the noise of outcomes."""
    value = top.document.values.get("noise")
    if isinstance(value, str):
        return top.choice("noise", "learned", "none")
    variance = top.number("noise")
    if variance is not None and variance <= 0.0:
        raise top.document.error(
            ("noise",),
            "'learned', 'none' or a positive variance",
            f"{variance:g}",
            "For exact outcomes, use 'none'.",
        )
    return variance


def _reference(top: TomlTable) -> Mapping[str, float | None] | None:
    """The reference point of several objectives, which `load_campaign` checks."""
    table = top.table("reference")
    return {name: table.number(name) for name in table.names()} or None


def _evaluation(top: TomlTable) -> EvaluationConfig:
    table = top.table("run")
    run = EvaluationConfig(
        table.integer("workers"),
        table.number("timeout"),
        table.integer("q"),
        table.number("seconds"),
    )
    table.refuse_unknown()
    error = table.document.error
    for name, value in (("timeout", run.timeout), ("seconds", run.seconds)):
        if value is not None and value <= 0.0:
            raise error(("run", name), "a positive number", f"{value:g}", "Correct it.")
    if run.timeout is not None and run.workers is None:
        raise error(
            ("run", "timeout"),
            "timeout with workers",
            "no workers",
            "Add workers = 1: an evaluation in the campaign's own process cannot be stopped.",
        )
    if run.q is not None and run.workers is not None:
        raise error(
            ("run", "q"),
            "workers or q",
            "both",
            "Leave out q: each worker keeps one trial running.",
        )
    return run
