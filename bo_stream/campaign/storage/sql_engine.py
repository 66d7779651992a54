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
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError

from bo_stream.errors import BoStreamError, InputError, StateError

__all__ = [
    "COPY",
    "TIMEOUT",
    "checkpoint",
    "damaged",
    "enable_wal",
    "explain_damage",
    "explain_errors",
    "for_writing",
    "is_writable",
    "make",
    "mark",
    "may_exist",
    "missing_log",
    "parse",
    "structure",
    "without_log",
]

TIMEOUT = 60.0
"""Seconds that a writer waits for the others."""

DAMAGED = ("malformed", "no such table", "no such column", "unsupported file", "decode", "corrupt")
"""What SQLite says of a damaged file."""

BEHIND = 1
"""``user_version`` of an SQLite file whose log has more than it has itself."""

COPY = "Copy both files, or copy one after the program that has it open has ended."
"""The remedy for a file without its log."""

_BEGIN = "bo_stream_begin"


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


def log_of(url: URL) -> Path:
    """The write-ahead log of an SQLite file."""
    path = Path(url.database or "")
    return path.with_name(f"{path.name}-wal")


def without_log(url: URL) -> bool:
    """Whether an SQLite file that has a log while it is open has none: closed, or copied alone."""
    if url.get_backend_name() != "sqlite":
        return False
    try:
        if log_of(url).exists() and log_of(url).stat().st_size:
            return False
        with Path(url.database or "").open("rb") as file:
            return file.read(20)[18:] == b"\x02\x02"
    except OSError:
        return False


def make(url: URL, timeout: float = TIMEOUT, readonly: bool = False) -> Engine:
    """The engine of a database; it connects when it is first used.

    Args:
        url: As `parse` returned it.
        timeout: Seconds that a writer waits for the others, in SQLite.
        readonly: Whether an SQLite file is opened for reading only.

    Raises:
        ImportError: if the driver is not installed; the message names the extra.
    """
    sqlite = url.get_backend_name() == "sqlite"
    try:
        if not sqlite:
            return create_engine(url, pool_pre_ping=True)
        if readonly:
            engine = create_engine(url, creator=partial(_connect_for_reading, url, timeout))
        else:
            engine = create_engine(url, connect_args={"timeout": timeout})
    except ImportError as error:
        raise ImportError(
            "A store on PostgreSQL needs psycopg: pip install 'bo_stream[postgres]'."
        ) from error
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def for_writing(engine: Engine) -> Engine:
    """The same engine, whose transactions lock the database from their start."""
    return engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})


def enable_wal(engine: Engine) -> None:
    """Enable the write-ahead log of an SQLite file, permanently; other processes may as well."""
    if engine.dialect.name != "sqlite":
        return
    deadline = time.monotonic() + TIMEOUT
    with engine.connect().execution_options(**{_BEGIN: ""}) as connection:
        while True:
            try:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                return
            except OperationalError as error:  # SQLite itself does not wait for this one
                if "locked" not in str(error.orig) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


def missing_log(connection: Connection, url: URL) -> str | None:
    """What is wrong with an SQLite file that was copied without its log; None if nothing is.

    Args:
        connection: A connection to it.
        url: Its URL, for which `without_log` was true before the connection was made.
    """
    log, file = log_of(url).name, url.database
    if is_behind(connection):
        return f"{file} was copied without its file {log}, in which its latest trials are."
    tables = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar()
    return None if tables else f"{file} is empty. It may have been copied without its file {log}."


def is_behind(connection: Connection) -> bool:
    """Whether an SQLite file says that its log has more than it has itself."""
    sqlite = connection.dialect.name == "sqlite"
    return sqlite and connection.exec_driver_sql("PRAGMA user_version").scalar() == BEHIND


def mark(connection: Connection, behind: bool) -> bool:
    """Let an SQLite file say whether its log has more than it; whether that is new."""
    if connection.dialect.name != "sqlite" or is_behind(connection) is behind:
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
    try:
        with engine.connect().execution_options(**{_BEGIN: ""}) as connection:
            if patience:
                connection.exec_driver_sql(f"PRAGMA busy_timeout={1000 * patience:.0f}")
                mark(connection, behind=False)
            connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)")
    except SQLAlchemyError:  # such as a full disk
        return


@contextmanager
def explain_errors(url: URL) -> Iterator[None]:
    """Raise errors of a database as a `StateError` that names the remedy."""
    try:
        yield
    except (SQLAlchemyError, UnicodeDecodeError) as error:  # the latter in a message of SQLite
        cause = error.orig if isinstance(error, DBAPIError) else error
        message = " ".join(str(cause).split())
        shown = url.render_as_string(hide_password=True)
        raise StateError(f"a database at {shown}", message, _remedy(message)) from error


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
    alone = not os.access(path.parent, os.W_OK) and not log_of(url).exists()
    mode = "immutable=1" if alone else "mode=ro"
    place = f"file:{quote(str(path))}?{mode}"
    return sqlite3.connect(place, timeout=timeout, uri=True, check_same_thread=False)


def _configure(connection: Any, record: object) -> None:
    """Configure a new connection to SQLite: explicit transactions, durable commits."""
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begin(connection: Connection) -> None:
    statement = connection.get_execution_options().get(_BEGIN, "BEGIN")
    if statement:
        connection.exec_driver_sql(statement)


def _remedy(message: str) -> str:
    if "not a database" in message:
        return (
            "None of its trials can be read. Correct the URL, or restore the file from a copy; it "
            "was not changed."
        )
    if any(sign in message for sign in DAMAGED):
        return (
            "The file is damaged, and none of its trials can be read: restore it from a copy, or "
            "recover what is left with `sqlite3 FILE .recover`."
        )
    if "locked" in message:
        return "Another program has locked it. End that program, and try again."
    if "readonly" in message or "unable to open" in message:
        return "Check that the file and its folder are writable."
    if "full" in message:
        return "Free some disk space and try again; what was told before is kept."
    return "Check the connection and try again: an outcome that is told twice is recorded once."


def _no_url(got: str) -> InputError:
    return InputError(
        "a URL such as 'sqlite:///oven.db' or 'postgresql://user@host/database'",
        got,
        "Correct the URL. Of a file, give pathlib.Path('oven.db').",
    )
