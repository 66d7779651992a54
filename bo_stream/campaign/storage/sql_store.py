"""Campaigns in a database: SQLite or PostgreSQL, by URL; and checking one.

Rows of events are only added. The two newest snapshots are kept, so that their size does not grow
with the number of fits. Events, settings and snapshots have checksums, so that damage is noticed;
those of earlier releases may have none.

Commits to SQLite are on disk when they return (write-ahead log, ``synchronous=FULL``), and in the
file itself (``wal_autocheckpoint=1``), so that a copy of the file has them. Writers lock the
database with their first statement (``BEGIN IMMEDIATE``) and wait for each other.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import (
    JSON,
    URL,
    Column,
    Connection,
    Engine,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    Select,
    String,
    Table,
    bindparam,
    create_engine,
    delete,
    func,
    insert,
    inspect,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from bo_stream.campaign.history import Event
from bo_stream.campaign.storage.store import SNAPSHOT_EVERY, Snapshot, Transaction
from bo_stream.errors import DamagedError, InputError, StateError, needs_extra

__all__ = ["Database", "check_store", "defer_interrupts", "parse"]

TIMEOUT = 60.0
"""Seconds that a writer waits for the others."""

KEPT = 2
"""Snapshots kept of a campaign: the newest one, and one in case it is damaged."""

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
SNAPSHOTS = (
    select(snapshots)
    .where(snapshots.c.campaign == bindparam("name"))
    .order_by(snapshots.c.number.desc())
)
LAST_SNAPSHOT = SNAPSHOTS.with_only_columns(snapshots.c.number).limit(1)
LOCK_CAMPAIGN = (
    select(campaigns.c.name).where(campaigns.c.name == bindparam("name")).with_for_update()
)


class Database:
    """Campaigns in a database, which any number of processes may use at once.

    It may be pickled and used after a fork: every process makes its own connections.

    Args:
        url: ``sqlite:///oven.db`` (a file, created with the first campaign) or
            ``postgresql://...``.
        snapshot_every: Outcomes after which a snapshot is saved even without a fit.
        timeout: Seconds that a writer waits for the others, in SQLite.
        readonly: Whether nothing may be written, as where the file is not writable.

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
        timeout: float = TIMEOUT,
        readonly: bool = False,
    ) -> None:
        self._url = parse(url)
        self.snapshot_every, self._timeout = snapshot_every, timeout
        file = self._url.get_backend_name() == "sqlite"
        self._path = Path(self._url.database or "") if file else None
        self.readonly = readonly or not _is_writable(self._path)
        self._engine, self._process = _engine(self._url, timeout, self.readonly), os.getpid()
        self._tables_seen = False
        weakref.finalize(self, _close, self._engine, self._process)
        self._has_tables()

    def __reduce__(self) -> tuple[Any, ...]:
        again = partial(
            type(self),
            snapshot_every=self.snapshot_every,
            timeout=self._timeout,
            readonly=self.readonly,
        )
        return again, (self._url.render_as_string(hide_password=False),)

    def close(self) -> None:
        """Close the connections; they are made again when they are needed."""
        self._engine.dispose()

    # -- campaigns -------------------------------------------------------------------------------

    def create(self, name: str, settings: dict[str, Any]) -> None:
        """Create a campaign."""
        row = {"name": name, "settings": _sealed(name, 0, settings)}
        new = not self._has_tables()
        with self._writing() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(LOCK)))
            if not _tables_exist(connection):  # otherwise another process has created them
                _metadata.create_all(connection)
                connection.execute(insert(_layout).values(version=VERSION))
            if connection.scalar(LOCK_CAMPAIGN, {"name": name}) is not None:
                raise StateError("a new name", repr(name), "Choose another name.")
            connection.execute(insert(campaigns).values(row))
        if new and self._engine.dialect.name == "sqlite":
            # for good; it fails while others write, one of which will do it
            with suppress(SQLAlchemyError), self._engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")

    def settings(self, name: str) -> dict[str, Any] | None:
        """Settings of a campaign."""
        for (stored,) in self._read(select(campaigns.c.settings).where(campaigns.c.name == name)):
            settings = _unsealed(name, 0, stored)
            if settings is None:
                raise _damaged(f"damaged settings of campaign {name!r}")
            return settings
        return None

    def names(self) -> list[str]:
        """Names of all campaigns."""
        return [name for (name,) in self._read(select(campaigns.c.name).order_by(campaigns.c.name))]

    # -- events ----------------------------------------------------------------------------------

    def events_since(self, name: str, count: int) -> list[Event]:
        """Events after the first ``count`` ones.

        Raises:
            StateError: if one of them is damaged or lost.
        """
        return _whole(name, count, self._read(EVENTS_SINCE, name=name, count=count))

    @contextmanager
    def transaction(self, name: str) -> Iterator[Transaction]:
        """An exclusive transaction, durable when it has ended."""
        with self._locked(name) as connection:

            def events_since(count: int) -> list[Event]:
                keys = {"name": name, "count": count}
                return _whole(name, count, connection.execute(EVENTS_SINCE, keys))

            def append(event: Event) -> None:
                number = (connection.scalar(LAST_EVENT, {"name": name}) or 0) + 1
                payload = _sealed(name, number, event)
                row = {"campaign": name, "number": number, "payload": payload}
                connection.execute(insert(events), row)

            yield Transaction(events_since, append)

    # -- snapshots -------------------------------------------------------------------------------

    def save_snapshot(self, name: str, about: dict[str, Any], model: bytes) -> int:
        """Save a snapshot, and delete all but the one before it; nothing in a read-only store."""
        if self.readonly:
            return self.newest_snapshot(name)
        with self._locked(name) as connection:
            number = (connection.scalar(LAST_SNAPSHOT, {"name": name}) or 0) + 1
            old = snapshots.c.number <= number - KEPT
            connection.execute(delete(snapshots).where(snapshots.c.campaign == name, old))
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
        return sum(number for (number,) in self._read(LAST_SNAPSHOT, name=name))

    def snapshots(self, name: str) -> Iterator[Snapshot]:
        """Undamaged snapshots, the newest first."""
        for row in self._read(SNAPSHOTS, name=name):
            whole = row.checksum == _checksum(row.number, row.about, row.model)
            if whole and row.version == VERSION:
                yield Snapshot(row.number, row.about, row.model)
                continue
            warnings.warn(
                f"Snapshot {row.number} of campaign {name!r} is damaged, or of another release. No "
                "outcome is lost: the surrogate is restored from an earlier snapshot or built "
                "again from all outcomes.",
                stacklevel=2,
            )

    # -- connections -----------------------------------------------------------------------------

    def _has_tables(self) -> bool:
        """Whether the tables exist; a database that cannot be a store is refused."""
        if self._process != os.getpid():  # after a fork, these connections are the parent's
            self._engine.dispose(close=False)
            self._process = os.getpid()
        if not self._tables_seen and (self._path is None or self._path.exists()):
            with _explain_errors(self._url), self._engine.connect() as connection:
                self._tables_seen = _tables_exist(connection)
                if self._tables_seen and connection.dialect.name == "sqlite":
                    # a damaged page may read as one with fewer rows
                    said = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalars().all()
                    if said != ["ok"]:
                        raise _damaged(" ".join(" ".join(said).split()))
        return self._tables_seen

    def _read(self, query: Select[Any], **keys: Any) -> Sequence[Row[Any]]:
        """What a query finds; nothing while there is no campaign at all."""
        if not self._has_tables():
            return []
        with _explain_errors(self._url), self._engine.connect() as connection:
            return connection.execute(query, keys).all()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction that locks an SQLite database from its start; Ctrl-C waits for its end."""
        if self.readonly:
            raise StateError(
                f"a store that may be written at {self._url.render_as_string(hide_password=True)}",
                "one that is opened for reading only",
                "Resume the campaign without readonly, or make the file and its folder writable.",
            )
        with defer_interrupts(), _explain_errors(self._url), self._engine.begin() as connection:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def _locked(self, name: str) -> Iterator[Connection]:
        """A transaction that locks a campaign."""
        missing = StateError("an existing campaign", repr(name), "Create it first.")
        if not self._has_tables():
            raise missing
        with self._writing() as connection:
            if connection.scalar(LOCK_CAMPAIGN, {"name": name}) is None:
                raise missing
            yield connection


# -- databases -------------------------------------------------------------------------------------

DAMAGED = (
    "The file is damaged, and none of its trials can be read: restore it from a copy, or recover "
    "what is left with `sqlite3 FILE .recover`."
)
UNWRITABLE = "Check that the file and its folder are writable."

REMEDIES = {
    "not a database": "None of its trials can be read. Correct the URL, or restore the file from a "
    "copy; it was not changed.",
    "malformed": DAMAGED,
    "no such table": DAMAGED,
    "no such column": DAMAGED,
    "unsupported file": DAMAGED,
    "decode": DAMAGED,
    "corrupt": DAMAGED,
    "locked": "Another program has locked it. End that program, and try again.",
    "readonly": UNWRITABLE,
    "unable to open": UNWRITABLE,
    "full": "Free some disk space and try again; what was told before is kept.",
    "": "Check the connection and try again: an outcome that is told twice is recorded once.",
}
"""What to do, by what a database says; the first that it has in its message."""


def parse(url: str) -> URL:
    """A URL that is valid in any working directory.

    Raises:
        InputError: for another kind of database, a missing folder, or no file.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise _no_url(repr(url)) from error
    if parsed.get_backend_name() in ("postgresql", "postgres"):
        driver_named = "+" in parsed.drivername
        return parsed if driver_named else parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() != "sqlite":
        raise _no_url(f"a URL of {parsed.get_backend_name()}")
    if not parsed.database or parsed.database == ":memory:":
        raise InputError(
            "a file of SQLite, such as 'sqlite:///oven.db'",
            repr(url),
            "Leave the store out for a campaign that is in memory only.",
        )
    path = Path(parsed.database).absolute()
    if not path.parent.is_dir():
        raise InputError(
            f"an existing folder for the file {path.name}",
            f"{path.parent}",
            "Create it or correct the URL; an absolute path has four slashes: sqlite:////data/a.db",
        )
    return parsed.set(database=str(path))


def _engine(url: URL, timeout: float, readonly: bool) -> Engine:
    """The engine of a database; it connects when it is first used.

    Args:
        url: As `parse` returned it.
        timeout: Seconds that a writer waits for the others, in SQLite.
        readonly: Whether an SQLite file is opened for reading only.

    Raises:
        ImportError: if the driver is not installed; the message names the extra.
    """
    if url.get_backend_name() == "sqlite":
        connect = partial(_connect, Path(url.database or ""), timeout, readonly)
        return create_engine(url, creator=connect, json_deserializer=_decoded)
    with needs_extra("postgres"):
        return create_engine(url, pool_pre_ping=True)


def _connect(path: Path, timeout: float, readonly: bool) -> sqlite3.Connection:
    """A connection with explicit transactions and durable commits.

    One for reading writes nothing, not even beside the file where that is not possible.
    """
    mode, log = "mode=ro" if readonly else "mode=rwc", Path(f"{path}-wal")
    if readonly and not os.access(path.parent, os.W_OK):
        mode = mode if log.exists() and log.stat().st_size else "immutable=1"
    place = f"file:{quote(str(path))}?{mode}"
    connection = sqlite3.connect(place, timeout, 0, None, check_same_thread=False, uri=True)
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    connection.executescript("PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=1")
    return connection


def _decoded(text: str) -> object:
    """What a text of JSON says; None if it is damaged."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return None


def _is_writable(path: Path | None) -> bool:
    """Whether an SQLite file and its folder may be written, or it is not there; of None, True."""
    if path is None or not path.exists():  # first: another may create it
        return True
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _close(engine: Engine, process: int) -> None:
    """Close connections, unless they are a parent process's."""
    engine.dispose(close=process == os.getpid())


@contextmanager
def _explain_errors(url: URL) -> Iterator[None]:
    """Raise errors of a database as a `StateError` that names the remedy."""
    try:
        yield
    except (SQLAlchemyError, UnicodeDecodeError) as error:  # the latter in a message of SQLite
        cause = error.orig if isinstance(error, DBAPIError) else error
        message = " ".join(str(cause).split())
        shown = url.render_as_string(hide_password=True)
        remedy = next(remedy for words, remedy in REMEDIES.items() if words in message)
        raise StateError(f"a database at {shown}", message, remedy) from error


def _no_url(got: str) -> InputError:
    return InputError(
        "a URL such as 'sqlite:///oven.db' or 'postgresql://user@host/database'",
        got,
        "Correct the URL. Of a file, give pathlib.Path('oven.db').",
    )


# -- tables ----------------------------------------------------------------------------------------


def _tables_exist(connection: Connection) -> bool:
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


def _unsealed(
    campaign: str, number: int, stored: object, required: bool = False
) -> dict[str, Any] | None:
    """Contents without their checksum; None if they are damaged.

    Args:
        campaign: Name of the campaign.
        number: Number of the event; 0 for the settings.
        stored: What was read. Earlier releases stored no checksums.
        required: Whether it has to have one, as the event before it has.
    """
    if not isinstance(stored, Mapping) or not stored:
        return None
    contents = {name: value for name, value in stored.items() if name != CHECKSUM}
    checksum = stored.get(CHECKSUM)
    whole = not required if checksum is None else checksum == _digest(campaign, number, contents)
    return contents if whole else None


def _whole(campaign: str, count: int, rows: Iterable[Any]) -> list[Event]:
    """The events of rows, which are those after the first ``count`` ones.

    Raises:
        StateError: if one of them is damaged or lost.
    """
    found, required = list[Event](), False
    for expected, (number, stored) in enumerate(rows, count + 1):
        event = _unsealed(campaign, number, stored, required)
        if event is None or number != expected:
            raise _damaged(f"a damaged or lost event {expected} of campaign {campaign!r}")
        required = CHECKSUM in stored
        found.append(event)
    return found


def _damaged(what: str) -> DamagedError:
    """The error of reading something that is not as it was written."""
    return DamagedError(
        "a store whose events and settings are whole",
        what,
        "The file was not changed. Restore it from a copy, or recover the rest: `sqlite3 FILE "
        ".recover`. `bo-stream check STORE` looks at each campaign.",
    )


def _digest(campaign: str, number: int, contents: Mapping[str, Any]) -> str:
    plain = json.dumps([campaign, number, contents], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()[:32]


def _checksum(number: int, about: dict[str, Any], model: bytes) -> str:
    """SHA-256 of the contents of a snapshot."""
    plain = json.dumps([number, about], sort_keys=True)
    return hashlib.sha256(plain.encode() + b"\0" + model).hexdigest()


# -- checking --------------------------------------------------------------------------------------


def check_store(url: str) -> dict[str, str]:
    """What is damaged of every campaign of a store, empty if nothing is; nothing is written.

    Raises:
        StateError: if the database cannot be read at all, or has no campaign.
    """
    try:
        store, found = Database(url, readonly=True), dict[str, str]()
    except DamagedError as error:
        return {"the database": str(error)}
    for name in store.names():
        found[name] = ""
        try:
            store.settings(name)
            store.events_since(name, 0)
        except StateError as error:
            found[name] = str(error)
    if not found:
        where = parse(url).render_as_string(hide_password=True)
        remedy = "Correct the URL, or restore the store from a copy."
        raise StateError("a store with campaigns", f"none at {where}", remedy)
    return found


# -- Ctrl-C ----------------------------------------------------------------------------------------


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Raise the `KeyboardInterrupt` of Ctrl-C inside the block at its end.

    Where Ctrl-C is ignored it stays so. Python handles signals in the main thread only, so that
    there is nothing to defer in other threads.
    """
    before, received = signal.getsignal(signal.SIGINT), list[int]()
    in_main_thread = threading.current_thread() is threading.main_thread()
    deferred = in_main_thread and before not in (signal.SIG_IGN, None)
    if deferred:
        signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        yield
    finally:
        if deferred:
            signal.signal(signal.SIGINT, before)
    if received:
        raise KeyboardInterrupt
