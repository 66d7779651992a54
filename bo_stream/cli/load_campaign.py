"""Loading the campaign that a command works on, from a configuration or a store."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bo_stream.cli.error_handling import print_error
from bo_stream.cli.toml_reader import (
    ConfigError,
    TomlDocument,
    sqlite_file,
    store_url,
)

if TYPE_CHECKING:
    import pandas as pd

    from bo_stream.campaign.campaign import Callback, Campaign
    from bo_stream.campaign.space import Space
    from bo_stream.cli.config import CampaignConfig, PoolFile

__all__ = [
    "AsJson",
    "CampaignName",
    "ConfigFile",
    "LoadedCampaign",
    "Where",
    "create_or_continue",
    "existing_store",
    "is_config",
    "load_campaign",
]

ConfigFile = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="A TOML, as bo-stream init writes one.")
]

Where = Annotated[
    str, typer.Argument(metavar="STORE|CONFIG", help="URL or file of a store, or a TOML.")
]

CampaignName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Name of the campaign, if the store has several."),
]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]


@dataclass(frozen=True)
class LoadedCampaign:
    """A campaign, the URL of its store, and its configuration if one was given."""

    campaign: Campaign
    url: str
    config: CampaignConfig | None

    @property
    def store(self) -> str:
        """The URL without its password."""
        return re.sub(r"://([^:/@]*):[^@]*@", r"://\1:***@", self.url)

    @property
    def outcome(self) -> str:
        """Name of the outcome, and its unit."""
        if self.campaign.settings.counts is not None:
            return self.campaign.settings.counts.label
        given = self.config.outcome if self.config else None
        return given if isinstance(given, str) else "outcome"

    @property
    def optimum(self) -> float | None:
        """The best possible outcome, if known."""
        return self.config.optimum if self.config else None


def is_config(where: str) -> bool:
    """Whether an argument names a configuration; otherwise it is a store."""
    return where.endswith(".toml")


def create_or_continue(
    config: CampaignConfig, callbacks: Sequence[Callback] = ()
) -> LoadedCampaign:
    """The campaign of a configuration, created if its store does not have it.

    Raises:
        ConfigError: naming line and key of a setting with which there can be no campaign.
    """
    _prepare_process()
    from bo_stream.campaign.campaign import Campaign
    from bo_stream.campaign.settings import Choices

    settings: dict[str, Any] = {name: getattr(config, name) for name in Choices.model_fields}
    if isinstance(config.outcome, str):  # a label
        settings["outcome"] = None
    settings |= {"store": config.store, "name": config.name, "callbacks": callbacks}
    with config.document.errors():
        campaign = Campaign(_space(config), **settings)
    return LoadedCampaign(campaign, config.store, config)


def load_campaign(
    where: str, name: str | None = None, callbacks: Sequence[Callback] = ()
) -> LoadedCampaign:
    """An existing campaign.

    Args:
        where: A configuration, or the URL or file of a store.
        name: Name of the campaign; by default the only one in the store.
        callbacks: Hooks.

    Raises:
        ConfigError: if there is no such store, or several campaigns and no name.
    """
    url, config = existing_store(where)
    _prepare_process()
    from bo_stream.campaign.campaign import Campaign
    from bo_stream.campaign.storage.open_store import open_store

    name = name if config is None else config.name
    store = open_store(url)
    if name is None:
        names = store.names()
        if len(names) != 1:
            found = ", ".join(map(repr, names)) or "none"
            raise ConfigError(f"Expected the name of a campaign in {url}, which has: {found}.")
        (name,) = names
    campaign = Campaign.resume(store, name, callbacks=callbacks)
    budget = None if config is None else config.budget
    if budget is not None and budget != (store.settings(name) or {}).get("budget"):
        campaign.budget = budget  # otherwise it may have been changed since
    return LoadedCampaign(campaign, url, config)


def existing_store(where: str) -> tuple[str, CampaignConfig | None]:
    """URL of the store that an argument names, and the configuration if it names one.

    Raises:
        ConfigError: if it is a file that does not exist.
    """
    config, remedy = None, "Correct the name of the store."
    if is_config(where):
        from bo_stream.cli.config import read_config

        config = read_config(Path(where))
        remedy = f"Create it with: bo-stream run {where} (or suggest)"
    url = store_url(where, Path.cwd()) if config is None else config.store
    file = sqlite_file(url)
    if file is not None and not file.is_file():
        raise ConfigError(f"There is no store {file}. {remedy}")
    return url, config


def _prepare_process() -> None:
    """Use one thread, which is fastest for small matrices, and print warnings in one line."""
    import torch

    torch.set_num_threads(1)
    warnings.showwarning = _print_warning


def _print_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    print_error(" ".join(f"Warning: {message}".split()))


def _space(config: CampaignConfig) -> Space:
    """The space of a configuration."""
    from bo_stream.campaign.options import errors_about
    from bo_stream.campaign.space import Box, Pool

    inputs = config.inputs or {}
    if config.pool is not None:
        with errors_about("pool"):
            pool = config.pool
            return Pool(_read_pool(config.document, pool), pool.inputs, pool.repeats, pool.units)
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


def _read_pool(document: TomlDocument, pool: PoolFile) -> pd.DataFrame:
    """The places, by their names if they have some."""
    from bo_stream.campaign.options import errors_about
    from bo_stream.cli.measurements import numbers, numeric_columns, read_table
    from bo_stream.errors import InputError

    labels = [] if pool.index is None else [pool.index]
    with document.errors("pool", "file"):
        cells = read_table(pool.file, [*(pool.inputs or ()), *labels])
        table = numbers(pool.file, cells, numeric_columns(pool.file, cells, pool.inputs, labels))
    for column in table.select_dtypes(object).columns.difference(labels):
        if {str(cell).casefold() for cell in table[column]} <= {"true", "false"}:
            table[column] = table[column].str.casefold() == "true"
    for key, columns in (("inputs", pool.inputs or []), ("index", labels)):
        for column in columns:
            if column not in table:
                expected = f"columns of {pool.file.name}: {', '.join(table.columns)}"
                with errors_about(key):
                    raise InputError(expected, f"unknown {column!r}", "Correct it.")
    if pool.index is None:
        return table.reset_index(drop=True)
    nameless = table.index[table[pool.index].isna()]
    if len(nameless):
        expected, got = f"a name in every row of {pool.file.name}", f"none in row {nameless[0]}"
        with errors_about("index"):
            raise InputError(expected, got, "Name the place.")
    return table.set_index(pool.index)
