"""Databases for the tests of stores: a file of SQLite, and PostgreSQL where it is installed."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from glob import glob
from pathlib import Path
from uuid import uuid4

import pytest


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database with nothing in it."""
    if request.param == "sqlite":
        pytest.importorskip("sqlalchemy")
        return f"sqlite:///{tmp_path}/store.db"
    return request.getfixturevalue("new_postgres")()


@pytest.fixture(scope="session")
def new_postgres() -> Iterator[Callable[[], str]]:
    """What makes a database on a PostgreSQL server that lives as long as the tests."""
    psycopg = pytest.importorskip("psycopg")
    pytest.importorskip("sqlalchemy")
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL's initdb and pg_ctl are not installed")
    user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
    home = Path(tempfile.mkdtemp(prefix="postgres"))
    if user:
        shutil.chown(home, user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def run(program: str, *options: str) -> None:
        subprocess.run(
            [programs / program, "-D", home / "data", *options],
            check=True,
            user=user,
            cwd=home,
            stdout=subprocess.DEVNULL,
            timeout=60,
        )

    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
    try:
        run("initdb", "-U", "tests", "-A", "trust", "-E", "UTF8", "--locale=C")
        run("pg_ctl", "-w", "-l", str(home / "log"), "-o", settings, "start")
        server = f"postgresql://tests@127.0.0.1:{port}"

        def new() -> str:
            name = f"store_{uuid4().hex}"
            with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            return f"{server}/{name}"

        try:
            yield new
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _programs() -> Path | None:
    """Folder of PostgreSQL's programs; Debian keeps them off the path."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    folders += sorted(map(Path, glob("/usr/lib/postgresql/*/bin")), reverse=True)
    return next((f for f in folders if (f / "initdb").exists() and (f / "pg_ctl").exists()), None)
