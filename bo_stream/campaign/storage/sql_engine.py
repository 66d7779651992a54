"""Connections to a database: SQLite in a file, or PostgreSQL, by URL.

On SQLite every commit is on the disk before it returns (write-ahead log, ``synchronous=FULL``), and
writers take turns from their first statement on (``BEGIN IMMEDIATE``), waiting rather than failing.
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

__all__ = ["address", "begin_log", "connected", "exists", "explained", "writers"]

PATIENCE = 60.0
"""Seconds that a writer waits for its turn."""

_BEGIN = "bo_stream_begin"


def address(url: str) -> URL:
    """A URL that can be opened from any working directory.

    Raises:
        InputError: for one of another database, of a folder that is not there, or of no file.
    """
    try:
        read = make_url(url)
    except ArgumentError as error:
        raise _no_url(repr(url)) from error
    if read.get_backend_name() in ("postgresql", "postgres"):
        plain = read.drivername in ("postgresql", "postgres")
        return read.set(drivername="postgresql+psycopg") if plain else read
    if read.get_backend_name() != "sqlite":
        raise _no_url(f"a URL of {read.get_backend_name()}")
    if not read.database or read.database == ":memory:":
        raise InputError(
            "a file of SQLite, such as 'sqlite:///oven.db'",
            repr(url),
            "Leave the store out for a campaign that is in memory only.",
        )
    path = Path(read.database).absolute()
    if not path.parent.is_dir():
        raise InputError(
            f"a folder for the file {path.name}",
            f"{path.parent}, which is not there",
            "Make it, or correct the URL; an absolute path has four slashes: sqlite:////data/a.db",
        )
    return read.set(database=str(path))


def exists(url: URL) -> bool:
    """Whether there may be a database: a file that is not there is not made by looking for it."""
    return url.get_backend_name() != "sqlite" or os.path.exists(url.database or "")


def connected(url: URL) -> Engine:
    """Connections to the database at an address; none is made yet.

    Raises:
        ImportError: if the driver is not installed; the message names the extra.
    """
    sqlite = url.get_backend_name() == "sqlite"
    try:
        if not sqlite:
            return create_engine(url, pool_pre_ping=True)
        engine = create_engine(url, connect_args={"timeout": PATIENCE})
    except ImportError as error:
        raise ImportError(
            "A store on PostgreSQL needs psycopg: pip install 'bo_stream[postgres]'."
        ) from error
    event.listen(engine, "connect", _prepared)
    event.listen(engine, "begin", _begun)
    return engine


def writers(engine: Engine) -> Engine:
    """The same connections, for those who will write."""
    return engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})


def begin_log(engine: Engine) -> None:
    """Turn on the write-ahead log of a file of SQLite, for good; others may do so at once."""
    if engine.dialect.name != "sqlite":
        return
    deadline = time.monotonic() + PATIENCE
    with engine.connect().execution_options(**{_BEGIN: ""}) as connection:
        while True:
            try:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                return
            except OperationalError as error:  # SQLite does not wait for this one by itself
                if "locked" not in str(error.orig) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


@contextmanager
def explained(url: URL) -> Iterator[None]:
    """What a database says about its troubles, as an error that names the remedy."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        why = " ".join(str(cause).split())
        shown = url.render_as_string(hide_password=True)
        raise StateError(f"a database at {shown}", why, _remedy(why)) from error


def _prepared(connection: Any, record: object) -> None:
    """A new connection to SQLite: no transaction but ours, and durable ones."""
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begun(connection: Connection) -> None:
    statement = connection.get_execution_options().get(_BEGIN, "BEGIN")
    if statement:
        connection.exec_driver_sql(statement)


def _remedy(why: str) -> str:
    if "not a database" in why:
        return "Correct the URL, or restore the file from a copy; it was left as it is."
    if "malformed" in why:
        return (
            "The file is damaged: restore it from a copy, or save what `sqlite3 FILE .recover`"
            " finds."
        )
    if "locked" in why:
        return f"Another program has held it for {PATIENCE:.0f} s; end that, and try again."
    if "readonly" in why or "unable to open" in why:
        return "See that the file and its folder may be written to."
    if "full" in why:
        return "Make room on the disk and try again; what was told before is kept."
    return "See that it is reachable, and try again: an outcome told twice is taken once."


def _no_url(got: str) -> InputError:
    return InputError(
        "a URL such as 'sqlite:///oven.db' or 'postgresql://user@host/database'",
        got,
        "Correct the URL.",
    )
