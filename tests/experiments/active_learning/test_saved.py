"""What is found again of saved campaigns."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from experiments.active_learning.campaigns import load_cells
from experiments.active_learning.study import plan
from experiments.malaria_report import Saved
from problems.errors import BadData, DataNotFound

CONFIG: dict[str, Any] = {
    "raster": [{"source": "toy_pfpr", "year": 2017, "release": "202508"}],
    "observations": ["known noise"],
    "surrogate": [{"name": "wiski", "grid_size": 10}],
    "policies": ["random"],
    "kernels": ["ard"],
    "seeds": [3],
    "steps": 2,
    "q": 4,
    "num_initial": 5,
    "num_test": 50,
    "fit": {"every_step_until": 1},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Any]]:
    """A campaign on a table of 15 x 15 cells with an interval: its JSON, and itself."""
    lon, lat = (a.ravel() / 24.0 for a in np.meshgrid(np.arange(15), np.arange(15)))
    mean = 0.3 + 0.1 * np.sin(4.0 * lon) * np.cos(3.0 * lat)
    frame = pd.DataFrame({"longitude": lon, "latitude": lat, "year": 2017, "mean": mean})
    folder = tmp_path_factory.mktemp("saved")
    frame.assign(lower=0.9 * mean, upper=1.2 * mean).to_csv(folder / "toy_pfpr.csv", index=False)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("BO_STREAM_DATA", str(folder))
        yield save_one(CONFIG, folder)


@pytest.fixture
def path(saved: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the JSON, beside copies of its table and of the rows, under BO_STREAM_DATA."""
    shutil.copytree(saved[0].parent, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("BO_STREAM_DATA", str(tmp_path))
    load_cells(CONFIG)  # one source is kept at a time: what another test has read is read anew
    return tmp_path / saved[0].name


def save_one(c: dict[str, Any], folder: Path) -> tuple[Path, Any]:
    """Run and save the only campaign of a configuration; returns its JSON and itself."""
    (run,) = plan(c)
    run.execute(folder)
    campaign = run.campaign()
    campaign.run()
    return folder / f"{run.stem}.json", campaign


def test_a_saved_campaign_is_found_again(path: Path, saved: tuple[Path, Any]) -> None:
    campaign, found = saved[1], Saved.read(path)
    split, about = found.split, found.about
    torch.testing.assert_close(found.cells.Y, campaign.cells.Y, rtol=0, atol=0)
    torch.testing.assert_close(split.observed, campaign.split.observed, rtol=0, atol=0)
    assert torch.equal(found.queried, campaign.queried)
    assert torch.equal(split.test, campaign.split.test)
    assert about["source"] == {
        "source": "toy_pfpr",
        "year": 2017,
        "cells": 225,
        "release": "202508",
    }
    assert about["derived_std"] is True and about["synthetic"] is False
    assert "release 202508, CC BY" in about["attribution"]
    assert about["attribution"].endswith("std_dev derived from the published 95 % interval")


def test_nothing_stands_in_for_the_cells_of_a_real_campaign(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BO_STREAM_DATA")
    with pytest.raises(DataNotFound, match="toy_pfpr.*BO_STREAM_DATA is not set"):
        Saved.read(path)


@pytest.mark.parametrize("change", ["fewer cells", "another name"])
def test_other_cells_than_the_campaigns_are_refused(path: Path, change: str) -> None:
    if change == "fewer cells":
        table = path.with_name("toy_pfpr.csv")
        pd.read_csv(table).iloc[:-1].to_csv(table, index=False)
        message = r"toy_pfpr_in_2017 \(225 cells\), got toy_pfpr_in_2017 \(224 cells\)"
    else:
        about = json.loads(path.read_text())
        path.write_text(json.dumps(about | {"cells": "other_in_2017"}))
        message = r"other_in_2017 \(225 cells\), got toy_pfpr_in_2017"
    with pytest.raises(BadData, match=message):
        Saved.read(path)


def test_a_campaign_on_the_synthetic_field_says_so_and_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    folder = os.environ["BO_STREAM_DATA"]
    monkeypatch.delenv("BO_STREAM_DATA")
    raster = [CONFIG["raster"][0] | {"cells": 400}]
    path, campaign = save_one(CONFIG | {"raster": raster}, tmp_path / "synthetic")
    monkeypatch.setenv("BO_STREAM_DATA", folder)  # the table is back, and is not taken
    found = Saved.read(path)
    about, cells = found.about, found.cells
    assert about["synthetic"] is True and about["source"] == {"source": None, "cells": 400}
    torch.testing.assert_close(cells.Y, campaign.cells.Y, rtol=0, atol=0)
