"""Checking a store, and saving what is whole of a damaged one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from bo_stream.campaign.ledger.trials import Event
from bo_stream.campaign.storage import sql_engine
from bo_stream.campaign.storage.damage import CampaignScan, scan_all, structure
from bo_stream.campaign.storage.sql_engine import explain_errors
from bo_stream.campaign.storage.sql_store import Database
from bo_stream.errors import StateError

__all__ = ["check_store", "salvage"]

LOST = "Lost with a damaged part of the store. The inputs that are shown are not its own."


def check_store(url: str) -> list[CampaignScan]:
    """What can be read of every campaign of a store, damaged or not; nothing is written.

    Raises:
        StateError: if the database cannot be read at all, or has no campaign.
    """
    parsed = sql_engine.parse(url)
    alone, missing = sql_engine.without_log(parsed), None
    engine = sql_engine.make(parsed, readonly=parsed.get_backend_name() == "sqlite")
    try:
        with explain_errors(parsed), engine.connect() as connection:
            found, errors = scan_all(connection), structure(connection)
            if alone and not (found and errors):
                missing = sql_engine.missing_log(connection, parsed)
    finally:
        engine.dispose()
    if not found:
        got = errors[0] if errors else "a database without campaigns"
        raise StateError(
            f"a store with campaigns at {parsed.render_as_string(hide_password=True)}",
            got,
            f"{missing} {sql_engine.COPY}"
            if missing
            else "Correct the URL, or restore the file from a copy.",
        )
    if missing:
        warnings.warn(f"{missing} {sql_engine.COPY}", stacklevel=2)
    return found


def salvage(
    scans: list[CampaignScan], url: str, known: Mapping[str, dict[str, Any]] | None = None
) -> list[str]:
    """Write what is whole of campaigns to a new store, and describe what is not in it.

    Trials keep their ids. One whose inputs are lost is withdrawn, with other inputs in their place.

    Args:
        scans: As `check_store` returned them.
        url: A new store.
        known: Settings by the name of the campaign, in place of those that are lost.

    Raises:
        StateError: if it has campaigns already.
    """
    new, notes = Database(url), list[str]()
    if new.names():
        raise StateError("a new store", f"one with campaigns at {url}", "Choose another name.")
    for scan in scans:
        settings = scan.settings or (known or {}).get(scan.name)
        if settings is None:
            notes.append(f"{scan.name}: its settings are lost, and so are all of its trials.")
            continue
        new.create(scan.name, settings)
        rebuilt = _Rebuilt()
        for number in sorted(scan.events):
            rebuilt.add(scan.events[number])
        kept = list(scan.events.values()) if scan.whole else rebuilt.events
        with new.transaction(scan.name) as transaction:
            for event in kept:
                transaction.append(event)
        notes += [f"{scan.name}: {note}" for note in rebuilt.notes]
    new.close()
    return notes


class _Rebuilt:
    """Events that follow from each other, made from those that are whole."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.notes: list[str] = []
        self._next = 0
        self._lost: set[int] = set()
        self._told: set[int] = set()

    def add(self, event: Event) -> None:
        """Add what is left of a whole event."""
        kept = {**event, "ahead": []} if event["kind"] == "asked" else dict(event)
        kept.pop("taken", None)
        self._fill(event.get("trials") or [])
        for key in ("values", "reasons"):
            if key in kept:
                kept[key] = [row for row in kept[key] if self._is_known(row[0], event)]
                if not kept[key] and not event.get("trials"):
                    return
        if event["kind"] == "amended":
            without = [row for row in kept["values"] if row[0] not in self._told]
            if without:  # their outcomes were told in an event that is lost
                told = {"kind": "told", "trials": [], "values": without, "at": event["at"]}
                self.events.append(told)
        self._told.update(row[0] for row in kept.get("values", ()))
        self.events.append(kept)

    def _fill(self, trials: list[Any]) -> None:
        """Put withdrawn trials in the places of those that were lost before these."""
        trials = [row for row in trials if row[0] >= self._next]  # without those that are known
        if not trials:
            return
        gap = range(self._next, trials[0][0])
        if gap:
            place, inputs = trials[0][1], trials[0][2]
            rows = [[id, place, inputs] for id in gap]
            self.events += [
                {"kind": "asked", "trials": rows, "by": None, "ahead": []},
                {"kind": "withdrawn", "reasons": [[id, LOST] for id in gap], "before": []},
            ]
            self._lost.update(gap)
            self.notes.append(f"The inputs of trials {gap[0]} to {gap[-1]} are lost.")
        self._next = trials[-1][0] + 1

    def _is_known(self, id: int, event: Mapping[str, Any]) -> bool:
        """Whether a trial's inputs are known; otherwise its outcome is noted."""
        if id < self._next and id not in self._lost:
            return True
        for row in event.get("values", ()):
            if row[0] == id:
                self.notes.append(f"Trial {id} was told {row[1]!r}; its inputs are lost.")
        return False
