"""Where a campaign's events and snapshots are kept: what a store does, and the one in memory.

A store is a list of events that only grows, one list a campaign, and beside it the newest snapshots
of the surrogate. Writers take turns: inside `writing` a campaign sees all events there are, so that
what it checks still holds when it writes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from bo_stream.campaign.trials import Event
from bo_stream.errors import StateError

__all__ = ["MemoryStore", "Snapshot", "Store", "Turn"]


@dataclass(frozen=True)
class Snapshot:
    """A surrogate as it was, and what the campaign knew about it.

    Attributes:
        number: Grows with every snapshot of a campaign.
        about: Plain data.
        model: What `bo_stream.base.checkpoint.dumps` wrote.
    """

    number: int
    about: dict[str, Any]
    model: bytes


class Turn(Protocol):
    """A writer's turn: nobody else writes to this campaign before it ends."""

    def since(self, seen: int) -> list[Event]:
        """Events after the first ``seen`` ones, in order."""
        ...

    def append(self, event: Event) -> None:
        """Add an event; it is durable once the turn has ended without an error."""
        ...


class Store(Protocol):
    """What a campaign asks of a store."""

    @property
    def durable(self) -> bool:
        """Whether it outlives the process."""
        ...

    def create(self, name: str, settings: dict[str, Any]) -> None:
        """Begin a campaign.

        Raises:
            StateError: if there is one of this name.
        """
        ...

    def settings(self, name: str) -> dict[str, Any] | None:
        """What a campaign was begun with; None if there is none of this name."""
        ...

    def names(self) -> list[str]:
        """Every campaign."""
        ...

    def since(self, name: str, seen: int) -> list[Event]:
        """Events of a campaign after the first ``seen`` ones, in order."""
        ...

    def writing(self, name: str) -> AbstractContextManager[Turn]:
        """A writer's turn; what it appended is kept whole, or not at all if it raises."""
        ...

    def save_snapshot(self, name: str, about: dict[str, Any], model: bytes) -> int:
        """Keep a snapshot beside the one before it; returns its number."""
        ...

    def newest_snapshot(self, name: str) -> int:
        """Number of the newest snapshot; 0 if there is none."""
        ...

    def snapshots(self, name: str) -> Iterator[Snapshot]:
        """Snapshots, the newest first; those that are damaged are passed over with a warning."""
        ...


class MemoryStore:
    """Events in a list, gone with the process; no snapshots, which nobody could come back to."""

    durable = False

    def __init__(self) -> None:
        self._campaigns: dict[str, tuple[dict[str, Any], list[Event]]] = {}
        self._lock = threading.RLock()

    def create(self, name: str, settings: dict[str, Any]) -> None:
        """Begin a campaign."""
        if name in self._campaigns:
            raise StateError("a new name", repr(name), "Choose another name.")
        self._campaigns[name] = (settings, [])

    def settings(self, name: str) -> dict[str, Any] | None:
        """What a campaign was begun with."""
        found = self._campaigns.get(name)
        return None if found is None else found[0]

    def names(self) -> list[str]:
        """Every campaign."""
        return list(self._campaigns)

    def since(self, name: str, seen: int) -> list[Event]:
        """Events after the first ``seen`` ones."""
        return self._campaigns[name][1][seen:]

    @contextmanager
    def writing(self, name: str) -> Iterator[Turn]:
        """A writer's turn."""
        with self._lock:
            turn = _MemoryTurn(self._campaigns[name][1])
            yield turn
            self._campaigns[name][1].extend(turn.new)

    def save_snapshot(self, name: str, about: dict[str, Any], model: bytes) -> int:
        """Nothing."""
        return 0

    def newest_snapshot(self, name: str) -> int:
        """None."""
        return 0

    def snapshots(self, name: str) -> Iterator[Snapshot]:
        """None."""
        return iter(())


class _MemoryTurn:
    def __init__(self, events: list[Event]) -> None:
        self.events, self.new = events, list[Event]()

    def since(self, seen: int) -> list[Event]:
        return self.events[seen:]

    def append(self, event: Event) -> None:
        self.new.append(event)
