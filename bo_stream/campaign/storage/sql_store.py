"""Campaigns in a database: SQLite or PostgreSQL.

Rows of events are only added. The two newest snapshots are kept, so that their size does not grow
with the number of fits. Events, settings and snapshots have checksums, so that damage is noticed;
stores of earlier releases have none, and from the first checksum of a campaign on, all its events
have one.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Engine,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    bindparam,
    delete,
    func,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import IntegrityError

from bo_stream.campaign.history import Event
from bo_stream.campaign.storage import sql_engine
from bo_stream.campaign.storage.sql_engine import damaged, explain_damage, explain_errors
from bo_stream.campaign.storage.store import SNAPSHOT_EVERY, Snapshot, Transaction
from bo_stream.errors import InputError, StateError

__all__ = [
    "Database",
    "campaigns",
    "defer_interrupts",
    "events",
    "has_tables",
    "is_sealed",
    "unsealed",
]

KEPT = 2
"""Snapshots kept of a campaign: the newest one, and one in case it is damaged."""

SECONDS, SHARE = 0.5, 0.05
"""What moving the log to the file may take in all: these seconds, and this share of the time since
the store was opened."""

VERSION = 1
"""Version of the layout; a release refuses stores of newer versions."""

LOCK = 0x626F5F73
"""Key of the PostgreSQL lock that is held while tables are created."""

CHECKSUM = "checksum"
"""Key of the checksum in stored events and settings."""

_metadata = MetaData()

_layout = Table("bo_stream_store", _metadata, Column("version", Integer, primary_key=True))

campaigns = Table(
    "campaigns",
    _metadata,
    Column("name", String, primary_key=True),
    Column("settings", JSON, nullable=False),
)

events = Table(
    "events",
    _metadata,
    Column("campaign", ForeignKey("campaigns.name"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),  # from 1
    Column("payload", JSON, nullable=False),
    sqlite_with_rowid=False,
)

snapshots = Table(
    "snapshots",
    _metadata,
    Column("campaign", ForeignKey("campaigns.name"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("about", JSON, nullable=False),
    Column("model", LargeBinary, nullable=False),
    Column("checksum", String, nullable=False),
)

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
        snapshot_every: OutcomeSet after which a snapshot is saved even without a fit.
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
        self._sealed = set[str]()  # campaigns all of whose events have a checksum
        self._alone = not sql_engine.has_log(self._url)  # before a connection makes a log
        self._opened, self._checkpoints = time.monotonic(), 0.0
        self._connect()
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
        self._check_writable()
        row = {"name": name, "settings": _sealed(name, 0, settings)}
        new = not self._has_tables()
        with explain_errors(self._url):
            if new:
                sql_engine.enable_wal(self._engine)
            try:
                with sql_engine.writing(self._engine) as connection:
                    _create_tables(connection)
                    connection.execute(insert(campaigns).values(row))
                    sql_engine.mark(connection, behind=False)
            except IntegrityError as error:
                raise StateError("a new name", repr(name), "Choose another name.") from error
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
                self._sealed.add(name)
            return settings

    def names(self) -> list[str]:
        """Names of all campaigns."""
        query = select(campaigns.c.name).order_by(campaigns.c.name)
        with self._reading() as connection:
            return [] if connection is None else list(connection.scalars(query))

    # -- events ----------------------------------------------------------------------------------

    def events_since(self, name: str, count: int) -> list[Event]:
        """Events after the first ``count`` ones.

        Raises:
            StateError: if one of them is damaged or lost.
        """
        with self._reading() as connection:
            return [] if connection is None else self._events_since(connection, name, count)

    def _events_since(self, connection: Connection, name: str, count: int) -> list[Event]:
        found: list[Event] = []
        required = name in self._sealed
        for number, stored in connection.execute(EVENTS_SINCE, {"name": name, "count": count}):
            event = unsealed(name, number, stored, required)
            expected = count + len(found) + 1
            if event is None or number != expected:
                raise damaged(f"a damaged or lost event {expected} of campaign {name!r}")
            required |= is_sealed(stored)
            found.append(event)
        return found

    @contextmanager
    def transaction(self, name: str) -> Iterator[Transaction]:
        """An exclusive transaction, durable when it has ended."""
        with self._locked(name) as connection:

            def events_since(count: int) -> list[Event]:
                with explain_damage():
                    return self._events_since(connection, name, count)

            def append(event: Event) -> None:
                number = (connection.scalar(LAST_EVENT, {"name": name}) or 0) + 1
                payload = _sealed(name, number, event)
                row = {"campaign": name, "number": number, "payload": payload}
                connection.execute(NEW_EVENT, row)

            yield Transaction(events_since, append)

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
                "checksum": _checksum(number, about, model),
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
        if row.checksum != _checksum(row.number, row.about, row.model):
            return "is damaged; check the disk"
        return Snapshot(row.number, row.about, row.model)

    # -- connections -----------------------------------------------------------------------------

    def _connect(self) -> None:
        self._engine = sql_engine.make(self._url, self._timeout, self.readonly)
        self._process, self._tables_seen = os.getpid(), False
        self._closing = weakref.finalize(self, _close, self._engine, self.readonly, self._process)

    def _has_tables(self) -> bool:
        """Whether the tables exist; a database that cannot be a store is refused."""
        if self._process != os.getpid():  # after a fork, these connections are the parent's
            self._engine.dispose(close=False)
            self._connect()
        if not self._tables_seen and sql_engine.may_exist(self._url):
            with explain_errors(self._url), self._engine.connect() as connection:
                self._tables_seen = has_tables(connection)
                errors = sql_engine.structure(connection) if self._tables_seen else ""
                missing = sql_engine.missing_log(connection) if self._alone else None
            if errors:
                raise damaged(errors)
            if missing:
                warnings.warn(missing, stacklevel=2)
            self._alone = False
        return self._tables_seen

    def _checkpoint(self) -> None:
        begin = time.monotonic()
        sql_engine.checkpoint(self._engine)
        self._checkpoints += time.monotonic() - begin

    def _check_writable(self) -> None:
        if self.readonly:
            raise StateError(
                f"a store that may be written at {self._url.render_as_string(hide_password=True)}",
                "one that is opened for reading only",
                "Resume the campaign without readonly, or make the file and its folder writable.",
            )

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
            sql_engine.writing(self._engine) as connection,
        ):
            if connection.scalar(LOCK_CAMPAIGN, {"name": name}) is None:
                raise missing
            yield connection
            behind = self._checkpoints > SECONDS + SHARE * (time.monotonic() - self._opened)
            new = sql_engine.mark(connection, behind)
        if new or not behind:
            self._checkpoint()


def _last_snapshot(connection: Connection, name: str) -> int:
    return connection.scalar(LAST_SNAPSHOT, {"name": name}) or 0


def _close(engine: Engine, readonly: bool, process: int) -> None:
    """Close connections, unless they are a parent process's."""
    mine = process == os.getpid()
    if mine and not readonly and sql_engine.may_exist(engine.url):
        sql_engine.checkpoint(engine, patience=1.0)
    engine.dispose(close=mine)


# -- tables ----------------------------------------------------------------------------------------


def has_tables(connection: Connection) -> bool:
    """Whether a database has the tables.

    Raises:
        StateError: if they have a newer version, or if other tables have their names.
    """
    names = set(inspect(connection).get_table_names())
    if _layout.name not in names:
        taken = sorted(names & set(_metadata.tables))
        if taken:
            raise StateError(
                "a store of bo_stream, or a database without tables of these names",
                f"a database in which another program has the tables {', '.join(taken)}",
                "Choose another file or database. If it was a store, it is damaged and none of its "
                "trials can be read: restore it from a copy.",
            )
        return False
    version = connection.scalar(select(func.max(_layout.c.version)))
    if version != VERSION:
        raise StateError(
            f"a store of version {VERSION}",
            f"one of version {version}",
            "Open it with the release of bo_stream that created it, or a newer one.",
        )
    return True


def _create_tables(connection: Connection) -> None:
    """Create the tables in a writer's transaction, unless another process has."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(LOCK)))
    if not has_tables(connection):
        _metadata.create_all(connection)
        connection.execute(insert(_layout).values(version=VERSION))


# -- checksums -------------------------------------------------------------------------------------


def _sealed(campaign: str, number: int, contents: Mapping[str, Any]) -> dict[str, Any]:
    """An event, or with the number 0 the settings, with its checksum.

    Raises:
        InputError: for contents that are not plain data.
    """
    try:
        return {**contents, CHECKSUM: _digest(campaign, number, contents)}
    except TypeError as error:
        part = _not_plain(contents.get("settings", contents))
        remedy = f"Give a callable for the {part}, and give it again to Campaign.resume"
        if part == "space":
            remedy = "Name places by texts or numbers: table.index = table.index.astype(str)"
        raise InputError(
            "plain data in a store: texts, numbers, lists and tables",
            f"{error}, in {part}",
            f"{remedy}; or leave out the store.",
        ) from error


def _not_plain(contents: Mapping[str, Any]) -> str | None:
    """The first part that is not plain data."""
    for part, value in contents.items():
        try:
            json.dumps(value)
        except TypeError:
            return part
    return None


def is_sealed(stored: object) -> bool:
    """Whether stored contents have a checksum."""
    return isinstance(stored, Mapping) and CHECKSUM in stored


def unsealed(campaign: str, number: int, stored: object, required: bool) -> dict[str, Any] | None:
    """Contents without their checksum; None if they are damaged.

    Args:
        campaign: Name of the campaign.
        number: Number of the event; 0 for the settings.
        stored: What was read.
        required: Whether contents without a checksum are damaged.
    """
    if not isinstance(stored, Mapping):
        return None
    contents = {name: value for name, value in stored.items() if name != CHECKSUM}
    if CHECKSUM not in stored:
        return None if required else contents
    return contents if stored[CHECKSUM] == _digest(campaign, number, contents) else None


def _digest(campaign: str, number: int, contents: Mapping[str, Any]) -> str:
    plain = json.dumps([campaign, number, contents], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()[:32]


def _checksum(number: int, about: dict[str, Any], model: bytes) -> str:
    """SHA-256 of the contents of a snapshot."""
    plain = json.dumps([number, about], sort_keys=True)
    return hashlib.sha256(plain.encode() + b"\0" + model).hexdigest()


# -- Ctrl-C ----------------------------------------------------------------------------------------


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Raise the `KeyboardInterrupt` of Ctrl-C inside the block at its end.

    Where Ctrl-C is ignored it stays so. Python handles signals in the main thread only, so that
    there is nothing to defer in other threads.
    """
    before = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or before in (signal.SIG_IGN, None):
        yield
        return
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if received:
        raise KeyboardInterrupt
