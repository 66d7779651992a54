"""Command `check`: whether a store is whole, and saving what is whole of a damaged one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bo_stream.cli.load_campaign import Where, configured, existing_store, is_config
from bo_stream.cli.toml_reader import ConfigError

__all__ = ["check"]

DAMAGED = 1
"""Exit code for a damaged store."""


def check(
    where: Where,
    salvage: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write what is whole to this new file.")
    ] = None,
) -> None:
    """Check that a store is whole, or save what is whole of it.

    The exit code is 1 if it is damaged. The store itself is only read. In the new file, trials keep
    their ids; a trial whose inputs are lost is withdrawn, and one whose outcome is lost is running.
    Settings that are lost are those of the configuration, if that is given in place of the store.
    """
    url = existing_store(where)
    if salvage is not None and salvage.exists():
        raise ConfigError(f"{salvage} exists already. Choose another name.")
    from bo_stream.campaign.storage.salvage import check_store
    from bo_stream.campaign.storage.salvage import salvage as save

    scans = check_store(url)
    for scan in scans:
        trials = sum(len(event.get("trials", ())) for event in scan.events.values())
        counted = f"{len(scan.events)} events, {trials} trials"
        print(f"{scan.name}: {counted}, whole" if scan.whole else f"{scan.describe()} ({counted})")
    if salvage is not None:
        lost = [scan.name for scan in scans if scan.settings is None]
        known = configured(where) if lost and is_config(where) else {}
        for note in save(scans, f"sqlite:///{salvage.absolute()}", known):
            print(note)
        if set(lost) - set(known):
            print("To save them: bo-stream check CONFIG --salvage NEW.db, with its configuration")
        print(f"Wrote {salvage}.")
    elif not all(scan.whole for scan in scans):
        print(f"To save what is whole: bo-stream check {where} --salvage NEW.db")
        raise typer.Exit(DAMAGED)
