"""A store by its URL."""

from __future__ import annotations

from typing import cast

from bo_stream.campaign.storage.store import MemoryStore, Store

__all__ = ["opened"]


def opened(store: str | Store | None) -> Store:
    """The store at a URL; None: in memory. A store is itself.

    Raises:
        ImportError: without the extra that a URL needs.
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
