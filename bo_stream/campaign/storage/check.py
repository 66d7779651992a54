"""Checking a store: every event is read, and those that are damaged are named."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, bindparam, select
from sqlalchemy.exc import SQLAlchemyError

from bo_stream.campaign.storage import sql_engine
from bo_stream.campaign.storage.sql_store import (
    LAST_EVENT,
    SETTINGS,
    campaigns,
    events,
    has_tables,
    is_sealed,
    unsealed,
)
from bo_stream.errors import StateError

__all__ = ["Checked", "check_store"]

UNREADABLE = (SQLAlchemyError, ValueError, TypeError, OverflowError)
"""What reading a damaged page or damaged JSON may raise."""
SHOWN = 12
"""Numbers of damaged events that are shown."""

_event = select(events.c.payload).where(
    events.c.campaign == bindparam("name"), events.c.number == bindparam("number")
)


@dataclass(frozen=True)
class Checked:
    """What was found of a campaign.

    Attributes:
        name: Its name.
        events: Number of whole events.
        trials: Number of trials in them.
        damage: What is damaged, in words; empty if nothing is.
    """

    name: str
    events: int
    trials: int
    damage: str

    @property
    def described(self) -> str:
        """One line about it."""
        counted = f"{self.events} events, {self.trials} trials"
        return f"{self.name}: {counted}, {self.damage or 'whole'}"


def check_store(url: str) -> list[Checked]:
    """What can be read of every campaign of a store, damaged or not; nothing is written.

    Raises:
        StateError: if the database cannot be read at all, or has no campaign.
    """
    parsed, names = sql_engine.parse(url), set[str]()
    alone = not sql_engine.has_log(parsed)
    engine = sql_engine.make(parsed, readonly=parsed.get_backend_name() == "sqlite")
    try:
        with sql_engine.explain_errors(parsed), engine.connect() as connection:
            errors = sql_engine.structure(connection)
            if has_tables(connection):
                names.update(connection.scalars(select(campaigns.c.name)))
                names.update(connection.scalars(select(events.c.campaign).distinct()))
            found = [_checked(connection, name, errors) for name in sorted(names)]
            missing = sql_engine.missing_log(connection) if alone else None
    finally:
        engine.dispose()
    if not found:
        raise StateError(
            f"a store with campaigns at {parsed.render_as_string(hide_password=True)}",
            errors or "a database without campaigns",
            "Correct the URL, or restore the store from a copy.",
        )
    if missing:
        warnings.warn(missing, stacklevel=2)
    return found


def _checked(connection: Connection, name: str, errors: str) -> Checked:
    """What can be read of a campaign, event by event."""
    stored = _value(connection, SETTINGS, name=name)
    damage = [errors] if errors else []
    if unsealed(name, 0, stored, required=False) is None:
        damage.append("its settings are damaged")
    required, lost, whole, trials = is_sealed(stored), [], 0, 0
    try:
        last = connection.scalar(LAST_EVENT, {"name": name}) or 0
    except UNREADABLE:
        last = 0
        damage.append("its number of events cannot be read")
    for number in range(1, last + 1):
        stored = _value(connection, _event, name=name, number=number)
        event = unsealed(name, number, stored, required)
        if event is None:
            lost.append(number)
            continue
        required |= is_sealed(stored)
        whole, trials = whole + 1, trials + len(event.get("trials", ()))
    if lost:
        listed = ", ".join(map(str, lost[:SHOWN]))
        more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
        damage.append(f"events {listed}{more} of {last} are damaged or lost")
    return Checked(name, whole, trials, "; ".join(damage))


def _value(connection: Connection, query: Select[Any], **keys: str | int) -> object:
    """What a query finds; None if it cannot be read."""
    try:
        return connection.scalar(query, keys)
    except UNREADABLE:
        return None
