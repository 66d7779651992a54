"""Read-only views of stores: writes stay in memory, or are refused.

A campaign that is opened through a `ReadOnlyStore` can be asked what it would propose, without
proposing it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from bo_stream.campaign.storage.store import MemoryStore, Snapshot, Store, Transaction, refusal

__all__ = ["ReadOnlyStore", "UnchangedStore"]


class UnchangedStore:
    """A store through which nothing can be written.

    Args:
        store: Any store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, name: str, settings: dict[str, Any]) -> None:
        """Refuse to create a campaign."""
        raise refusal("the store")

    def transaction(self, name: str) -> AbstractContextManager[Transaction]:
        """Refuse to write."""
        raise refusal("the store")

    def save_snapshot(self, name: str, about: dict[str, Any], model: bytes) -> int:
        """Save nothing."""
        return self._store.newest_snapshot(name)


class ReadOnlyStore(MemoryStore):
    """A campaign of a store as it is now; writes stay in memory.

    Snapshots are read before events, so that no snapshot knows of more outcomes than the events,
    even if another process is running the campaign.

    Args:
        store: The store.
        name: Name of a campaign in it.
    """

    def __init__(self, store: Store, name: str) -> None:
        super().__init__()
        self.durable = store.durable
        self._snapshots = list(store.snapshots(name))
        self.create(name, store.settings(name) or {})
        with self.transaction(name) as transaction:
            for event in store.events_since(name, 0):
                transaction.append(event)

    def newest_snapshot(self, name: str) -> int:
        """Number of the newest snapshot."""
        return max((s.number for s in self._snapshots), default=0)

    def snapshots(self, name: str) -> Iterator[Snapshot]:
        """Snapshots, the newest first."""
        return iter(self._snapshots)

    def save_snapshot(self, name: str, about: dict[str, Any], model: bytes) -> int:
        """Save nothing."""
        return self.newest_snapshot(name)
