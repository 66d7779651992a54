"""Loading the campaign that a command works on, from a configuration or a store."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from bo_stream.cli.config import CampaignConfig, PoolFile, read_config
from bo_stream.cli.error_handling import print_error
from bo_stream.cli.toml_reader import ConfigError
from bo_stream.cli.validation import check_choices

if TYPE_CHECKING:
    from bo_stream.campaign.callbacks import Callback
    from bo_stream.campaign.campaign import Campaign
    from bo_stream.campaign.space import Space

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
        if self.campaign.counts is not None:
            return self.campaign.counts.label
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
    """The campaign of a configuration, created if its store does not have it."""
    return LoadedCampaign(_campaign(config, callbacks), config.store, config)


def _campaign(config: CampaignConfig, hooks: Sequence[Callback]) -> Campaign:
    _prepare_process()
    space = _space(config)
    check_choices(config, space)
    from bo_stream.campaign.campaign import Campaign
    from bo_stream.campaign.outcomes.goals import read_reference
    from bo_stream.campaign.outcomes.named_outcomes import (
        NamedOutcomes,
        on_inputs,
        read_goal,
        spelled_constraints,
    )
    from bo_stream.campaign.space.feasible import FeasibleSet

    with config.document.errors_at("constraints"):
        names, failures = space.names, config.failures or "ignored"
        goals, column = read_goal(config.goal)
        given = spelled_constraints(config.constraints, names, goals, column)
        NamedOutcomes.of(goals, column, given, names, failures)
        FeasibleSet.of(space, [text for text in given if on_inputs(text, names)])
    with config.document.errors_at("reference"):
        read_reference(config.reference, config.goal)
    counts = None if isinstance(config.outcome, str) else config.outcome
    if counts is not None:
        from bo_stream.campaign.outcomes.count_outcomes import CountOutcome

        with config.document.errors_at("outcome"):
            CountOutcome.read_setting(counts)
    return Campaign(
        space,
        config.surrogate,
        config.acquisition,
        config.goal,
        config.store,
        config.name,
        budget=config.budget,
        seed=config.seed,
        initial=config.initial,
        noise=config.noise,
        outcome=counts,
        constraints=config.constraints,
        failures=config.failures,
        reference=cast(Any, config.reference),
        callbacks=hooks,
    )


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
    config = read_config(Path(where)) if is_config(where) else None
    name = name if config is None else config.name
    url = existing_store(where)
    _prepare_process()
    from bo_stream.campaign.campaign import Campaign
    from bo_stream.campaign.storage.open_store import open_store

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


def existing_store(where: str) -> str:
    """URL of the store that an argument names.

    Raises:
        ConfigError: if it is a file that does not exist.
    """
    if is_config(where):
        url = read_config(Path(where)).store
        remedy = f"Create it with: bo-stream run {where} (or suggest)"
    else:
        url, remedy = _store_url(where), "Correct the name of the store."
    file = _sqlite_file(url)
    if file is not None and not file.is_file():
        raise ConfigError(f"There is no store {file}. {remedy}")
    return url


def _store_url(store: str) -> str:
    """URL of a store that may be given by its file."""
    return store if "://" in store else f"sqlite:///{Path(store).expanduser().resolve()}"


def _sqlite_file(url: str) -> Path | None:
    """File of an SQLite database; None for other stores."""
    kind, _, path = url.partition(":///")
    return Path(path) if kind.startswith("sqlite") and path not in ("", ":memory:") else None


def _prepare_process() -> None:
    """Use one thread, which is fastest for small matrices, and print warnings in one line."""
    import torch

    torch.set_num_threads(1)
    warnings.showwarning = _print_warning


def _print_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    print_error(" ".join(f"Warning: {message}".split()))


def _space(config: CampaignConfig) -> Space:
    """The space of a configuration."""
    from bo_stream.campaign.space import Box, Pool

    document, given = config.document, config.space
    if isinstance(given, PoolFile):
        table = _read_pool(config, given)
        with document.errors_at("pool"):
            return Pool(table, given.inputs, given.repeats, given.units)
    for name, one in given.items():
        with document.errors_at("inputs", name):
            Box({name: one.given}, [name] * one.log, integer=[name] * one.integer)
    with document.errors_at("inputs"):
        return Box(
            {name: i.given for name, i in given.items()},
            [name for name, i in given.items() if i.log],
            {name: i.unit for name, i in given.items() if i.unit},
            [name for name, i in given.items() if i.integer],
        )


def _read_pool(config: CampaignConfig, pool: PoolFile) -> Any:
    from bo_stream.cli.measurements import read_table

    labels = [] if pool.index is None else [pool.index]
    with config.document.errors_at("pool", "file"):
        cells = read_table(pool.file, [*(pool.inputs or ()), *labels])
        table = cells.frame(cells.numeric(pool.inputs, labels)).reset_index(drop=True)
    for column in table.select_dtypes(object).columns.difference(labels):
        if {str(cell).casefold() for cell in table[column]} <= {"true", "false"}:
            table[column] = table[column].str.casefold() == "true"
    for key in ("inputs", "index"):
        given = getattr(pool, key)
        for column in [given] if isinstance(given, str) else given or []:
            if column not in table:
                raise config.document.error(
                    ("pool", key),
                    f"columns of {pool.file.name}: {', '.join(map(str, table.columns))}",
                    f"unknown {column!r}",
                    "Correct it.",
                )
    if pool.index is None:
        return table
    nameless = [cells.rows[i] for i, name in enumerate(table[pool.index]) if name is None]
    if nameless:
        raise config.document.error(
            ("pool", "index"),
            f"a name in every row of {pool.file.name}",
            f"none in row {nameless[0]}",
            "Name the place.",
        )
    return table.set_index(pool.index)
