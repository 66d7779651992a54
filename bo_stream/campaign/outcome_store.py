"""One outcome of several as a campaign of its own: its events, and its part of the snapshots.

The store of the campaign holds events with outcomes by column, and snapshots of all surrogates
together. Each outcome follows its share of them as if there were no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from bo_stream.campaign.history import Event
from bo_stream.campaign.outcomes.named_outcomes import COMPLETED
from bo_stream.campaign.storage.store import Snapshot, Store, Transaction
from bo_stream.errors import UnsupportedError

__all__ = ["OutcomeStore", "SharedStore"]

SHARED = ("goal", "constraints", "acquisition", "failures")
"""Settings that belong to all outcomes together."""


class SharedStore:
    """What the outcomes of a campaign share: the latest events, and snapshots of every part.

    Args:
        store: Where events and snapshots are kept.
        name: Name of the campaign.

    Attributes:
        start: Number of events before the window.
        events: Events of the window, the latest ones.
        version: Number of times that snapshots were read; they are read again when it grows.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.store, self.name = store, name
        self.start, self.events = 0, list[Event]()
        self.version = 0
        self.parts: dict[str, tuple[dict[str, Any], bytes]] = {}
        self._number, self._unsaved = 0, False

    def look(self, start: int) -> None:
        """Read snapshots of other processes, then the events after the first ``start`` ones."""
        newest = self.store.newest_snapshot(self.name) if self.store.durable else 0
        if newest > self._number:
            self._number, self.version, self.parts = newest, self.version + 1, {}
        self.start, self.events = start, self.store.events_since(self.name, start)

    def keep(self, column: str, about: dict[str, Any], model: bytes) -> None:
        """Keep a part of the next snapshot."""
        self.parts[column] = about, model
        self._unsaved = True

    def flush(self) -> None:
        """Save a snapshot of all parts if one of them is new."""
        if self._unsaved:
            about = {c: {**part, "bytes": len(model)} for c, (part, model) in self.parts.items()}
            contents = b"".join(model for _, model in self.parts.values())
            self._number = self.store.save_snapshot(self.name, {"parts": about}, contents)
            self._unsaved = False

    def snapshots(self, column: str) -> Iterator[Snapshot]:
        """The part of an outcome in every snapshot, the newest first."""
        for snapshot in self.store.snapshots(self.name):
            begin = 0
            for name, about in snapshot.about.get("parts", {}).items():
                model = snapshot.model[begin : begin + about["bytes"]]
                begin += about["bytes"]
                if name == column:
                    self.parts[column] = about, model
                    yield Snapshot(snapshot.number, about, model)
        self.parts.pop(column, None)


class OutcomeStore:
    """The store of one outcome, which nothing is written to but its part of snapshots.

    Args:
        shared: What all outcomes share.
        column: Column of the outcome.
    """

    def __init__(self, shared: SharedStore, column: str) -> None:
        self.shared, self.column = shared, column

    @property
    def durable(self) -> bool:
        """Whether it outlives the process."""
        return self.shared.store.durable

    @property
    def snapshot_every(self) -> int:
        """Outcomes after which a snapshot is saved even without a fit."""
        return self.shared.store.snapshot_every

    def events_since(self, name: str, count: int) -> list[Event]:
        """Events of the window, with this outcome alone."""
        return [self._own(event) for event in self.shared.events[count - self.shared.start :]]

    def newest_snapshot(self, name: str) -> int:
        """Number of times that snapshots were read."""
        return self.shared.version

    def snapshots(self, name: str) -> Iterator[Snapshot]:
        """Its part of the snapshots, the newest first."""
        return self.shared.snapshots(self.column)

    def save_snapshot(self, name: str, about: dict[str, Any], model: bytes) -> int:
        """Keep its part of the next snapshot."""
        self.shared.keep(self.column, about, model)
        return self.shared.version

    def flush(self) -> None:
        """Complete the file of the store."""
        self.shared.store.flush()

    def settings(self, name: str) -> dict[str, Any] | None:
        """Settings of the campaign."""
        return self.shared.store.settings(name)

    def names(self) -> list[str]:
        """Names of all campaigns."""
        return self.shared.store.names()

    def create(self, name: str, settings: dict[str, Any]) -> None:
        """Refused: the campaign is there."""
        raise UnsupportedError("the store of the campaign", "that of an outcome", "Use that one.")

    def transaction(self, name: str) -> AbstractContextManager[Transaction]:
        """Refused: outcomes are told to the campaign."""
        raise UnsupportedError("the store of the campaign", "that of an outcome", "Use that one.")

    def _own(self, event: Event) -> Event:
        """An event as a campaign of this outcome would have it."""
        completion = self.column == COMPLETED
        match event["kind"]:
            case "told" | "amended" if completion:
                return {**event, "values": _rows(event["values"], 1.0), "parts": {}}
            case "failed" if completion:
                rows = _rows(event["reasons"], 0.0)
                return {"kind": "told", "trials": [], "values": rows, "at": 0.0}
            case "told" | "amended" if "parts" in event:
                return {**event, "values": event["parts"].get(self.column, []), "parts": {}}
            case "failed":  # what was told before stays
                return {**event, "reasons": []}
            case "changed":
                rest = {k: v for k, v in event["settings"].items() if k not in SHARED}
                return {**event, "settings": rest}
        return event


def _rows(rows: list[Any], value: float) -> list[list[Any]]:
    """The same outcome for the trials of some rows."""
    return [[row[0], value, None] for row in rows]
