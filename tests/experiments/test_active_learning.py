"""The malaria experiment: help without torch, a smoke run, maps."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from experiments import malaria_report
from experiments.maps import rasterised

CONFIG = Path(__file__).parents[2] / "experiments" / "configs" / "malaria_senegal.toml"


def test_help_does_not_import_torch():
    code = "import sys, experiments.active_learning; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"


def test_smoke_run_says_it_is_synthetic(tmp_path, monkeypatch):
    from experiments.active_learning import main

    monkeypatch.chdir(tmp_path)
    main(CONFIG, smoke=True, policy=["nipv", "random"])
    out = tmp_path / "results" / "active_learning" / "senegal_2017_smoke"
    tables = sorted(out.glob("*.csv"))
    assert len(tables) == 4  # two observation models, two policies
    assert all("synthetic" in path.name for path in tables)
    assert all(path.with_suffix(".png").stat().st_size > 10_000 for path in tables)
    assert pd.read_csv(tables[0])["n"].tolist() == [10, 16, 22, 28]
    assert (out / "rmse_wallclock.png").exists()

    malaria_report.main([out], half=22)
    report = pd.read_csv(out / "report.csv")
    assert sorted(report["observation"]) == ["known noise", "raster"]
    numbers = report.select_dtypes("number").drop(columns="seed")
    assert bool((numbers > 0).all(axis=None))
    assert report["nipv / random"].equals(report["nipv"] / report["random"])


def test_cells_become_an_image_with_gaps():
    lonlat = np.array([[10.0, 5.0], [10.5, 5.0], [10.0, 5.25], [11.0, 5.25]])
    image = rasterised(lonlat, np.arange(4.0))
    expected = np.array([[2.0, np.nan, 3.0], [0.0, 1.0, np.nan]])
    np.testing.assert_array_equal(image, expected)
