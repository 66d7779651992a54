"""Opening a store by its URL."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from bo_stream.campaign.storage.store import MemoryStore, Store
from bo_stream.errors import InputError, needs_extra

__all__ = ["open_store"]


def open_store(store: str | PathLike[str] | Store | None, readonly: bool = False) -> Store:
    """The store at a URL or a path; a store in memory for None; a store itself.

    Args:
        store: The URL, the path of an SQLite database, or the store.
        readonly: Whether everything that would change the store is refused. A file that may not be
            written is always opened so.

    Raises:
        InputError: for what is no store, and for a store itself that is to be read only.
        ImportError: without the extra that the URL needs.
    """
    if store is None:
        return MemoryStore()
    if not isinstance(store, str | PathLike):
        if readonly or not hasattr(store, "settings"):
            raise InputError("the URL of a store, or a Path", repr(store), "Give one of these.")
        return store
    if isinstance(store, PathLike):
        store = f"sqlite:///{Path(store).expanduser().resolve()}"
    with needs_extra("store"):
        from bo_stream.campaign.storage.sql_store import Database
    return Database(store, readonly=readonly)
