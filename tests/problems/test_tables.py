"""Tables read in place: shapes, names, leaks, splits, missing values, refusals."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from problems.errors import BadData, DataNotFound
from problems.tables import TABLES, load_table

# name: (n, d, m) of the files
SHAPES = {
    "concrete": (1030, 8, 1),
    "powerplant": (9568, 4, 1),
    "skillcraft": (3338, 19, 1),
    "bike": (17379, 15, 1),
    "elevators": (16599, 18, 1),
    "kin8nm": (8192, 8, 1),
    "magnetic_path1": (8875, 2, 3),
    "fx2007": (251, 1, 1),
    "road3d_first5000": (5000, 2, 1),
    "sarcos_test4449": (4449, 21, 7),
    "banana": (5300, 2, 1),
    "malaria_ethiopia_school_survey_2009": (203, 2, 2),
    "svmguide1": (7089, 4, 1),
}


def real(name):
    folder = os.environ.get("BO_STREAM_DATA")
    for file in (f"{name}.csv.gz", f"{name}.csv"):
        if folder and (Path(folder) / file).is_file():
            return name
    pytest.skip(f"{name}.csv.gz is not under BO_STREAM_DATA")


def test_every_table_is_listed_here():
    assert set(SHAPES) == set(TABLES)


@pytest.mark.parametrize("name", SHAPES)
def test_real_tables(name):
    table = load_table(real(name))
    n, d, m = SHAPES[name]
    assert table.X.shape == (n, d) and table.Y.shape == (n, m)
    assert table.X.dtype == table.Y.dtype == torch.float64
    assert torch.isfinite(table.X).all() and torch.isfinite(table.Y).all()
    assert len(table.inputs) == d and len(table.targets) == m and table.attribution
    assert table.dropped == 0
    assert (table.train is None) == (name not in ("banana", "svmguide1"))


def test_real_splits_and_missing_rates():
    assert load_table(real("svmguide1")).train.sum() == 3089
    gold = load_table(real("fx2007"), target=["XAU_per_USD", "CAD_per_USD"])
    assert gold.Y.shape[1] == 2 and 0 < gold.dropped < 59 and len(gold.Y) == 251 - gold.dropped


def test_real_bike_leaks_only_on_request():
    honest, leaking = load_table(real("bike")), load_table("bike", leak=True)
    assert leaking.X.shape == (17379, 17)
    assert set(leaking.inputs) - set(honest.inputs) == {"casual", "registered"}


@pytest.fixture
def folder(tmp_path):
    frame = pd.DataFrame({"x0": [1.0, 2, 3], "x1": [4.0, 5, 6], "label": [0, 1, 0]})
    frame["split"] = ["train", "test", "train"]
    frame.to_csv(tmp_path / "banana.csv", index=False)
    return tmp_path


def test_a_table_keeps_order_and_units(folder, monkeypatch):
    table = load_table("banana", folder=folder)
    np.testing.assert_array_equal(table.X, [[1, 4], [2, 5], [3, 6]])
    np.testing.assert_array_equal(table.Y, [[0], [1], [0]])
    assert table.train.tolist() == [True, False, True] and table.inputs == ("x0", "x1")
    monkeypatch.setenv("BO_STREAM_DATA", str(folder))
    assert torch.equal(load_table("banana").X, table.X)


def test_columns_may_be_chosen(folder):
    table = load_table("banana", folder=folder, inputs=["x1"], target="x0")
    assert table.inputs == ("x1",) and table.Y[:, 0].tolist() == [1, 2, 3]
    assert load_table("banana", folder=folder, target="x0").inputs == ("x1",)


def test_rows_with_missing_values_are_counted(folder):
    frame = pd.read_csv(folder / "banana.csv")
    frame.loc[1, "x0"] = np.nan
    frame.to_csv(folder / "banana.csv", index=False)
    table = load_table("banana", folder=folder)
    assert table.dropped == 1 and len(table.X) == len(table.Y) == len(table.train) == 2
    assert load_table("banana", folder=folder, inputs=["x1"]).dropped == 0


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"inputs": ["x7"]}, r"\['x7'\]"),
        ({"inputs": ["x0"], "target": ["x0"]}, "in common"),
        ({"target": []}, "expected a target"),
        ({"inputs": ["split"]}, "expected numbers"),
    ],
)
def test_wrong_columns_are_refused(folder, arguments, message):
    with pytest.raises(BadData, match=message):
        load_table("banana", folder=folder, **arguments)


def test_unknown_names_and_missing_files_say_what_to_do(folder, monkeypatch):
    with pytest.raises(BadData, match="concrete, powerplant"):
        load_table("boston", folder=folder)
    with pytest.raises(DataNotFound, match="Put bike.csv.gz"):
        load_table("bike", folder=folder)
    monkeypatch.delenv("BO_STREAM_DATA", raising=False)
    monkeypatch.chdir(folder.parent)
    with pytest.raises(DataNotFound, match="BO_STREAM_DATA is not set"):
        load_table("bike")


def test_a_table_of_ones_own(tmp_path, monkeypatch):
    oven = pd.DataFrame({"hours": [1, 2, 3], "celsius": [180.0, 190, np.nan], "yield": [4, 7, 8]})
    oven["baker"] = ["a", "b", "a"]
    oven.to_csv(tmp_path / "oven.csv.gz", index=False)
    table = load_table(tmp_path / "oven.csv.gz", "yield", inputs=["celsius", "hours"])
    np.testing.assert_array_equal(table.X, [[180, 1], [190, 2]])
    assert table.name == "oven" and table.dropped == 1 and table.train is None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BO_STREAM_DATA", str(tmp_path.parent))
    both = load_table("oven.csv.gz", ["yield", "hours"], inputs=["celsius"])
    assert both.targets == ("yield", "hours") and both.Y.tolist() == [[4, 1], [7, 2]]
    with pytest.raises(BadData, match=r"oven: expected a target, one of its columns \['hours'"):
        load_table("oven.csv.gz")
    with pytest.raises(BadData, match=r"got text in \['baker'\]"):
        load_table("oven.csv.gz", "yield")
    with pytest.raises(BadData, match="path of a .csv"):
        load_table("oven")
    with pytest.raises(DataNotFound, match="relative to the working directory"):
        load_table("oven.csv", "yield")
    Path("empty.csv").touch()
    with pytest.raises(BadData, match="Expected a CSV with a header"):
        load_table("empty.csv", "yield")
