"""Campaigns in a database: SQLite or PostgreSQL.

Rows of events are only added. The two newest snapshots are kept, so that their size does not grow
with the number of fits.
"""

from __future__ import annotations

import math
import os
import time
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, bindparam, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from bo_stream.campaign.history import Event
from bo_stream.campaign.storage import sql_engine
from bo_stream.campaign.storage.checksums import is_sealed, sealed, unsealed
from bo_stream.campaign.storage.interrupts import defer_interrupts
from bo_stream.campaign.storage.sql_engine import (
    damaged,
    explain_damage,
    explain_errors,
    for_writing,
    may_exist,
)
from bo_stream.campaign.storage.sql_schema import (
    VERSION,
    campaigns,
    checksum,
    create_tables,
    events,
    has_tables,
    snapshots,
)
from bo_stream.campaign.storage.store import SNAPSHOT_EVERY, Snapshot, Transaction, refusal
from bo_stream.errors import StateError

__all__ = ["Database"]

KEPT = 2
"""Snapshots kept of a campaign: the newest one, and one in case it is damaged."""

SECONDS, SHARE = 0.5, 0.05
"""What moving the log to the file may take in all: these seconds, and this share of the time since
the store was opened."""

CREATED_WITHIN = 0.5
"""Seconds in which another program that is creating a store has created it."""

# Statements are built once, because building one takes as long as running it.
_of_campaign = events.c.campaign == bindparam("name")
EVENTS_SINCE = (
    select(events.c.number, events.c.payload)
    .where(_of_campaign, events.c.number > bindparam("count"))
    .order_by(events.c.number)
)
LAST_EVENT = select(func.max(events.c.number)).where(_of_campaign)
LAST_SNAPSHOT = select(func.max(snapshots.c.number)).where(
    snapshots.c.campaign == bindparam("name")
)
NEW_EVENT = insert(events)
LOCK_CAMPAIGN = (
    select(campaigns.c.name).where(campaigns.c.name == bindparam("name")).with_for_update()
)
SETTINGS = select(campaigns.c.settings).where(campaigns.c.name == bindparam("name"))


class Database:
    """Campaigns in a database, which any number of processes may use at once.

    It may be pickled and used after a fork: every process makes its own connections.

    Args:
        url: ``sqlite:///oven.db`` (a file, created with the first campaign) or
            ``postgresql://...``.
        snapshot_every: Outcomes after which a snapshot is saved even without a fit.
        timeout: Seconds that a writer waits for the others, in SQLite.
        readonly: Whether nothing may be written; by default where the file is not writable.

    Raises:
        InputError: for another kind of URL, or a missing folder.
        ImportError: if the driver is not installed.
        StateError: from every method, if the database cannot be used as a store.
    """

    durable = True

    def __init__(
        self,
        url: str,
        *,
        snapshot_every: int = SNAPSHOT_EVERY,
        timeout: float = sql_engine.TIMEOUT,
        readonly: bool | None = None,
    ) -> None:
        self._url = sql_engine.parse(url)
        self.snapshot_every, self._timeout = snapshot_every, timeout
        self.readonly = not sql_engine.is_writable(self._url) if readonly is None else readonly
        self._alone = sql_engine.without_log(self._url)  # before a connection makes a log
        self._opened, self._checkpoints = time.monotonic(), 0.0
        self._connect()
        if may_exist(self._url):
            self._has_tables()

    def __reduce__(self) -> tuple[Any, ...]:
        options: dict[str, Any] = {"snapshot_every": self.snapshot_every, "timeout": self._timeout}
        options["readonly"] = self.readonly
        return partial(type(self), **options), (self._url.render_as_string(hide_password=False),)

    def flush(self) -> None:
        """Move what SQLite has in its log to the file, so that a copy of the file has it."""
        if not self.readonly and self._has_tables():
            sql_engine.checkpoint(self._engine, self._timeout)

    def close(self) -> None:
        """Close the connections; they are made again when they are needed."""
        self._closing()
        self._connect()

    # -- campaigns -------------------------------------------------------------------------------

    def create(self, name: str, settings: dict[str, Any]) -> None:
        """Create a campaign."""
        taken = StateError("a new name", repr(name), "Choose another name.")
        self._check_writable()
        kept = sealed(name, 0, settings)
        if not self._has_tables():
            with explain_errors(self._url):
                sql_engine.enable_wal(self._engine)
        with explain_errors(self._url):
            try:
                with for_writing(self._engine).begin() as connection:
                    create_tables(connection)
                    connection.execute(insert(campaigns).values(name=name, settings=kept))
                    sql_engine.mark(connection, behind=False)
            except IntegrityError as error:
                raise taken from error
        self._written.append(True)
        self._checkpoint()

    def settings(self, name: str) -> dict[str, Any] | None:
        """Settings of a campaign."""
        with self._reading() as connection:
            if connection is None:
                return None
            stored = connection.execute(SETTINGS, {"name": name}).one_or_none()
            if stored is None:
                return None
            settings = unsealed(name, 0, stored[0], required=False)
            if settings is None:
                raise damaged(f"damaged settings of campaign {name!r}")
            if is_sealed(stored[0]):
                self._sealed_from[name] = 1
            return settings

    def names(self) -> list[str]:
        """Names of all campaigns."""
        query = select(campaigns.c.name).order_by(campaigns.c.name)
        with self._reading() as connection:
            return [] if connection is None else list(connection.scalars(query))

    # -- events ----------------------------------------------------------------------------------

    def events_since(self, name: str, count: int) -> list[Event]:
        """Events after the first ``count`` ones."""
        with self._reading() as connection:
            return [] if connection is None else self._events_since(connection, name, count)

    def _events_since(self, connection: Connection, name: str, count: int) -> list[Event]:
        """Events as they were written.

        Raises:
            StateError: if one of them is damaged or lost.
        """
        found: list[Event] = []
        for number, stored in connection.execute(EVENTS_SINCE, {"name": name, "count": count}):
            required = number >= self._sealed_from.get(name, math.inf)
            event = unsealed(name, number, stored, required)
            if event is None or number != count + len(found) + 1:
                expected = count + len(found) + 1
                raise damaged(f"a damaged or lost event {expected} of campaign {name!r}")
            if not required and is_sealed(stored):
                self._sealed_from[name] = number
            found.append(event)
        return found

    @contextmanager
    def transaction(self, name: str) -> Iterator[Transaction]:
        """An exclusive transaction, durable when it has ended."""
        with self._locked(name) as connection:
            yield _DatabaseTransaction(self, connection, name)

    # -- snapshots -------------------------------------------------------------------------------

    def save_snapshot(self, name: str, about: dict[str, Any], model: bytes) -> int:
        """Save a snapshot, and delete all but the one before it; nothing in a read-only store."""
        if self.readonly:
            return self.newest_snapshot(name)
        mine = snapshots.c.campaign == name
        with self._locked(name) as connection:
            number = _last_snapshot(connection, name) + 1
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
            return 0 if connection is None else _last_snapshot(connection, name)

    def snapshots(self, name: str) -> Iterator[Snapshot]:
        """Undamaged snapshots, the newest first."""
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
                f"Snapshot {number} of campaign {name!r} {found}. No outcome is lost: the "
                "surrogate is restored from an earlier snapshot or built again from all outcomes.",
                stacklevel=2,
            )

    def _snapshot(self, name: str, number: int) -> Snapshot | str | None:
        """A snapshot, or what is wrong with it and the remedy; None if it was deleted."""
        mine = (snapshots.c.campaign == name, snapshots.c.number == number)
        try:
            with explain_errors(self._url), self._engine.connect() as connection:
                row = connection.execute(select(snapshots).where(*mine)).one_or_none()
        except (StateError, ValueError):  # unreadable pages, or invalid JSON
            return "cannot be read; check the disk"
        if row is None:
            return None
        if row.version != VERSION:
            return f"has version {row.version}; use the release that saved it"
        if row.checksum != checksum(row.number, row.about, row.model):
            return "is damaged; check the disk"
        return Snapshot(row.number, row.about, row.model)

    # -- connections -----------------------------------------------------------------------------

    def _connect(self) -> None:
        self._engine = sql_engine.make(self._url, self._timeout, self.readonly)
        self._process, self._tables_seen = os.getpid(), False
        self._sealed_from: dict[str, int] = {}  # first event with a checksum, by campaign
        self._written: list[bool] = []  # not empty once this may have written to a store
        self._closing = weakref.finalize(self, _close, self._engine, self._process, self._written)

    def _has_tables(self) -> bool:
        """Whether the tables exist; a database that cannot be a store is refused."""
        if self._process != os.getpid():  # after a fork, these connections are the parent's
            self._engine.dispose(close=False)
            self._connect()
        if not self._tables_seen and may_exist(self._url):
            with explain_errors(self._url), self._engine.connect() as connection:
                self._tables_seen = has_tables(connection)
                errors = sql_engine.structure(connection) if self._tables_seen else ""
            if errors:
                raise damaged(errors)
            if self._alone:
                self._check_log()
            if self._tables_seen and not self.readonly:
                self._written.append(True)
        return self._tables_seen

    def _check_log(self) -> None:
        """Name the log that is missing beside a file that was copied without it.

        Raises:
            StateError: if there is no campaign without it.
        """
        end, missing = time.monotonic() + CREATED_WITHIN, None
        while self._alone:
            with explain_errors(self._url), self._engine.connect() as connection:
                missing = sql_engine.missing_log(connection, self._url)
                self._tables_seen = has_tables(connection)
            self._alone = bool(missing) and not self._tables_seen and time.monotonic() < end
            if self._alone:
                time.sleep(0.05)
        if missing and not self._tables_seen:
            remedy = f"{missing} {sql_engine.COPY} If it was not copied, delete it."
            raise StateError(f"a store with campaigns at {self._shown}", "none", remedy)
        if missing:
            warnings.warn(f"{missing} {sql_engine.COPY}", stacklevel=2)

    def _checkpoint(self) -> None:
        """Move the log to the file."""
        begin = time.monotonic()
        sql_engine.checkpoint(self._engine)
        self._checkpoints += time.monotonic() - begin

    @property
    def _shown(self) -> str:
        return self._url.render_as_string(hide_password=True)

    def _check_writable(self) -> None:
        if self.readonly:
            raise refusal(self._shown)

    @contextmanager
    def _reading(self) -> Iterator[Connection | None]:
        """A connection for reading; None while there is no campaign at all."""
        if not self._has_tables():
            yield None
            return
        with explain_errors(self._url), self._engine.connect() as connection, explain_damage():
            yield connection

    @contextmanager
    def _locked(self, name: str) -> Iterator[Connection]:
        """A transaction that locks a campaign."""
        missing = StateError("an existing campaign", repr(name), "Create it first.")
        self._check_writable()
        if not self._has_tables():
            raise missing
        with (
            defer_interrupts(),
            explain_errors(self._url),
            for_writing(self._engine).begin() as connection,
        ):
            if connection.scalar(LOCK_CAMPAIGN, {"name": name}) is None:
                raise missing
            yield connection
            behind = self._checkpoints > SECONDS + SHARE * (time.monotonic() - self._opened)
            new = sql_engine.mark(connection, behind)
        if new or not behind:
            self._checkpoint()


class _DatabaseTransaction:
    def __init__(self, database: Database, connection: Connection, name: str) -> None:
        self.database, self.connection, self.name = database, connection, name

    def events_since(self, count: int) -> list[Event]:
        with explain_damage():
            return self.database._events_since(self.connection, self.name, count)

    def append(self, event: Event) -> None:
        number = (self.connection.scalar(LAST_EVENT, {"name": self.name}) or 0) + 1
        payload = sealed(self.name, number, event)
        row = {"campaign": self.name, "number": number, "payload": payload}
        self.connection.execute(NEW_EVENT, row)


def _last_snapshot(connection: Connection, name: str) -> int:
    return connection.scalar(LAST_SNAPSHOT, {"name": name}) or 0


def _close(engine: Engine, process: int, written: list[bool]) -> None:
    """Close connections, unless they are a parent process's."""
    if process != os.getpid():
        engine.dispose(close=False)
        return
    if written and may_exist(engine.url):
        sql_engine.checkpoint(engine, patience=1.0)
    engine.dispose()
