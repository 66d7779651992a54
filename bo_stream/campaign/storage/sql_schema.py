"""Tables of a store in a database, and the version of their layout."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    func,
    insert,
    inspect,
    select,
)

from bo_stream.errors import StateError

__all__ = [
    "VERSION",
    "campaigns",
    "checksum",
    "create_tables",
    "events",
    "has_tables",
    "snapshots",
]

VERSION = 1
"""Version of the layout; a release refuses stores of newer versions."""

LOCK = 0x626F5F73
"""Key of the PostgreSQL lock that is held while tables are created."""

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


def checksum(number: int, about: dict[str, Any], model: bytes) -> str:
    """SHA-256 of the contents of a snapshot."""
    plain = json.dumps([number, about], sort_keys=True)
    return hashlib.sha256(plain.encode() + b"\0" + model).hexdigest()


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


def create_tables(connection: Connection) -> None:
    """Create the tables in a writer's transaction, unless another process has."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(LOCK)))
    if not has_tables(connection):
        _metadata.create_all(connection)
        connection.execute(insert(_layout).values(version=VERSION))
