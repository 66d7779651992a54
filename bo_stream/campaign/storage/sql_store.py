"""A store that outlives the process: campaigns in a database, SQLite by default or PostgreSQL.

Events are rows that are only ever added. Of the snapshots the two newest are kept, so that the
room they take does not grow with the number of fits.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from sqlalchemy import Connection, Engine, bindparam, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from bo_stream.campaign.storage.sql_engine import (
    address,
    begin_log,
    connected,
    exists,
    explained,
    writers,
)
from bo_stream.campaign.storage.sql_schema import (
    VERSION,
    campaigns,
    checksum,
    events,
    prepare,
    prepared,
    snapshots,
)
from bo_stream.campaign.storage.store import Snapshot, Turn
from bo_stream.campaign.trials import Event
from bo_stream.errors import StateError

__all__ = ["Database"]

KEPT = 2
"""Snapshots kept of a campaign: the newest, and one to fall back on."""

_inherited: list[Engine] = []  # kept, so that no forked child closes its parent's connections

# Statements, built once: building one takes as long as running it.
_mine = events.c.campaign == bindparam("name")
SINCE = (select(events.c.payload).where(_mine, events.c.number > bindparam("seen"))).order_by(
    events.c.number
)
LAST_EVENT = select(func.max(events.c.number)).where(_mine)
LAST_SNAPSHOT = select(func.max(snapshots.c.number)).where(
    snapshots.c.campaign == bindparam("name")
)
NEW_EVENT = insert(events)
LOCKED = select(campaigns.c.name).where(campaigns.c.name == bindparam("name")).with_for_update()
SETTINGS = select(campaigns.c.settings).where(campaigns.c.name == bindparam("name"))


class Database:
    """Campaigns in a database, by its URL; any number of processes may use it at once.

    It may be pickled, and used after a fork: every process makes connections of its own.

    Args:
        url: ``sqlite:///oven.db`` (a file, made with the first campaign) or ``postgresql://...``.

    Raises:
        InputError: for a URL of something else, or of a folder that is not there.
        ImportError: if the driver is not installed.
        StateError: from every method, if the database cannot be used as a store.
    """

    durable = True

    def __init__(self, url: str) -> None:
        self._url = address(url)
        self._connect()
        if exists(self._url):
            self._there()

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self._url.render_as_string(hide_password=False),)

    def close(self) -> None:
        """Close the connections; they are made again when they are needed."""
        self._closing()
        self._connect()

    # -- campaigns -------------------------------------------------------------------------------

    def create(self, name: str, settings: dict[str, Any]) -> None:
        """Begin a campaign."""
        taken = StateError("a new name", repr(name), "Choose another name.")
        if not self._there():
            with explained(self._url):
                begin_log(self._engine)
                with writers(self._engine).begin() as connection:
                    prepare(connection)
        with explained(self._url):
            try:
                with writers(self._engine).begin() as connection:
                    connection.execute(insert(campaigns).values(name=name, settings=settings))
            except IntegrityError as error:
                raise taken from error

    def settings(self, name: str) -> dict[str, Any] | None:
        """What a campaign was begun with."""
        with self._reading() as connection:
            return None if connection is None else connection.scalar(SETTINGS, {"name": name})

    def names(self) -> list[str]:
        """Every campaign."""
        query = select(campaigns.c.name).order_by(campaigns.c.name)
        with self._reading() as connection:
            return [] if connection is None else list(connection.scalars(query))

    # -- events ----------------------------------------------------------------------------------

    def since(self, name: str, seen: int) -> list[Event]:
        """Events after the first ``seen`` ones."""
        with self._reading() as connection:
            return [] if connection is None else _since(connection, name, seen)

    @contextmanager
    def writing(self, name: str) -> Iterator[Turn]:
        """A writer's turn, durable once it has ended."""
        with self._turn(name) as connection:
            yield _DatabaseTurn(connection, name)

    # -- snapshots -------------------------------------------------------------------------------

    def save_snapshot(self, name: str, about: dict[str, Any], model: bytes) -> int:
        """Keep a snapshot and the one before it; older ones make room."""
        mine = snapshots.c.campaign == name
        with self._turn(name) as connection:
            number = _last(connection, name) + 1
            old = delete(snapshots).where(mine, snapshots.c.number <= number - KEPT)
            connection.execute(old)
            row = {
                "campaign": name,
                "number": number,
                "version": VERSION,
                "about": about,
                "model": model,
                "checksum": checksum(number, about, model),
            }
            connection.execute(insert(snapshots).values(row))
        return number

    def newest_snapshot(self, name: str) -> int:
        """Number of the newest snapshot."""
        with self._reading() as connection:
            return 0 if connection is None else _last(connection, name)

    def snapshots(self, name: str) -> Iterator[Snapshot]:
        """Snapshots that are whole, the newest first."""
        query = select(snapshots.c.number).where(snapshots.c.campaign == name)
        with self._reading() as connection:
            numbers = [] if connection is None else sorted(connection.scalars(query))
        for number in reversed(numbers):
            found = self._snapshot(name, number)
            if found is None:  # another process has saved newer ones meanwhile
                yield from self.snapshots(name)
                return
            if isinstance(found, Snapshot):
                yield found
                continue
            warnings.warn(
                f"Snapshot {number} of campaign {name!r} {found}. No outcome is lost: an earlier "
                "snapshot is taken, or the surrogate built anew, and told what came since.",
                stacklevel=2,
            )

    def _snapshot(self, name: str, number: int) -> Snapshot | str | None:
        """A snapshot, or what is wrong with it and what to do; None if it is gone."""
        mine = (snapshots.c.campaign == name, snapshots.c.number == number)
        try:
            with explained(self._url), self._engine.connect() as connection:
                row = connection.execute(select(snapshots).where(*mine)).one_or_none()
        except (StateError, ValueError):  # pages that cannot be read, or what is no JSON
            return "cannot be read; look after the disk"
        if row is None:
            return None
        if row.version != VERSION:
            return f"is of version {row.version}; take the release that wrote it to use it"
        if row.checksum != checksum(row.number, row.about, row.model):
            return "is damaged; look after the disk"
        return Snapshot(row.number, row.about, row.model)

    # -- connections -----------------------------------------------------------------------------

    def _connect(self) -> None:
        self._engine, self._process, self._known = connected(self._url), os.getpid(), False
        self._closing = weakref.finalize(self, _close, self._engine, self._process)

    def _there(self) -> bool:
        """Whether the tables are there; a database that cannot be a store is refused."""
        if self._process != os.getpid():  # a fork: these connections are the parent's
            self.close()
        if not self._known and exists(self._url):
            with explained(self._url), self._engine.connect() as connection:
                self._known = prepared(connection)
        return self._known

    @contextmanager
    def _reading(self) -> Iterator[Connection | None]:
        """A connection to read by; None while there is no campaign at all."""
        if not self._there():
            yield None
            return
        with explained(self._url), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _turn(self, name: str) -> Iterator[Connection]:
        """A transaction of the only writer of a campaign."""
        missing = StateError("a campaign that was begun", repr(name), "Create it first.")
        if not self._there():
            raise missing
        with explained(self._url), writers(self._engine).begin() as connection:
            if connection.scalar(LOCKED, {"name": name}) is None:
                raise missing
            yield connection


class _DatabaseTurn:
    def __init__(self, connection: Connection, name: str) -> None:
        self.connection, self.name = connection, name

    def since(self, seen: int) -> list[Event]:
        return _since(self.connection, self.name, seen)

    def append(self, event: Event) -> None:
        number = (self.connection.scalar(LAST_EVENT, {"name": self.name}) or 0) + 1
        row = {"campaign": self.name, "number": number, "payload": event}
        self.connection.execute(NEW_EVENT, row)


def _since(connection: Connection, name: str, seen: int) -> list[Event]:
    return list(connection.scalars(SINCE, {"name": name, "seen": seen}))


def _last(connection: Connection, name: str) -> int:
    return connection.scalar(LAST_SNAPSHOT, {"name": name}) or 0


def _close(engine: Engine, process: int) -> None:
    """Close connections, but for those of a parent."""
    if process == os.getpid():
        engine.dispose()
    else:
        _inherited.append(engine)
