"""A campaign whose process is killed by SIGKILL ends as if it had been left alone."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("sqlalchemy")
pytest.importorskip("typer")


def test_a_campaign_killed_at_any_moment_ends_like_an_undisturbed_one(
    url: str, tmp_path: Path
) -> None:
    script = [sys.executable, "-m", "experiments.benchmarks.campaign_kills"]
    ran = subprocess.run(
        [*script, "--smoke", "--out", str(tmp_path), "--url", url],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[3],
    )
    assert ran.returncode == 0, ran.stderr
    table = pd.read_csv(tmp_path / "campaign_kills.csv")
    assert len(table) == 3 and bool(table["by SIGKILL"].all())
    assert (table["resumed with"] <= table["killed after"]).all()
    assert (table["killed after"].iloc[:-1].values <= table["resumed with"].iloc[1:].values).all()
    assert (table[["lost", "twice", "fits on resuming"]] == 0).all(axis=None)
    assert bool(table["alike"].all())
    assert float(table["apart"].max()) <= 1e-10
