"""Connections to SQLite or PostgreSQL by URL.

Commits to SQLite are on disk when they return (write-ahead log, ``synchronous=FULL``). Writers lock
the database with their first statement (``BEGIN IMMEDIATE``) and wait for each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError

from bo_stream.errors import InputError, StateError

__all__ = ["TIMEOUT", "enable_wal", "explain_errors", "for_writing", "make", "may_exist", "parse"]

TIMEOUT = 60.0
"""Seconds that a writer waits for the others."""

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


def make(url: URL, timeout: float = TIMEOUT) -> Engine:
    """The engine of a database; it connects when it is first used.

    Args:
        url: As `parse` returned it.
        timeout: Seconds that a writer waits for the others, in SQLite.

    Raises:
        ImportError: if the driver is not installed; the message names the extra.
    """
    sqlite = url.get_backend_name() == "sqlite"
    try:
        if not sqlite:
            return create_engine(url, pool_pre_ping=True)
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


@contextmanager
def explain_errors(url: URL) -> Iterator[None]:
    """Raise errors of a database as a `StateError` that names the remedy."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        message = " ".join(str(cause).split())
        shown = url.render_as_string(hide_password=True)
        raise StateError(f"a database at {shown}", message, _remedy(message)) from error


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
        return "Correct the URL, or restore the file from a copy; it was not changed."
    if "malformed" in message:
        return (
            "The file is damaged: restore it from a copy, or recover what is left with"
            " `sqlite3 FILE .recover`."
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
        "Correct the URL.",
    )
