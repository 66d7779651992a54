"""`check` says what is damaged in a store, and saves the rest."""

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
        assert bo("check", where) == (0, "oven: 2 events, 3 trials, whole\n", "")


def test_a_damaged_store(store: Path, bo) -> None:
    alter(f"sqlite:///{store}", "UPDATE events SET payload = 'x' WHERE number = 2")
    code, _, err = bo("status", "oven.toml")
    assert code == 2 and err.count("\n") == 1
    assert "events 2 of 2" in err and "outcomes of trials 0, 1, 2" in err and "check" in err
    code, out, err = bo("check", "oven.db")
    assert (code, err) == (1, "") and "events 2 of 2" in out and "--salvage NEW.db" in out
    code, out, err = bo("check", "oven.db", "--salvage", "new.db")
    assert (code, err) == (0, "") and "Wrote new.db." in out
    assert "0 told, 3 running" in bo("status", "new.db")[1]
    code, _, err = bo("check", "oven.db", "--salvage", "new.db")
    assert code == 2 and "exists already" in err


def test_lost_settings_are_those_of_the_configuration(store: Path, bo) -> None:
    data, size = bytearray(store.read_bytes()), 4096
    page = data.find(b'"restandardise"') // size * size
    data[page : page + size] = bytes(range(256)) * (size // 256)
    store.write_bytes(data)
    assert bo("status", "oven.toml")[0] == 2
    code, out, err = bo("check", "oven.db", "--salvage", "none.db")
    assert (code, err) == (0, "") and "its settings are lost" in out and "CONFIG" in out
    code, out, err = bo("check", "oven.toml", "--salvage", "new.db")
    assert (code, err) == (0, "") and "settings are lost" not in out and "Wrote new.db." in out
    assert "3 told" in bo("status", "new.db")[1]


def test_what_is_no_store(tmp_path: Path, bo) -> None:
    assert "There is no store" in bo("check", "none.db")[2]
    (tmp_path / "text.db").write_text("pressure,temperature\n" * 100)
    code, _, err = bo("check", "text.db")
    assert code == 2 and "not a database" in err
