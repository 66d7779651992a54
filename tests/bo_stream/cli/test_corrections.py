"""Mistakes are mended on the command line."""

from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("sqlalchemy")


@pytest.fixture
def told(tmp_path: Path, bo, oven: Path) -> Path:
    """The oven after five outcomes, of which trial 2 has a wrong one."""
    assert bo("suggest", "oven.toml", "-q", 5, "--csv", "next.csv")[0] == 0
    frame = pd.read_csv("next.csv")
    frame["y"] = [5.0, 4.0, -300.0, 2.0, 1.0]
    frame.to_csv("next.csv", index=False)
    assert bo("tell", "oven.toml", "next.csv")[0] == 0
    return oven


def trials(bo) -> pd.DataFrame:
    assert bo("trials", "oven.toml", "--csv", "trials.csv")[0] == 0
    frame = pd.read_csv("trials.csv").set_index("trial")
    Path("trials.csv").unlink()
    return frame


def test_amend(told: Path, bo) -> None:
    Path("right.csv").write_text("trial,y\n2,3.0\n3,\n4,1.0\n")
    code, out, err = bo("amend", "oven.toml", "right.csv")
    assert (code, err) == (0, "")
    assert "Rows with a value: 2; without: 1." in out and "Corrected trials, by id: 2." in out
    assert trials(bo)["y"].tolist() == [5.0, 4.0, 3.0, 2.0, 1.0]
    code, out, _ = bo("amend", "oven.db", "right.csv")  # twice is once
    assert code == 0 and "Corrected trials, by id: none." in out


@pytest.mark.parametrize(
    ("text", "says"),
    [("y\n3.0\n", "Expected a column trial"), ("trial,y\n9,1.0\n", "Expected trial ids, 0 to 4")],
)
def test_amendments_that_do_not_fit(told: Path, bo, text: str, says: str) -> None:
    Path("wrong.csv").write_text(text)
    code, out, err = bo("amend", "oven.toml", "wrong.csv")
    assert (code, out) == (2, "") and says in err and err.count("\n") == 1


def test_withdraw(told: Path, bo) -> None:
    code, _, err = bo("withdraw", "oven.toml", 2)
    assert code == 2 and "--reason" in err
    code, out, _ = bo("withdraw", "oven.toml", 2, 4, "--reason", "the door was open")
    assert code == 0 and "Trials: 3 told, 2 withdrawn." in out
    assert trials(bo)["reason"].dropna().to_dict() == dict.fromkeys((2, 4), "the door was open")
    assert "2 withdrawn" in bo("status", "oven.db")[1]


def test_widen_and_the_old_configuration_goes_on(told: Path, bo) -> None:
    code, out, _ = bo("widen", "oven.toml", "pressure=0.5:20")
    assert code == 0 and "pressure: 0.5 to 20" in out
    assert bo("suggest", "oven.toml", "--csv", "more.csv")[0] == 0  # its TOML has the old bounds
    told.write_text(told.read_text().replace("low = 1.0\nhigh = 10.0", "low = 0.5\nhigh = 20.0"))
    assert bo("suggest", "oven.toml")[0] == 0
    told.write_text(told.read_text().replace("high = 20.0", "high = 30.0"))
    code, _, err = bo("suggest", "oven.toml")
    assert code == 2 and "another space" in err
    for text in ("pressure", "pressure=1:x", "depth=1:2", "pressure=2:3"):
        assert bo("widen", "oven.db", text)[0] == 2


def test_change_and_the_old_configuration_goes_on(told: Path, bo) -> None:
    told.write_text(told.read_text() + '[surrogate]\nname = "warped"\n')
    fit = "{then_every = 2, max_evals = 5}"
    wiski = '{name = "wiski", grid_size = 12}'
    code, out, err = bo("change", "oven.toml", "--budget", 9, "--surrogate", wiski, "--fit", fit)
    assert (code, err) == (0, "") and "budget: 9" in out and "wiski" in out
    facts = bo("status", "oven.toml")[1]
    assert "9 trials" in facts and "wiski" in facts
    code, out, err = bo("run", "oven.toml")  # it says 7 and the default family
    assert code == 0 and "ignored" not in err and len(trials(bo)) == 9
    told.write_text(told.read_text().replace("budget = 7", "budget = 10"))
    assert bo("run", "oven.toml")[0] == 0 and len(trials(bo)) == 10


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--surrogate", "none"), "name of a surrogate"),
        (("--surrogate", '{name = "wiski"'), "Expected a table of TOML"),
        (("--fit", "{often = 1}"), "unknown 'often'"),
        ((), "Give one"),
    ],
)
def test_changes_that_cannot_be(told: Path, bo, options: tuple[str, ...], says: str) -> None:
    code, out, err = bo("change", "oven.toml", *options)
    assert (code, out) == (2, "") and says in err
