"""Command `check`: whether a store is whole."""

from __future__ import annotations

import typer

from bo_stream.cli.load_campaign import Where, existing_store

__all__ = ["check"]

DAMAGED = 1
"""Exit code for a damaged store."""


def check(where: Where) -> None:
    """Check that a store is whole: read every event of its campaigns.

    The exit code is 1 if something is damaged. The store itself is only read.
    """
    url = existing_store(where)
    from bo_stream.campaign.storage.check import check_store

    found = check_store(url)
    for one in found:
        print(one.described)
    if any(one.damage for one in found):
        print("Restore the store from a copy, or recover it: sqlite3 FILE .recover")
        raise typer.Exit(DAMAGED)
