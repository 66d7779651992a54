"""`check` says what is damaged in a store."""

import sqlite3
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from tests.bo_stream.campaign.runs import alter


@pytest.fixture
def store(tmp_path: Path, bo, oven: Path) -> Path:
    assert bo("suggest", "oven.toml", "-q", 3, "--csv", "next.csv")[0] == 0
    text = Path("next.csv").read_text().replace(",\n", ",1.5\n")
    Path("next.csv").write_text(text)
    assert bo("tell", "oven.toml", "next.csv")[0] == 0
    return tmp_path / "oven.db"


def test_a_whole_store(store: Path, bo) -> None:
    for where in ("oven.toml", "oven.db"):
        assert bo("check", where) == (0, "oven: whole\n", "")


def test_a_damaged_store(store: Path, bo) -> None:
    alter(f"sqlite:///{store}", "UPDATE events SET payload = 'x' WHERE number = 2")
    code, _, err = bo("status", "oven.toml")
    assert code == 2 and err.count("\n") == 1
    assert "damaged or lost event 2" in err and "check" in err
    code, out, err = bo("check", "oven.db")
    assert (code, err) == (1, "") and "oven: Expected" in out and "damaged or lost event 2" in out


def test_a_store_with_a_damaged_page(store: Path, bo) -> None:
    connection = sqlite3.connect(store)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    index = "SELECT rootpage FROM sqlite_master WHERE type = 'index'"
    page = connection.execute(index).fetchall()[-1][0]
    connection.close()
    with store.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\x0d" * 40)
    code, out, err = bo("check", "oven.db")
    assert (code, err) == (1, "") and f"Page {page}" in out and "Restore the store" in out


def test_a_database_without_campaigns_is_none(tmp_path: Path, bo) -> None:
    (tmp_path / "empty.db").touch()
    code, out, err = bo("check", "empty.db")
    assert (code, out) == (2, "") and "a store with campaigns; got none" in err


def test_what_is_no_store(tmp_path: Path, bo) -> None:
    assert "There is no store" in bo("check", "none.db")[2]
    (tmp_path / "text.db").write_text("pressure,temperature\n" * 100)
    code, _, err = bo("check", "text.db")
    assert code == 2 and "not a database" in err
