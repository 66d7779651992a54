"""A store looked at from aside: what a campaign writes there is gone with the process.

So a campaign can be asked what it would propose without proposing it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bo_stream.campaign.storage.store import MemoryStore, Snapshot, Store

__all__ = ["Aside"]


class Aside(MemoryStore):
    """One campaign of a store as it is now; writes are kept in memory.

    Snapshots are read first, since events only become more: those of a campaign that is running
    never know of less than its snapshots.

    Args:
        store: Where the campaign is.
        name: Of the campaign, which must be there.
    """

    def __init__(self, store: Store, name: str) -> None:
        super().__init__()
        self.durable = store.durable
        self._snapshots = list(store.snapshots(name))
        self.create(name, store.settings(name) or {})
        with self.writing(name) as turn:
            for event in store.since(name, 0):
                turn.append(event)

    def newest_snapshot(self, name: str) -> int:
        """Number of the newest snapshot."""
        return max((s.number for s in self._snapshots), default=0)

    def snapshots(self, name: str) -> Iterator[Snapshot]:
        """Snapshots, the newest first."""
        return iter(self._snapshots)

    def save_snapshot(self, name: str, about: dict[str, Any], model: bytes) -> int:
        """Nothing: the surrogate goes on in memory."""
        return self.newest_snapshot(name)
