"""Campaigns opened for a command: begun or continued from a configuration, or found in a store."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bo_stream.cli.config import Config, Places, read_config
from bo_stream.cli.error_handling import complain
from bo_stream.cli.signals import Careful
from bo_stream.cli.toml_document import ConfigError
from bo_stream.cli.validation import check_choices

if TYPE_CHECKING:
    from bo_stream.campaign.callbacks import Callback
    from bo_stream.campaign.campaign import Campaign
    from bo_stream.campaign.space import Space
    from bo_stream.campaign.storage.store import Store

__all__ = ["Opened", "begun", "found", "is_config"]


@dataclass(frozen=True)
class Opened:
    """A campaign, the URL of its store, and its configuration where one was given."""

    campaign: Campaign
    url: str
    config: Config | None

    @property
    def store(self) -> str:
        """The URL as it may be shown, without a password."""
        return re.sub(r"://([^:/@]*):[^@]*@", r"://\1:***@", self.url)

    @property
    def outcome(self) -> str:
        """What is measured, in words."""
        return (self.config.outcome if self.config else None) or "outcome"

    @property
    def optimum(self) -> float | None:
        """The best outcome there can be, where known."""
        return self.config.optimum if self.config else None


def is_config(where: str) -> bool:
    """Whether an argument names a configuration; else it is a store."""
    return where.endswith(".toml")


def begun(config: Config, callbacks: Sequence[Callback] = ()) -> Opened:
    """The campaign of a configuration, begun now unless its store has it."""
    prepare()
    space = space_of(config)
    check_choices(config, space)
    from bo_stream.campaign.campaign import Campaign
    from bo_stream.campaign.storage.open_store import opened

    campaign = Campaign(
        space,
        config.surrogate,
        config.acquisition,
        config.goal,
        cast("Store", Careful(opened(config.store))),
        config.name,
        budget=config.budget,
        seed=config.seed,
        initial=config.initial,
        callbacks=callbacks,
    )
    _say_what_stays(config, campaign)
    return Opened(campaign, config.store, config)


def found(where: str, name: str | None = None, callbacks: Sequence[Callback] = ()) -> Opened:
    """A campaign that was begun before.

    Args:
        where: A configuration, or the URL of a store, or the file of one.
        name: Of the campaign in a store; left out, the only one there.
        callbacks: Hooks.

    Raises:
        ConfigError: if it is not clear which campaign is meant, or there is no such file.
    """
    config = read_config(Path(where)) if is_config(where) else None
    if config is not None:
        url, name = config.store, config.name
        remedy = f"Begin it with: bo-stream run {where} (or suggest)"
    else:
        url, remedy = _url_of(where), "Correct the name of the store."
    file = _file(url)
    if file is not None and not file.is_file():
        raise ConfigError(f"There is no store {file}. {remedy}")
    prepare()
    from bo_stream.campaign.campaign import Campaign
    from bo_stream.campaign.storage.open_store import opened

    store = opened(url)
    if name is None:
        names = store.names()
        if len(names) != 1:
            there = ", ".join(map(repr, names)) or "none"
            raise ConfigError(f"Expected the name of a campaign in {url}; there are: {there}.")
        (name,) = names
    careful = cast("Store", Careful(store))
    return Opened(Campaign.resume(careful, name, callbacks=callbacks), url, config)


def _url_of(store: str) -> str:
    """The URL of a store that may be named by its file."""
    return store if "://" in store else f"sqlite:///{Path(store).expanduser().resolve()}"


def prepare() -> None:
    """One thread, which small matrices are quickest with, and extensions in a folder of ours."""
    import torch

    from bo_stream.campaign.evaluation.compiled_extensions import prepare_extensions

    torch.set_num_threads(1)
    prepare_extensions()
    warnings.showwarning = _warn


def _warn(message: Warning | str, *where: Any, **more: Any) -> None:
    """A warning in one line, without the code that gave it."""
    complain(" ".join(f"Warning: {message}".split()))


def space_of(config: Config) -> Space:
    """The space of a configuration."""
    from bo_stream.campaign.space import Box, Pool

    document, said = config.document, config.space
    if isinstance(said, Places):
        table = _table(config, said)
        with document.blamed_on("pool"):
            return Pool(table, said.inputs, said.repeats, said.units)
    with document.blamed_on("inputs"):
        return Box(
            {name: (i.low, i.high) for name, i in said.items()},
            [name for name, i in said.items() if i.log],
            {name: i.unit for name, i in said.items() if i.unit},
        )


def _table(config: Config, places: Places) -> Any:
    import pandas as pd

    with config.document.blamed_on("pool", "file"):
        kinds = {places.index: str} if places.index else {}  # so that 007 stays what it is
        table = pd.read_csv(places.file, dtype=kinds)
    for key in ("inputs", "index"):
        said = getattr(places, key)
        for column in [said] if isinstance(said, str) else said or []:
            if column not in table:
                raise config.document.error(
                    ("pool", key),
                    f"columns of {places.file.name}: {', '.join(map(str, table.columns))}",
                    f"unknown {column!r}",
                    "Correct it.",
                )
    return table if places.index is None else table.set_index(places.index)


def _file(url: str) -> Path | None:
    """The file of an SQLite database; None for other stores."""
    kind, _, path = url.partition(":///")
    return Path(path) if kind.startswith("sqlite") and path not in ("", ":memory:") else None


def _say_what_stays(config: Config, campaign: Campaign) -> None:
    """Say which settings a campaign keeps although the configuration now says something else."""
    for part in ("surrogate", "acquisition", "seed", "initial"):
        wanted, kept = getattr(config, part), getattr(campaign.settings, part)
        if wanted is not None and wanted != kept:
            complain(
                f"Campaign {campaign.name!r} goes on with the {part} that it was begun with, "
                f"{kept}, not with {wanted}: choose another name to begin anew."
            )
