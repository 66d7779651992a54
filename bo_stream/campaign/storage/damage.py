"""What is whole in a damaged store, and what is lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, func, select
from sqlalchemy.exc import SQLAlchemyError

from bo_stream.campaign.ledger.trials import Event
from bo_stream.campaign.storage.checksums import is_sealed, unsealed
from bo_stream.campaign.storage.sql_schema import campaigns, events
from bo_stream.errors import StateError

__all__ = ["UNREADABLE", "CampaignScan", "damaged", "scan_all", "structure"]

UNREADABLE = (SQLAlchemyError, ValueError, TypeError, KeyError, AttributeError, OverflowError)
"""What reading a damaged page or damaged JSON may raise."""

CHECK = "PRAGMA quick_check(20)"

SHOWN = 12
"""Numbers shown in a message."""

BEYOND = 3
"""Events that are looked for after the last one that can be counted."""

ORPHANS = (
    select(events.c.campaign).distinct().where(events.c.campaign.not_in(select(campaigns.c.name)))
)
"""Campaigns that have events and no settings."""

_one = select(events.c.payload).where(
    events.c.campaign == bindparam("name"), events.c.number == bindparam("number")
)
_ends = select(func.max(events.c.number)).where(events.c.campaign == bindparam("name"))
_settings = select(campaigns.c.settings).where(campaigns.c.name == bindparam("name"))


@dataclass(frozen=True)
class CampaignScan:
    """What can be read of a campaign.

    Attributes:
        name: Its name.
        settings: Its settings; None if they are damaged.
        events: Whole events by number, from 1.
        lost: Numbers of damaged events.
        open_end: Whether further events may be lost after these.
        structure: Errors in the structure of the file.
    """

    name: str
    settings: dict[str, Any] | None
    events: dict[int, Event]
    lost: list[int]
    open_end: bool = False
    structure: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged."""
        return self.settings is not None and not (self.lost or self.open_end or self.structure)

    def unknown_trials(self) -> list[int]:
        """Ids of trials whose inputs are lost, as far as later events show them."""
        known = {row[0] for event in self.events.values() for row in event.get("trials", ())}
        named = known | {row[0] for e in self.events.values() for row in e.get("values", ())}
        return sorted(set(range(max(named, default=-1) + 1)) - known)

    def doubtful_trials(self) -> list[int]:
        """Ids of trials whose outcome may be in a damaged event."""
        if not (self.lost or self.open_end):
            return []
        waiting: set[int] = set()
        for number in sorted(self.events):
            event = self.events[number]
            if event["kind"] == "asked":
                waiting.update(row[0] for row in event["trials"])
            waiting.difference_update(row[0] for row in event.get("values", ()))
            waiting.difference_update(row[0] for row in event.get("reasons", ()))
        return sorted(waiting)

    def describe(self) -> str:
        """What is lost, in words."""
        parts = [] if self.settings is not None else ["its settings"]
        if self.lost:
            parts.append(f"events {_listed(self.lost)} of {max([*self.events, *self.lost])}")
        if self.open_end:
            parts.append(f"all events after number {max(self.events, default=0)}, if there are any")
        if (unknown := self.unknown_trials()) and (self.lost or self.open_end):
            parts.append(f"the inputs of trials {_listed(unknown)}")
        if doubtful := self.doubtful_trials():
            parts.append(f"perhaps the outcomes of trials {_listed(doubtful)}")
        if self.structure and not parts:
            trials = sum(len(event.get("trials", ())) for event in self.events.values())
            parts.append(
                f"pages of the file ({self.structure[0]}); events 1 to {len(self.events)} with "
                f"trials 0 to {trials - 1} are whole, and there may have been more"
            )
        return f"campaign {self.name!r} has lost " + "; ".join(parts)


def damaged(scans: Iterable[CampaignScan], shown: str) -> StateError:
    """The error that names what is lost.

    Args:
        scans: What can be read of each campaign.
        shown: The database, for the message.
    """
    lost = [one.describe() for one in scans if not one.whole]
    return StateError(
        f"a store whose events and settings are whole at {shown}",
        "; ".join(lost) or "a damaged file in which no campaign can be read: all trials are lost",
        "The file was not changed. Restore it from a copy, or save what is whole: "
        "bo-stream check STORE --salvage NEW.db",
    )


def structure(connection: Connection) -> list[str]:
    """Errors in the structure of an SQLite file; none for other databases."""
    if connection.dialect.name != "sqlite":
        return []
    try:
        rows = [" ".join(row.split()) for row in connection.exec_driver_sql(CHECK).scalars()]
        orphans = [f"events of {name!r}" for name in connection.scalars(ORPHANS)]
    except UNREADABLE as error:
        return [" ".join(str(getattr(error, "orig", error)).split())]
    return [*([] if rows == ["ok"] else rows), *orphans]


def scan_all(connection: Connection) -> list[CampaignScan]:
    """What can be read of each campaign; none if not even their names can."""
    names: set[Any] = set()
    for query in (select(campaigns.c.name), select(events.c.campaign).distinct()):
        try:
            names.update(connection.scalars(query))
        except UNREADABLE:
            continue
    found = structure(connection)
    known = sorted(name for name in names if isinstance(name, str))
    return [scan(connection, name, found) for name in known]


def scan(connection: Connection, name: str, structure: list[str]) -> CampaignScan:
    """What can be read of a campaign, event by event.

    Args:
        connection: To the store.
        name: Name of the campaign.
        structure: Errors in the structure of the file.
    """
    raw = _value(connection, _settings, {"name": name})
    settings = unsealed(name, 0, raw, required=False)
    required, whole, lost = is_sealed(raw), {}, []
    last = _value(connection, _ends, {"name": name})
    open_end = not isinstance(last, int) or last < 0
    number, limit = 0, BEYOND if open_end else last
    while number < limit:
        number += 1
        stored = _value(connection, _one, {"name": name, "number": number})
        event = unsealed(name, number, stored, required)
        if event is None or not isinstance(event.get("kind"), str):
            lost.append(number)
            continue
        required |= is_sealed(stored)
        whole[number] = event
        limit = max(limit, number + BEYOND) if open_end else limit
    if open_end:
        lost = [number for number in lost if number < max(whole, default=0)]
    return CampaignScan(name, settings, whole, lost, open_end, structure)


def _value(connection: Connection, query: Any, parameters: Mapping[str, Any]) -> Any:
    """A single value; None if it cannot be read."""
    try:
        return connection.scalar(query, parameters)
    except UNREADABLE:
        return None


def _listed(numbers: list[int]) -> str:
    """Numbers as text, of which many are not all shown."""
    shown = ", ".join(map(str, numbers[:SHOWN]))
    return shown if len(numbers) <= SHOWN else f"{shown} and {len(numbers) - SHOWN} more"
