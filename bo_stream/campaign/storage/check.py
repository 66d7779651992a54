"""Checking a store: every event is read, and those that are damaged are named."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, func, select
from sqlalchemy.exc import SQLAlchemyError

from bo_stream.campaign.storage import sql_engine
from bo_stream.campaign.storage.checksums import is_sealed, unsealed
from bo_stream.campaign.storage.sql_engine import explain_errors
from bo_stream.campaign.storage.sql_schema import campaigns, events, has_tables
from bo_stream.errors import StateError

__all__ = ["Checked", "check_store"]

UNREADABLE = (SQLAlchemyError, ValueError, TypeError, OverflowError)
"""What reading a damaged page or damaged JSON may raise."""
SHOWN = 12
"""Numbers of damaged events that are shown."""

_event = select(events.c.payload).where(
    events.c.campaign == bindparam("name"), events.c.number == bindparam("number")
)
_last = select(func.max(events.c.number)).where(events.c.campaign == bindparam("name"))
_settings = select(campaigns.c.settings).where(campaigns.c.name == bindparam("name"))
_orphans = (
    select(events.c.campaign).distinct().where(events.c.campaign.not_in(select(campaigns.c.name)))
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
    parsed = sql_engine.parse(url)
    alone, missing, names = sql_engine.without_log(parsed), None, set[str]()
    engine = sql_engine.make(parsed, readonly=parsed.get_backend_name() == "sqlite")
    try:
        with explain_errors(parsed), engine.connect() as connection:
            errors = sql_engine.structure(connection)
            if alone and not errors:
                missing = sql_engine.missing_log(connection, parsed)
            if has_tables(connection):
                names = {
                    *connection.scalars(select(campaigns.c.name)),
                    *connection.scalars(_orphans),
                }
            found = [_checked(connection, name, errors) for name in sorted(names)]
    finally:
        engine.dispose()
    if not found:
        got = missing or errors or "a database without campaigns"
        shown = parsed.render_as_string(hide_password=True)
        remedy = (
            sql_engine.COPY if missing else "Correct the URL, or restore the store from a copy."
        )
        raise StateError(f"a store with campaigns at {shown}", got, remedy)
    if missing:
        warnings.warn(f"{missing} {sql_engine.COPY}", stacklevel=2)
    return found


def _checked(connection: Connection, name: str, errors: str) -> Checked:
    """What can be read of a campaign, event by event."""
    stored = _value(connection, name, None)
    damage = [errors] if errors else []
    if unsealed(name, 0, stored, required=False) is None:
        damage.append("its settings are damaged")
    required, lost, whole, trials = is_sealed(stored), [], 0, 0
    try:
        last = connection.scalar(_last, {"name": name}) or 0
    except UNREADABLE:
        last = 0
        damage.append("its number of events cannot be read")
    for number in range(1, last + 1):
        stored = _value(connection, name, number)
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


def _value(connection: Connection, name: str, number: int | None) -> object:
    """An event, or the settings for None; None if it cannot be read."""
    try:
        if number is None:
            return connection.scalar(_settings, {"name": name})
        return connection.scalar(_event, {"name": name, "number": number})
    except UNREADABLE:
        return None
