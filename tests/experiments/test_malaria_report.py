"""The report on saved campaigns: what it compares, and what it refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from experiments import malaria_report
from experiments.active_learning.campaigns import load_cells, provenance
from experiments.active_learning.study import plan
from experiments.common.command import CONFIGS, parsed


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four campaigns: both policies that the report compares, readings and noise."""
    folder = tmp_path_factory.mktemp("campaigns")
    few = {"policies": ["nipv", "random"], "kernels": ["ard"]}
    few |= {"surrogate": [{"name": "wiski", "grid_size": 10}]}
    few |= {"seeds": [0], "steps": 3, "num_test": 100, "raster": [{"cells": 400}]}
    for run in plan(parsed(CONFIGS / "malaria_senegal.toml") | few):
        campaign = run.campaign()
        campaign.run()
        about = provenance(load_cells(run.c), run.c)
        campaign.save(folder / f"{run.stem}.csv", **run.facts, **about)
    return folder


def test_the_report_takes_the_middle_step_for_half_way(saved: Path) -> None:
    result = CliRunner().invoke(malaria_report.app, [str(saved)])
    assert result.exit_code == 0, result.output
    assert "synthetic_incidence_seed0: Synthetic field" in result.output
    report = pd.read_csv(saved / "report.csv")
    assert sorted(report["observation"]) == ["known noise", "raster"]
    assert report["n half way"].tolist() == [22, 22]
    numbers = report.select_dtypes("number").drop(columns="seed")
    assert bool((numbers > 0).all(axis=None))
    ratio = report["nipv"] / report["random"]  # pandas 2 reads a CSV to the last digit but one
    np.testing.assert_allclose(report["nipv / random"], ratio, rtol=1e-12)


def test_the_report_refuses_with_a_message(saved: Path, refused: Any, tmp_path: Path) -> None:
    assert "does not exist" in refused(malaria_report.app, "/nonexistent")
    assert "got 0 campaigns" in refused(malaria_report.app, tmp_path)
    (tmp_path / "other.json").write_text("{}")
    assert "JSON of a saved campaign" in refused(malaria_report.app, tmp_path)
    for path in saved.glob("*raster*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "other.json").unlink()
    (shorter,) = tmp_path.glob("*random*.csv")
    pd.read_csv(shorter).iloc[:-1].to_csv(shorter, index=False)
    assert "one length, got 28 cells" in refused(malaria_report.app, tmp_path)
