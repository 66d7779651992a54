"""Checking a store: every event is read, and those that are damaged are named."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from bo_stream.campaign.storage.sql_store import (
    EVENTS_SINCE,
    campaigns,
    explain_errors,
    has_tables,
    make,
    parse,
    structure,
    unsealed,
)
from bo_stream.errors import StateError

__all__ = ["Checked", "check_store"]

SHOWN = 12
"""Numbers of damaged events that are shown."""


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
    parsed = parse(url)
    engine = make(parsed, readonly=True)
    found: list[Checked] = []
    try:
        with explain_errors(parsed), engine.connect() as connection:
            errors = structure(connection)
            if has_tables(connection):
                stored = connection.execute(select(campaigns).order_by(campaigns.c.name)).all()
                found = [_checked(connection, row.name, row.settings, errors) for row in stored]
    finally:
        engine.dispose()
    if not found:
        raise StateError(
            f"a store with campaigns at {parsed.render_as_string(hide_password=True)}",
            errors or "a database without campaigns",
            "Correct the URL, or restore the store from a copy.",
        )
    return found


def _checked(connection: Connection, name: str, settings: object, errors: str) -> Checked:
    """What can be read of a campaign, event by event."""
    damage = [errors] if errors else []
    if unsealed(name, 0, settings) is None:
        damage.append("its settings are damaged")
    last, lost, whole, trials = 0, list[int](), 0, 0
    try:
        for number, stored in connection.execute(EVENTS_SINCE, {"name": name, "count": 0}):
            event = unsealed(name, number, stored)
            lost += range(last + 1, number + (event is None))
            last = number
            if event is not None:
                whole, trials = whole + 1, trials + len(event.get("trials", ()))
    except SQLAlchemyError:
        damage.append(f"events after {last} cannot be read")
    if lost:
        listed = ", ".join(map(str, lost[:SHOWN]))
        more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
        damage.append(f"events {listed}{more} of {last} are damaged or lost")
    return Checked(name, whole, trials, "; ".join(damage))
