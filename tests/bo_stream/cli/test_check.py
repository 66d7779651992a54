"""`check` says what is damaged in a store."""

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


def test_what_is_no_store(tmp_path: Path, bo) -> None:
    assert "There is no store" in bo("check", "none.db")[2]
    (tmp_path / "text.db").write_text("pressure,temperature\n" * 100)
    code, _, err = bo("check", "text.db")
    assert code == 2 and "not a database" in err
