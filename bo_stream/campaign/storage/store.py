"""The interface of stores, and a store in memory.

A store holds an append-only list of events for each campaign, and the newest snapshots of its
surrogate. Writers have exclusive transactions, in which a campaign sees all events, so that what it
has checked still holds when it writes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from bo_stream.campaign.history import Event
from bo_stream.errors import StateError

__all__ = ["SNAPSHOT_EVERY", "MemoryStore", "Snapshot", "Store", "Transaction"]

SNAPSHOT_EVERY = 50
"""Outcomes after which a snapshot is saved even without a fit; a resumed campaign observes those
after the newest snapshot again."""


@dataclass(frozen=True)
class Snapshot:
    """A saved surrogate.

    Attributes:
        number: Number of the snapshot, increasing.
        about: Counts and scores that belong to it, as plain data.
        model: The surrogate as `bo_stream.base.checkpoint.dumps` wrote it.
    """

    number: int
    about: dict[str, Any]
    model: bytes


@dataclass(frozen=True)
class Transaction:
    """An exclusive transaction: no one else writes to this campaign before it ends.

    Attributes:
        events_since: Returns the events after the first ``count`` ones, in order.
        append: Adds an event, which is durable when the transaction has ended without an error.
    """

    events_since: Callable[[int], list[Event]]
    append: Callable[[Event], None]


class Store(Protocol):
    """What a campaign needs of a store. One that inherits from this keeps no snapshots.

    Attributes:
        durable: Whether it outlives the process.
        snapshot_every: Outcomes after which a snapshot is saved even without a fit.
    """

    durable: bool = False
    snapshot_every: int = SNAPSHOT_EVERY

    def create(self, name: str, settings: dict[str, Any]) -> None:
        """Create a campaign.

        Raises:
            StateError: if there is one of this name.
        """

    def settings(self, name: str) -> dict[str, Any] | None:
        """Settings of a campaign; None if there is none of this name."""

    def names(self) -> list[str]:
        """Names of all campaigns."""

    def events_since(self, name: str, count: int) -> list[Event]:
        """Events of a campaign after the first ``count`` ones, in order."""

    def transaction(self, name: str) -> AbstractContextManager[Transaction]:
        """A transaction, of which all events are kept, or none if it raises."""

    def save_snapshot(self, name: str, about: dict[str, Any], model: bytes) -> int:
        """Save a snapshot in addition to the one before it; returns its number."""
        return 0

    def newest_snapshot(self, name: str) -> int:
        """Number of the newest snapshot; 0 if there is none."""
        return 0

    def snapshots(self, name: str) -> Iterator[Snapshot]:
        """Undamaged snapshots, the newest first."""
        return iter(())


class MemoryStore(Store):
    """Events in a list that ends with the process; snapshots are not saved."""

    _lock = threading.RLock()  # one for all, so that a store may be pickled

    def __init__(self) -> None:
        self._campaigns: dict[str, tuple[dict[str, Any], list[Event]]] = {}

    def create(self, name: str, settings: dict[str, Any]) -> None:
        """Create a campaign."""
        if name in self._campaigns:
            raise StateError("a new name", repr(name), "Choose another name.")
        self._campaigns[name] = (settings, [])

    def settings(self, name: str) -> dict[str, Any] | None:
        """Settings of a campaign."""
        return self._campaigns[name][0] if name in self._campaigns else None

    def names(self) -> list[str]:
        """Names of all campaigns."""
        return list(self._campaigns)

    def events_since(self, name: str, count: int) -> list[Event]:
        """Events after the first ``count`` ones."""
        return self._campaigns[name][1][count:]

    @contextmanager
    def transaction(self, name: str) -> Iterator[Transaction]:
        """An exclusive transaction."""
        new: list[Event] = []
        with self._lock:
            yield Transaction(lambda count: self.events_since(name, count), new.append)
            self._campaigns[name][1].extend(new)
