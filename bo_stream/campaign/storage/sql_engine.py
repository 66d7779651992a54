"""Connections to SQLite or PostgreSQL by URL.

Commits to SQLite are on disk when they return (write-ahead log, ``synchronous=FULL``). Writers lock
the database with their first statement (``BEGIN IMMEDIATE``) and wait for each other.

What was committed last may be in the log (``lab.db-wal``) alone. It is moved to the file often and
at close (`checkpoint`). Until then the file's ``user_version`` is 1, so that a copy of the file
without its log is recognised.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError

from bo_stream.errors import BoStreamError, InputError, StateError

__all__ = [
    "TIMEOUT",
    "checkpoint",
    "damaged",
    "enable_wal",
    "explain_damage",
    "explain_errors",
    "has_log",
    "is_writable",
    "make",
    "mark",
    "may_exist",
    "missing_log",
    "parse",
    "structure",
    "writing",
]

TIMEOUT = 60.0
"""Seconds that a writer waits for the others."""

BEHIND = 1
"""``user_version`` of an SQLite file whose log has more than it has itself."""

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
        plain = parsed.drivername in ("postgresql", "postgres")
        return parsed.set(drivername="postgresql+psycopg") if plain else parsed
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


def may_exist(url: URL) -> bool:
    """Whether there may be a database. Looking for a missing SQLite file does not create it."""
    return url.get_backend_name() != "sqlite" or os.path.exists(url.database or "")


def is_writable(url: URL) -> bool:
    """Whether an SQLite file and its folder may be written, or the database is another one."""
    if url.get_backend_name() != "sqlite" or not os.path.exists(url.database or ""):
        return True
    path = Path(url.database or "")
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def has_log(url: URL) -> bool:
    """Whether there is a write-ahead log beside an SQLite file."""
    log = Path(f"{url.database}-wal")
    return log.exists() and log.stat().st_size > 0


def make(url: URL, timeout: float = TIMEOUT, readonly: bool = False) -> Engine:
    """The engine of a database; it connects when it is first used.

    Args:
        url: As `parse` returned it.
        timeout: Seconds that a writer waits for the others, in SQLite.
        readonly: Whether an SQLite file is opened for reading only.

    Raises:
        ImportError: if the driver is not installed; the message names the extra.
    """
    if url.get_backend_name() == "sqlite":
        options: dict[str, Any] = {"connect_args": {"timeout": timeout}}
        if readonly:
            options = {"creator": partial(_connect_for_reading, url, timeout)}
        engine = create_engine(url, **options)
        event.listen(engine, "connect", _configure)
        return engine
    try:
        return create_engine(url, pool_pre_ping=True)
    except ImportError as error:
        raise ImportError(
            "A store on PostgreSQL needs psycopg: pip install 'bo_stream[postgres]'."
        ) from error


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that locks an SQLite database from its start."""
    with engine.begin() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection


def enable_wal(engine: Engine) -> None:
    """Enable the write-ahead log of an SQLite file, permanently; other processes may as well."""
    if engine.dialect.name != "sqlite":
        return
    deadline = time.monotonic() + TIMEOUT
    with engine.connect() as connection:
        while True:
            try:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                return
            except OperationalError as error:  # SQLite itself does not wait for this one
                if "locked" not in str(error.orig) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


def missing_log(connection: Connection) -> str | None:
    """What is wrong with an SQLite file that had no log beside it; None if it has everything."""
    if not _is_behind(connection):
        return None
    file = Path(connection.engine.url.database or "")
    return (
        f"{file} was copied without its file {file.name}-wal, in which its latest trials are. Copy "
        "both files, or copy one after the program that has it open has ended."
    )


def _is_behind(connection: Connection) -> bool:
    sqlite = connection.dialect.name == "sqlite"
    return sqlite and connection.exec_driver_sql("PRAGMA user_version").scalar() == BEHIND


def mark(connection: Connection, behind: bool) -> bool:
    """Let an SQLite file say whether its log has more than it; whether that is new."""
    if connection.dialect.name != "sqlite" or _is_behind(connection) is behind:
        return False
    connection.exec_driver_sql(f"PRAGMA user_version={BEHIND if behind else 0}")
    return True


def checkpoint(engine: Engine, patience: float = 0.0) -> None:
    """Move what is in the log of an SQLite file to the file; where that fails, it stays there.

    Args:
        engine: The engine.
        patience: Seconds that other writers are waited for, so that the file says that it is
            complete. Zero: the latest transaction has said so.
    """
    if engine.dialect.name != "sqlite":
        return
    with suppress(SQLAlchemyError), engine.connect() as connection:  # such as a full disk
        if patience:
            connection.exec_driver_sql(f"PRAGMA busy_timeout={1000 * patience:.0f}")
            mark(connection, behind=False)
        connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)")


@contextmanager
def explain_errors(url: URL) -> Iterator[None]:
    """Raise errors of a database as a `StateError` that names the remedy."""
    try:
        yield
    except (SQLAlchemyError, UnicodeDecodeError) as error:  # the latter in a message of SQLite
        cause = error.orig if isinstance(error, DBAPIError) else error
        message = " ".join(str(cause).split())
        shown = url.render_as_string(hide_password=True)
        remedy = next(remedy for words, remedy in REMEDIES.items() if words in message)
        raise StateError(f"a database at {shown}", message, remedy) from error


@contextmanager
def explain_damage() -> Iterator[None]:
    """Raise errors of decoding what was read as a `StateError`."""
    try:
        yield
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(error, BoStreamError):
            raise
        raise damaged(f"contents that cannot be decoded ({error})") from error


def structure(connection: Connection) -> str:
    """What is wrong with the pages of an SQLite file; empty if nothing is.

    A damaged page may read as one with fewer rows, so that this is asked before a file is used.
    """
    if connection.dialect.name != "sqlite":
        return ""
    try:
        rows = connection.exec_driver_sql("PRAGMA quick_check(1)").scalars().all()
    except SQLAlchemyError as error:
        rows = [str(getattr(error, "orig", error))]
    return "" if rows == ["ok"] else " ".join(" ".join(rows).split())


def damaged(what: str) -> StateError:
    """The error of reading something that is not as it was written."""
    return StateError(
        "a store whose events and settings are whole",
        what,
        "The file was not changed. Restore it from a copy; `bo-stream check STORE` lists what is "
        "damaged, and `sqlite3 FILE .recover` recovers the rest.",
    )


def _connect_for_reading(url: URL, timeout: float) -> sqlite3.Connection:
    """A connection that writes nothing, not even beside the file where that is not possible."""
    path = Path(url.database or "")
    alone = not os.access(path.parent, os.W_OK) and not has_log(url)
    place = f"file:{quote(str(path))}?{'immutable=1' if alone else 'mode=ro'}"
    return sqlite3.connect(place, timeout=timeout, uri=True, check_same_thread=False)


def _configure(connection: sqlite3.Connection, record: object) -> None:
    """Configure a new connection to SQLite: explicit transactions, durable commits."""
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _no_url(got: str) -> InputError:
    return InputError(
        "a URL such as 'sqlite:///oven.db' or 'postgresql://user@host/database'",
        got,
        "Correct the URL. Of a file, give pathlib.Path('oven.db').",
    )
