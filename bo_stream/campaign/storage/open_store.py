"""Opening a store by its URL."""

from __future__ import annotations

from typing import cast

from bo_stream.campaign.storage.store import MemoryStore, Store

__all__ = ["open_store"]


def open_store(store: str | Store | None) -> Store:
    """The store at a URL; a store in memory for None; a store itself.

    Raises:
        ImportError: without the extra that the URL needs.
    """
    if store is None:
        return MemoryStore()
    if not isinstance(store, str):
        return store
    try:
        from bo_stream.campaign.storage.sql_store import Database
    except ImportError as error:
        raise ImportError("A store needs SQLAlchemy: pip install 'bo_stream[store]'.") from error
    return cast(Store, Database(store))
