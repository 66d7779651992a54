"""Several outcomes on the command line: TOML, run, CSV files, status, pictures."""

from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("sqlalchemy")
pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

BREAD = """
name = "bread"
goal = {rise = "maximise", energy = "minimise"}
constraints = ["moisture >= 0.3"]
budget = 8
initial = 8
objective = "bread.py:bake"
seed = 1
[inputs.heat]
low = 1.0
high = 2.2
[inputs.minutes]
low = 5.0
high = 45.0
"""

BAKE = """
def bake(trial):
    energy = trial["heat"] * trial["minutes"]
    rise = 10.0 - 4.0 * (trial["heat"] - 1.8) ** 2 - (trial["minutes"] / 20.0 - 1.5) ** 2
    return {"rise": rise, "energy": energy, "moisture": 1.0 - energy / 80.0}
"""


@pytest.fixture
def bread(tmp_path: Path) -> Path:
    (tmp_path / "bread.py").write_text(BAKE)
    path = tmp_path / "bread.toml"
    path.write_text(BREAD)
    return path


def test_fronts_are_shown(tmp_path: Path, bo, bread: Path) -> None:
    code, out, err = bo("run", "bread.toml")
    assert (code, err) == (0, "") and "8 told" in out and "hypervolume" in out
    code, out, _ = bo("status", "bread.toml")
    assert code == 0 and "maximise rise, minimise energy, with moisture >= 0.3" in out
    front = next(line for line in out.splitlines() if line.startswith("front"))
    assert "trials, hypervolume" in front and "rise = " in front
    assert bo("recommend", "bread.toml", "-n", 2)[1].count("\n") == 3
    assert bo("plot", "bread.toml", "--out", "front.png")[0] == 0
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")
    assert bo("report", "bread.toml", "--out", "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text()
    assert "The front" in page and "data:image/svg+xml" in page


def test_outcomes_are_filled_in_one_after_the_other(tmp_path: Path, bo, bread: Path) -> None:
    code, out, _ = bo("suggest", "bread.toml", "-q", 2, "--csv", "next.csv")
    assert code == 0 and "Fill in rise and energy and moisture" in out
    frame = pd.read_csv("next.csv")
    frame["rise"], frame["energy"] = [5.0, 6.0], [20.0, 30.0]
    frame.to_csv("next.csv", index=False)
    code, out, err = bo("tell", "bread.toml", "next.csv")
    assert (code, err) == (0, "") and "0 told, 2 running" in out
    frame["moisture"] = [0.5, None]
    frame.to_csv("next.csv", index=False)
    code, out, _ = bo("tell", "bread.toml", "next.csv")
    assert code == 0 and "1 told, 1 running" in out
    (tmp_path / "fix.csv").write_text("trial,energy\n0,21\n")
    code, out, _ = bo("amend", "bread.toml", "fix.csv")
    assert code == 0 and "Corrected trials, by id: 0." in out
    code, out, _ = bo("trials", "bread.toml")
    assert "21" in out and "moisture" in out


def test_a_reason_for_some_of_several_outcomes_ends_the_trial(
    tmp_path: Path, bo, bread: Path
) -> None:
    bo("suggest", "bread.toml", "-q", 3)
    rows = ["trial,rise,energy,moisture,reason", "0,5,20,,spilt", "1,,,,burnt", "2,6,30,0.5,late"]
    (tmp_path / "some.csv").write_text("\n".join(rows))
    code, out, err = bo("tell", "bread.toml", "some.csv")
    assert (code, err) == (0, "") and "1 told, 2 failed" in out
    trials = bo("trials", "bread.toml")[1]
    assert "spilt" in trials and "burnt" in trials and "late" not in trials and "20" in trials


def test_wrong_goals_name_their_line(bo, bread: Path) -> None:
    bread.write_text(BREAD.replace('"minimise"', '"smallest"'))
    code, _, err = bo("status", "bread.toml")
    assert code == 2 and "line 3" in err and "goal.energy" in err
    bread.write_text(BREAD.replace("moisture >= 0.3", "moisture * heat >= 0.3"))
    code, _, err = bo("suggest", "bread.toml")
    assert code == 2 and "line 4" in err and "linear" in err
    for point, says in (('{rise = 2, energy = "low"}', "reference.energy"), ("{rise = 2}", "each")):
        bread.write_text(BREAD.replace("seed = 1", f"reference = {point}"))
        code, _, err = bo("suggest", "bread.toml")
        assert code == 2 and "line 8" in err and says in err
    bread.write_text(BREAD.replace("seed = 1", "reference = {rise = 2, energy = 70}"))
    assert bo("suggest", "bread.toml")[0] == 0
