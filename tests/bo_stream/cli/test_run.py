"""From a TOML to a finished campaign: run, look, draw, stop, resume."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import bo_stream
from bo_stream.cli.loading import LoadedCampaign

pytest.importorskip("sqlalchemy")
pytest.importorskip("matplotlib")

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


def test_run_look_and_draw(tmp_path: Path, bo, oven: Path) -> None:
    code, out, err = bo("run", "oven.toml")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith("trials 7 told (budget 7); best ")
    assert "regret" in out and not CONTROL.search(out)
    assert re.search(r"recommended .* to .*, expected gain .* at pressure", out.splitlines()[-1])

    code, out, _ = bo("recommend", "oven.toml", "-n", "2")
    assert code == 0 and len(out.splitlines()) == 3 and "lower" in out and "pressure (bar)" in out
    code, out, _ = bo("status", "oven.toml")
    assert code == 0 and re.search(r"trials +7 told\n", out) and "pressure (bar), rate" in out

    code, out, _ = bo("trials", "oven.db", "--csv", "all.csv")
    assert code == 0 and out == "Wrote 7 trials to all.csv.\n"
    table = pd.read_csv("all.csv", index_col="trial")
    assert list(table["status"]) == ["told"] * 7
    assert (table["y"] >= 1.0).all() and table["rate"].between(1e-4, 0.1).all()
    code, out, _ = bo("trials", "oven.db")
    assert code == 0 and len(out.splitlines()) == 8 and "pressure (bar)" in out

    code, _, err = bo("suggest", "oven.toml")
    assert code == 2 and "its budget of 7; got 7" in err and "raise the budget" in err

    code, out, _ = bo("plot", "oven.toml", "--out", "p.png")
    assert code == 0 and (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    code, _, _ = bo("map", "oven.toml", "--out", "m.png", "--csv", "m.csv")
    assert code == 0 and (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")
    assert list(pd.read_csv(tmp_path / "m.csv")) == ["place", "pressure", "rate", "mean", "sd"]


def test_resume_by_store_needs_objective_and_budget(bo, oven: Path) -> None:
    assert bo("run", "oven.toml")[0] == 0
    code, _, err = bo("resume", "oven.db", "--budget", 9)
    assert code == 2 and "Expected the objective" in err
    code, _, err = bo("resume", "oven.db", "kiln", "--objective", "oven.py:measure", "--budget", 9)
    assert code == 2 and "got 'oven'" in err
    code, out, _ = bo("resume", "oven.db", "--objective", "oven.py:measure", "--budget", 8)
    assert code == 0 and "8 told (budget 8)" in out
    assert bo("resume", "oven.toml")[0] == 0  # its budget is used up


def test_what_is_not_there_is_refused_and_not_made(tmp_path: Path, bo, oven: Path) -> None:
    for command in ("status", "trials", "plot", "map", "resume"):
        code, out, err = bo(command, "oven.toml")
        assert (code, out) == (2, "") and "Create it with: bo-stream run oven.toml" in err
    assert bo("status", "none.db")[0] == 2
    assert not list(tmp_path.glob("*.db"))
    oven.write_text(oven.read_text().replace("oven.py:measure", "oven.py:measured"))
    code, _, err = bo("run", "oven.toml")
    assert code == 2 and "line 5, objective: " in err and "'measured'" in err


def test_an_objective_that_raises_is_a_failed_trial(tmp_path: Path, bo, oven: Path) -> None:
    (tmp_path / "oven.py").write_text("def measure(trial):\n    raise OSError('no power')\n")
    code, out, _ = bo("run", "oven.toml")
    assert code == 0 and "0 told, 7 failed" in out
    assert "no power" in bo("trials", "oven.toml")[1]
    code, _, err = bo("plot", "oven.toml")
    assert code == 2 and "Tell some" in err


def test_settings_that_a_campaign_keeps_are_named(bo, oven: Path) -> None:
    assert bo("suggest", "oven.toml")[0] == 0
    oven.write_text(oven.read_text().replace("seed = 1", "seed = 2"))
    code, _, err = bo("suggest", "oven.toml")
    assert code == 0 and "continues with the seed in its store, 1; 2 is ignored" in err
    oven.write_text(oven.read_text().replace("high = 10.0", "high = 11.0"))
    code, _, err = bo("run", "oven.toml")
    assert code == 2 and "another space" in err


STOPS = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever this process inherited
def measure(trial):
    if trial.name == 2 and not os.path.exists("stopped"):
        open("stopped", "w").close()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)
    return trial["pressure"]
"""


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, bo, oven: Path) -> None:
    (tmp_path / "oven.py").write_text(STOPS)
    oven.write_text(oven.read_text().replace("budget = 7", "budget = 4"))
    path = str(Path(bo_stream.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "bo_stream", "run", "oven.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "FORCE_COLOR": "1"},
    )
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1].endswith("To continue: bo-stream resume oven.toml")
    assert "Traceback" not in done.stderr and not CONTROL.search(done.stdout)
    assert "2 told, 1 running" in bo("status", "oven.toml")[1]
    code, out, _ = bo("resume", "oven.toml")
    assert code == 0 and "4 told (budget 4)" in out


def test_passwords_are_not_shown() -> None:
    opened = LoadedCampaign(None, "postgresql://me:secret@host/ovens", None)  # type: ignore[arg-type]
    assert opened.store == "postgresql://me:***@host/ovens"
    assert LoadedCampaign(None, "sqlite:////a/b.db", None).store == "sqlite:////a/b.db"  # type: ignore[arg-type]


def test_commands_print_json_for_other_programs(bo, oven: Path) -> None:
    assert bo("run", "oven.toml")[0] == 0
    trials = json.loads(bo("trials", "oven.toml", "--json")[1])
    assert [row["trial"] for row in trials] == list(range(7))
    assert trials[0]["status"] == "told" and trials[0]["reason"] is None
    facts = json.loads(bo("status", "oven.toml", "--json")[1])
    assert facts["trials"] == "7 told" and facts["running"] == []
    (best,) = json.loads(bo("recommend", "oven.toml", "--json")[1])
    assert best["lower"] <= best["mean"] <= best["upper"]
    oven.write_text(oven.read_text().replace("budget = 7", "budget = 20"))
    (following,) = json.loads(bo("suggest", "oven.toml", "--json")[1])
    assert following["trial"] == 7 and 1.0 <= following["pressure"] <= 10.0
