"""Loading the campaign that a command works on, from a configuration or a store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import pandas as pd
from pydantic import (
    BeforeValidator,
    Field,
    FilePath,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bo_stream.campaign.campaign import Callback, Campaign
from bo_stream.campaign.options import (
    Finite,
    Options,
    Positive,
    Text,
    Whole,
    check_keys,
    errors_about,
)
from bo_stream.campaign.settings import Choices, Outcome
from bo_stream.campaign.space import Box, Pool, Space
from bo_stream.campaign.storage.open_store import open_store
from bo_stream.cli.measurements import numbers, numeric_columns, read_table
from bo_stream.cli.toml_reader import (
    ConfigError,
    TomlDocument,
    read_document,
    sqlite_file,
    store_url,
)
from bo_stream.errors import InputError

__all__ = [
    "CampaignConfig",
    "EvaluationConfig",
    "InputConfig",
    "LoadedCampaign",
    "PoolFile",
    "create_or_continue",
    "existing_store",
    "load_campaign",
    "read_config",
    "read_optional",
]


def _in_folder(path: Any, info: ValidationInfo[TomlDocument]) -> Any:
    return info.context.path.parent / Path(path).expanduser() if isinstance(path, str) else path


Count = Annotated[Whole, Field(ge=1)]
Texts = Annotated[list[Text], Field(min_length=1)]


class InputConfig(Options):
    """An input: its bounds, or a list of all its values.

    Attributes:
        low: Lower bound.
        high: Upper bound.
        values: The values: numbers, texts or booleans.
        unit: Its unit.
        log: Whether its scale is logarithmic.
        integer: Whether it takes only the integers between its bounds.
    """

    low: Finite | None = None
    high: Finite | None = None
    values: list[Any] | None = None
    unit: Text | None = None
    log: bool = False
    integer: bool = False

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.values is not None:
            check_keys(dict.fromkeys(self.model_fields_set), ["values", "unit", "log"])
        return self

    @property
    def allowed(self) -> Any:
        """Both bounds, or the values."""
        return (self.low, self.high) if self.values is None else self.values


class PoolFile(Options):
    """A table of places that can be measured.

    Attributes:
        file: A CSV.
        inputs: Columns with the inputs; None: all numeric ones.
        index: Column with the names of the places; None: they are numbered.
        repeats: Whether a place may be measured more than once.
        units: Units by input, for labels.
    """

    file: Annotated[FilePath, BeforeValidator(_in_folder)]
    inputs: Texts | None = None
    index: Text | None = None
    repeats: bool = False
    units: dict[str, Text] = {}


class EvaluationConfig(Options):
    """How an objective is evaluated.

    Attributes:
        workers: Number of local processes; None: evaluate in this process.
        timeout: Seconds after which an evaluation is stopped; only with workers.
        seconds: Seconds after which no further trial is started.
        q: Number of trials asked for at a time; only without workers.
    """

    workers: Count | None = None
    timeout: Positive | None = None
    seconds: Positive | None = None
    q: Count | None = None

    @model_validator(mode="after")
    def _check_workers(self) -> Self:
        if self.workers is not None and self.q is not None:
            with errors_about("q"):
                raise InputError("workers or q", "both", "Leave out q: each worker runs one trial.")
        if self.timeout is not None and self.workers is None:
            with errors_about("timeout"):
                remedy = "Add workers = 1: an evaluation in the campaign's process is not stopped."
                raise InputError("timeout with workers", "no workers", remedy)
        return self


class CampaignConfig(Choices):
    """The configuration of a campaign: its settings, and the attributes below.

    Attributes:
        name: Name of the campaign in its store.
        store: URL of the store.
        objective: ``file.py:function`` or ``module:function``, for `run`.
        outcome: Name and unit of the outcome, for labels; or, of counts, their column, likelihood
            and options.
        optimum: The best possible outcome, if known.
        inputs: Inputs by name, or None for a pool.
        pool: A table of places, or None for inputs.
        run: How objectives are evaluated.
    """

    name: Text
    store: str = Field("", validate_default=True)
    objective: Text | None = None
    outcome: Text | Outcome = None  # type: ignore[assignment]
    targets: None = None  # a frame, which programs give
    optimum: Finite | None = None
    inputs: Annotated[dict[str, InputConfig], Field(min_length=1)] | None = None
    pool: PoolFile | None = None
    run: EvaluationConfig = EvaluationConfig()

    @field_validator("store")
    @classmethod
    def _store_in_folder(cls, store: str, info: ValidationInfo[TomlDocument]) -> str:
        return store_url(store or f"{info.data.get('name')}.db", info.context.path.parent)

    @model_validator(mode="after")
    def _check_space(self) -> Self:
        if (self.inputs is None) == (self.pool is None):
            with errors_about(*([] if self.pool is None else ["pool"])):
                raise InputError(
                    "either tables [inputs.NAME] or one table [pool]",
                    "neither" if self.pool is None else "both",
                    "Inputs have bounds or a list of values; a pool is a table of places.",
                )
        return self


def read_config(path: Path) -> CampaignConfig:
    """The configuration in a file.

    Raises:
        ConfigError: naming line and key of an error.
    """
    document = read_document(path)
    with document.errors():
        return CampaignConfig.read(document.values, context=document)


@dataclass(frozen=True)
class LoadedCampaign:
    """A campaign, the URL of its store, and its configuration if one was given."""

    campaign: Campaign
    url: str
    config: CampaignConfig | None

    @property
    def learning(self) -> Campaign:
        """The campaign for what needs a surrogate: with one thread, fastest for small matrices."""
        import torch  # not at the top: most commands need no surrogate

        torch.set_num_threads(1)
        return self.campaign

    @property
    def store(self) -> str:
        """The URL without its password."""
        return re.sub(r"://([^:/@]*):[^@]*@", r"://\1:***@", self.url)

    @property
    def outcome(self) -> str:
        """Name of the outcome, and its unit."""
        if self.campaign.settings.counts is not None:
            return self.campaign.settings.counts.label
        named = self.config.outcome if self.config else None
        return named if isinstance(named, str) else "outcome"

    @property
    def optimum(self) -> float | None:
        """The best possible outcome, if known."""
        return self.config.optimum if self.config else None


def read_optional(where: str) -> CampaignConfig | None:
    """The configuration that an argument names; None if it is a store."""
    return read_config(Path(where)) if where.endswith(".toml") else None


def create_or_continue(path: Path, callbacks: Sequence[Callback] = ()) -> LoadedCampaign:
    """The campaign of a configuration, created if its store does not have it.

    Raises:
        ConfigError: naming line and key of a setting with which there can be no campaign.
    """
    config = read_config(path)
    settings: dict[str, Any] = {name: getattr(config, name) for name in Choices.model_fields}
    if isinstance(config.outcome, str):  # a label
        settings["outcome"] = None
    settings |= {"store": config.store, "name": config.name, "callbacks": callbacks}
    with read_document(path).errors():
        campaign = Campaign(_space(config), **settings)
    return LoadedCampaign(campaign, config.store, config)


def load_campaign(
    where: str,
    name: str | None = None,
    callbacks: Sequence[Callback] = (),
    readonly: bool = False,
) -> LoadedCampaign:
    """An existing campaign.

    Args:
        where: A configuration, or the URL or file of a store.
        name: Name of the campaign; by default the only one in the store.
        callbacks: Hooks.
        readonly: Whether nothing is written.

    Raises:
        ConfigError: if there is no such store, or several campaigns and no name.
    """
    url, config = existing_store(where)
    store = open_store(url, readonly)
    names = [config.name] if config else store.names() if name is None else [name]
    if len(names) != 1:
        found = ", ".join(map(repr, names)) or "none"
        raise ConfigError(f"Expected the name of a campaign in {url}, which has: {found}.")
    campaign = Campaign.resume(store, names[0], callbacks=callbacks)
    budget = None if config is None else config.budget
    if budget is not None and budget != (store.settings(names[0]) or {}).get("budget"):
        campaign.budget = budget  # otherwise it may have been changed since
    return LoadedCampaign(campaign, url, config)


def existing_store(where: str) -> tuple[str, CampaignConfig | None]:
    """URL of the store that an argument names, and the configuration if it names one.

    Raises:
        ConfigError: if it is a file that does not exist.
    """
    config = read_optional(where)
    url = config.store if config else store_url(where, Path.cwd())
    file = sqlite_file(url)
    if file is not None and not file.is_file():
        create = f"Create it with: bo-stream run {where} (or suggest)"
        remedy = create if config else "Correct the name of the store."
        raise ConfigError(f"There is no store {file}. {remedy}")
    return url, config


def _space(config: CampaignConfig) -> Space:
    """The space of a configuration."""
    inputs, pool = config.inputs or {}, config.pool
    if pool is not None:
        with errors_about("pool"):
            return Pool(_read_pool(pool), pool.inputs, pool.repeats, pool.units)
    for name, one in inputs.items():
        with errors_about("inputs", name, "low" if one.values is None else "values"):
            Box({name: one.allowed}, [name] * one.log, integer=[name] * one.integer)
    with errors_about("inputs"):
        return Box(
            {name: one.allowed for name, one in inputs.items()},
            [name for name, one in inputs.items() if one.log],
            {name: one.unit for name, one in inputs.items() if one.unit},
            [name for name, one in inputs.items() if one.integer],
        )


def _read_pool(pool: PoolFile) -> pd.DataFrame:
    """The places, by their names if they have some."""
    labels = [] if pool.index is None else [pool.index]
    with errors_about("file"):
        cells = read_table(pool.file, [*(pool.inputs or ()), *labels])
        table = numbers(pool.file, cells, numeric_columns(pool.file, cells, pool.inputs, labels))
    for column in table.select_dtypes(object).columns.difference(labels):
        if {str(cell).casefold() for cell in table[column]} <= {"true", "false"}:
            table[column] = table[column].str.casefold() == "true"
    for part, wanted in (("inputs", pool.inputs or ()), ("index", labels)):
        with errors_about(part):
            if missing := [column for column in wanted if column not in table]:
                expected = f"columns of {pool.file.name}: {', '.join(table.columns)}"
                raise InputError(expected, f"unknown {', '.join(missing)}", "Correct them.")
    return table.reset_index(drop=True) if pool.index is None else table.set_index(pool.index)
