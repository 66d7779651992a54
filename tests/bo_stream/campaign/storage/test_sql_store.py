"""A store in a database keeps what it is given, and refuses what it cannot read."""

import multiprocessing
import os
import pickle
import sqlite3
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")


from bo_stream import Box, Campaign
from bo_stream.campaign.storage.sql_store import Database
from bo_stream.errors import InputError, StateError
from tests.bo_stream.campaign.runs import alter

SETTINGS = {"version": 1, "seed": 3, "box": [0.1, 1e-300], "words": "grün"}
EVENTS = [{"kind": "told", "outcomes": {"y": [[i, 0.1 * i, None]]}, "trials": []} for i in range(5)]


def begun(url: str, **options: Any) -> Database:
    database = Database(url, **options)
    database.create("oven", SETTINGS)
    with database.transaction("oven") as transaction:
        for event in EVENTS:
            transaction.append(event)
    return database


# -- what was written is there --------------------------------------------------------------------


def test_another_process_finds_what_was_written(url: str) -> None:
    begun(url)
    other = Database(url)
    assert other.names() == ["oven"]
    assert other.settings("oven") == SETTINGS
    assert other.settings("kiln") is None
    assert other.events_since("oven", 0) == EVENTS
    assert other.events_since("oven", 3) == EVENTS[3:]
    assert other.events_since("oven", 9) == []


def test_a_transaction_sees_all_events(url: str) -> None:
    database = begun(url)
    with database.transaction("oven") as transaction:
        transaction.append({"kind": "asked"})
        assert transaction.events_since(4) == [EVENTS[4], {"kind": "asked"}]


def test_a_name_is_given_once(url: str) -> None:
    database = begun(url)
    with pytest.raises(StateError, match="a new name.*'oven'"):
        Database(url).create("oven", {})
    assert database.settings("oven") == SETTINGS


def test_nothing_is_written_for_a_campaign_that_was_not_begun(url: str) -> None:
    database = begun(url)
    with pytest.raises(StateError, match="'kiln'"), database.transaction("kiln"):
        pass
    with pytest.raises(StateError, match="'kiln'"):
        database.save_snapshot("kiln", {}, b"")
    assert database.events_since("kiln", 0) == []


def test_looking_for_a_campaign_makes_no_file(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/typo.db")
    assert database.settings("oven") is None
    assert database.names() == [] and database.events_since("oven", 0) == []
    assert database.newest_snapshot("oven") == 0 and not list(database.snapshots("oven"))
    with pytest.raises(StateError, match="Create it first"), database.transaction("oven"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_file_stays_where_it_is_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    database = begun("sqlite:///oven.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    database.close()
    assert database.events_since("oven", 0) == EVENTS
    assert not list((tmp_path / "elsewhere").iterdir())


# -- durability -----------------------------------------------------------------------------------


def test_commits_of_sqlite_are_on_the_disk_when_they_return(tmp_path: Path) -> None:
    database = begun(f"sqlite:///{tmp_path}/oven.db")
    with database._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 60_000


def test_closing_leaves_one_file(tmp_path: Path) -> None:
    database = begun(f"sqlite:///{tmp_path}/oven.db")
    database.close()
    assert [path.name for path in tmp_path.iterdir()] == ["oven.db"]
    assert database.events_since("oven", 0) == EVENTS  # and it opens again by itself


def test_a_store_that_nobody_holds_is_closed(tmp_path: Path) -> None:
    begun(f"sqlite:///{tmp_path}/oven.db")
    assert [path.name for path in tmp_path.iterdir()] == ["oven.db"]


# -- several at once ------------------------------------------------------------------------------


def test_writers_wait_for_each_other(url: str) -> None:
    database = begun(url)

    def write(own: Database) -> None:
        for _ in range(20):
            with own.transaction("oven") as transaction:
                transaction.append({"count": len(transaction.events_since(0))})

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, [database, *(Database(url) for _ in range(3))]))
    counts = [event["count"] for event in database.events_since("oven", len(EVENTS))]
    assert counts == list(range(len(EVENTS), len(EVENTS) + 80))


def test_several_may_make_the_tables_at_once(url: str) -> None:
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda i: Database(url).create(f"oven {i}", SETTINGS), range(6)))
    assert Database(url).names() == [f"oven {i}" for i in range(6)]


def test_pickled_it_opens_the_same_database(url: str) -> None:
    database = begun(url, snapshot_every=7)
    again = pickle.loads(pickle.dumps(database))
    assert again.events_since("oven", 0) == EVENTS and again.snapshot_every == 7


def test_a_forked_child_makes_connections_of_its_own(url: str) -> None:
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("this system does not fork")
    database = begun(url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            with database.transaction("oven") as transaction:
                transaction.append({"kind": "child"})
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    with database.transaction("oven") as transaction:
        transaction.append({"kind": "parent"})
    assert [e["kind"] for e in database.events_since("oven", len(EVENTS))] == ["child", "parent"]


# -- snapshots ------------------------------------------------------------------------------------


def test_the_two_newest_snapshots_are_kept(url: str) -> None:
    database = begun(url)
    numbers = [database.save_snapshot("oven", {"told": i, "x": 0.1}, bytes([i])) for i in range(5)]
    assert numbers == [1, 2, 3, 4, 5]
    assert database.newest_snapshot("oven") == 5
    found = list(Database(url).snapshots("oven"))
    assert [(s.number, s.about, s.model) for s in found] == [
        (5, {"told": 4, "x": 0.1}, b"\4"),
        (4, {"told": 3, "x": 0.1}, b"\3"),
    ]


@pytest.mark.parametrize(
    "damage",
    [
        "model = CAST('abc' AS {bytes})",
        "about = '{{\"told\": 1}}'",
        "about = '{{\"told\": '",
        "version = 2",
    ],
)
def test_a_damaged_snapshot_is_passed_over(url: str, damage: str) -> None:
    database = begun(url)
    for told in (10, 20):
        database.save_snapshot("oven", {"told": told}, b"model")
    damage = damage.format(bytes="BLOB" if "sqlite" in url else "BYTEA")
    if "postgresql" in url and damage == "about = '{\"told\": '":
        pytest.skip("PostgreSQL keeps JSON whole by itself")
    alter(url, f"UPDATE snapshots SET {damage} WHERE number = 2")
    with pytest.warns(UserWarning, match="Snapshot 2 of campaign 'oven'.*No outcome is lost"):
        found = list(database.snapshots("oven"))
    assert [s.about for s in found] == [{"told": 10}]


# -- what cannot be a store -----------------------------------------------------------------------


def test_a_store_of_a_newer_version_is_refused(url: str) -> None:
    begun(url)
    alter(url, "UPDATE bo_stream_store SET version = 7")
    with pytest.raises(StateError, match="version 1; got one of version 7.*release"):
        Database(url)


def test_tables_of_something_else_are_left_alone(url: str) -> None:
    alter(url, "CREATE TABLE events (id INTEGER)")
    with pytest.raises(StateError, match="another program has the tables events"):
        Database(url)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "oven.db"
    file.write_text("pressure,temperature\n" * 100)
    with pytest.raises(StateError, match="not a database.*was not changed"):
        Database(f"sqlite:///{file}")
    assert file.read_text() == "pressure,temperature\n" * 100


def test_another_program_s_database_is_not_touched_by_looking(tmp_path: Path) -> None:
    file = tmp_path / "music.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()
    before = file.read_bytes()
    assert Database(f"sqlite:///{file}").names() == []
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("oven.db", "a URL such as 'sqlite:///oven.db'"),
        ("mysql://host/oven", "a URL of mysql"),
        ("sqlite://", "in memory only"),
        ("sqlite:///:memory:", "in memory only"),
        (
            "sqlite:////no/such/folder/oven.db",
            "an existing folder for the file oven.db; got /no/such/folder",
        ),
    ],
)
def test_a_url_that_cannot_be_opened_is_refused(wrong: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Database(wrong)


def test_a_server_that_is_not_there_is_said_in_one_line_without_the_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StateError, match="Check the connection") as caught:
        Database("postgresql://me:secret@127.0.0.1:9/oven")
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"bo_stream\[postgres\]"):
        Database("postgresql://me@127.0.0.1/oven")


def test_a_lock_that_is_never_released_is_explained(tmp_path: Path) -> None:
    database = begun(f"sqlite:///{tmp_path}/oven.db", timeout=0.05)
    hog = sqlite3.connect(tmp_path / "oven.db", isolation_level=None)
    hog.execute("BEGIN IMMEDIATE")
    with (
        pytest.raises(StateError, match="locked.*try again"),
        database.transaction("oven") as transaction,
    ):
        transaction.append({"kind": "asked"})
    hog.close()
    assert database.events_since("oven", 0) == EVENTS


def test_a_path_is_the_file_of_a_database(tmp_path: Path) -> None:
    file = tmp_path / "lab.db"
    campaign = Campaign(Box({"x": (0.0, 1.0)}), store=file, seed=0)
    campaign.tell(campaign.ask().assign(y=1.0))
    assert Campaign.resume(file).trials()["y"].tolist() == [1.0]
    assert Campaign.resume(f"sqlite:///{file}", readonly=True).ledger.history.num_told == 1
