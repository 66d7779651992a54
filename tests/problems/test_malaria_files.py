"""Tables read by ``load_malaria``: what is kept, derived, dropped and refused."""

import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from problems import load_malaria
from problems.errors import BadData, DataNotFound, ProblemDataError
from problems.malaria.columns import Z95
from tests.problems.malaria_cases import cells, geotiff, value_bands


@pytest.fixture
def save(tmp_path):
    def save(frame, name="cells.csv"):
        frame.to_csv(tmp_path / name, index=False)
        return tmp_path / name

    return save


def real(name):
    folder = os.environ.get("BO_STREAM_DATA")
    if not folder or not (Path(folder) / name).is_file():
        pytest.skip(f"{name} is not under BO_STREAM_DATA")
    return name


# CSV -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cells.csv", "cells.csv.gz", "pfpr_cells.csv"])
def test_csv_is_scaled_to_the_unit_square_and_keeps_its_extent(save, name):
    frame = cells()
    data = load_malaria(save(frame, name))
    assert data.extent == (5.0, 5 + 3 / 24, 10.0, 10 + 3 / 24)
    np.testing.assert_allclose(data.lonlat(), frame[["longitude", "latitude"]], rtol=0, atol=1e-12)
    # pandas 2 reads a decimal to the last digit but one
    np.testing.assert_allclose(data.Y[:, 0], frame["mean"], rtol=1e-15)
    assert data.Yvar is None and not data.derived_std and not data.synthetic
    assert data.year == 2017 and "Malaria Atlas Project" in data.attribution
    assert ("PfPR" in data.units) == ("pfpr" in name)


def test_a_bare_name_is_found_under_bo_stream_data(save, monkeypatch):
    path = save(cells(), "somewhere.csv.gz")
    monkeypatch.setenv("BO_STREAM_DATA", str(path.parent))
    assert load_malaria("somewhere").Y.shape == (16, 1)
    assert load_malaria("somewhere.csv.gz").name == "somewhere"


def test_std_dev_from_an_interval_is_labelled_derived(save):
    frame = cells(lower=lambda f: 0.8 * f["mean"], upper=lambda f: 1.3 * f["mean"])
    data = load_malaria(save(frame))
    expected = ((frame["upper"] - frame["lower"]) / (2 * 1.959964)) ** 2
    np.testing.assert_allclose(data.Yvar[:, 0], expected, rtol=1e-14)
    assert data.derived_std


@pytest.mark.parametrize("factor, derived", [(1.0, True), (1.1, False)])
def test_a_given_std_dev_is_used_and_recognised_when_derived(save, factor, derived):
    frame = cells(lower=lambda f: 0.8 * f["mean"], upper=lambda f: 1.3 * f["mean"])
    frame["std_dev"] = (factor * (frame["upper"] - frame["lower"]) / (2 * Z95)).round(7)
    data = load_malaria(save(frame))
    np.testing.assert_allclose(data.Yvar[:, 0], frame["std_dev"] ** 2)
    assert data.derived_std is derived


def test_a_std_dev_without_an_interval_is_taken_as_stated(save):
    assert load_malaria(save(cells(std_dev=0.05))).derived_std is False


def test_several_years_need_a_choice(save):
    path = save(pd.concat([cells(), cells(year=2018)]))
    with pytest.raises(BadData, match=r"\[2017, 2018\].*year="):
        load_malaria(path)
    with pytest.raises(BadData, match=r"\[2017, 2018\], got 2011"):
        load_malaria(path, year=2011)
    assert load_malaria(path, year=2018).Y.shape == (16, 1)


def test_missing_repeated_and_certain_cells_are_dropped_and_counted(save):
    frame = cells(std_dev=0.05)
    frame.loc[0, "mean"] = np.nan
    frame.loc[1, "mean"] = -9999
    frame.loc[2, "std_dev"] = np.nan
    frame.loc[3, "std_dev"] = 0.0
    frame = pd.concat([frame, frame.tail(2), frame.tail(1).assign(year=np.nan)])
    data = load_malaria(save(frame))
    assert data.dropped == {"missing": 4, "duplicate": 2, "zero_std": 1}
    assert data.Y.shape == data.Yvar.shape == (12, 1) and data.X.shape == (12, 2)
    assert all(torch.isfinite(t).all() for t in (data.X, data.Y, data.Yvar))


def test_outliers_are_dropped_only_on_request(save):
    frame = cells(n=6, mean=0.3)
    frame.loc[14, "mean"] = 1.0
    frame.loc[21, "mean"] = 0.0
    path = save(frame)
    assert load_malaria(path).Y.shape == (36, 1)
    data = load_malaria(path, drop_outliers=True)
    assert data.dropped == {"outlier": 2} and data.Y.unique().tolist() == [0.3]


def test_country_keeps_its_bounding_box(save):
    corners = pd.DataFrame({"longitude": [-20, 50], "latitude": [-35, 35], "year": 2017, "mean": 1})
    path = save(pd.concat([cells(), corners]))  # of a continent: no reason to warn
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = load_malaria(path, country="nga")
    assert data.Y.shape == (16, 1) and data.dropped == {"outside NGA": 2}
    with pytest.raises(BadData, match="bounding box of SEN"):
        load_malaria(path, country="SEN")
    with pytest.raises(BadData, match=r"NGA.*got 'XXX'"):
        load_malaria(path, country="XXX")


def test_a_strip_of_a_neighbour_is_counted_and_warned_of(save, tmp_path):
    wide = cells(longitude=lambda f: 0.8 + f["longitude"] - 5 + f.index % 4)  # 0.8 to 3.9
    with pytest.warns(UserWarning, match=r"cells.*box of NGA.*\(0.80, 3.92, 10.00, 10.12\).*leave"):
        data = load_malaria(save(wide), country="NGA")
    assert data.dropped == {"outside NGA": 8} and len(data.X) == 8
    raster = geotiff(tmp_path / "x.tif", np.full((1, 96, 96), 0.2))  # 5 to 9 degrees east
    with pytest.warns(UserWarning, match="box of CMR"):
        load_malaria(raster, country="CMR")


def test_a_year_may_be_given_by_its_digits(save):
    path = save(cells())
    assert load_malaria(path, year="2017").year == load_malaria(path, year=np.int64(2017)).year
    assert load_malaria(path, year="2017").year == 2017
    for year in ("MMXVII", 2017.5, ""):
        with pytest.raises(BadData, match=f"calendar year such as 2017, got {year!r}"):
            load_malaria(path, year=year)


def test_the_attribution_says_what_became_of_the_projects_file(save, tmp_path):
    plain = load_malaria(save(cells())).attribution
    assert plain.endswith("converted from GeoTIFF to CSV") and "release" not in plain
    frame = cells(lower=lambda f: 0.8 * f["mean"], upper=lambda f: 1.3 * f["mean"])
    assert load_malaria(save(frame), release="202508").attribution == (
        "Contains data of the Malaria Atlas Project (https://malariaatlas.org), release 202508, "
        "CC BY; Weiss et al., Lancet 2019;394:322-331; converted from GeoTIFF to CSV; std_dev "
        "derived from the published 95 % interval"
    )
    bands = [value_bands()[name] for name in ("value", "LCI", "UCI")]
    own = load_malaria(geotiff(tmp_path / "202406_Global_Pf_NGA_2017.tif", bands)).attribution
    assert "release 202406, CC BY" in own and "converted" not in own and "std_dev derived" in own


def clashing():
    frame = cells()
    return pd.concat([frame, frame.tail(1).assign(mean=0.9)])


@pytest.mark.parametrize(
    "frame, message",
    [
        (cells().drop(columns="mean"), "expected the columns"),
        (cells().drop(columns="year"), "year column"),
        (cells().drop(columns="latitude"), r"missing \['latitude'\]"),
        (cells(mean=-0.1), "values >= 0"),
        (cells(mean="a lot"), "numbers in column mean"),
        (cells(latitude=95.0), "swapped"),
        (cells().head(4), "after cleaning"),
        (cells(std_dev=-0.1), "std_dev >= 0"),
        (cells(lower=0.9, upper=0.1), "lower <= upper"),
        (cells(mean=np.nan), "after cleaning"),
        (clashing(), "one value a cell"),
    ],
    ids=lambda v: v if isinstance(v, str) else "frame",
)
def test_a_malformed_table_is_refused_with_a_remedy(save, frame, message):
    with pytest.raises(BadData, match=message):
        load_malaria(save(frame))


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b broken gzip"])
def test_an_unreadable_csv_is_refused(tmp_path, content):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(content)
    with pytest.raises(BadData, match="expected a CSV"):
        load_malaria(path)


# arguments -----------------------------------------------------------------------------------


def test_a_missing_file_names_places_and_remedy(monkeypatch):
    monkeypatch.delenv("BO_STREAM_DATA", raising=False)
    with pytest.raises(DataNotFound, match=r"BO_STREAM_DATA is not set.*load_malaria\(\)") as error:
        load_malaria("nowhere")
    assert isinstance(error.value, FileNotFoundError) and isinstance(error.value, ProblemDataError)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"year": 2017}, "download=True"),
        ({"country": "NGA"}, "download=True"),
        ({"source": "x.csv", "download": True}, "got both"),
        ({"country": "NGA", "download": True}, "country and year"),
        ({"quantity": "mortality"}, r"\['incidence', 'pfpr'\]"),
    ],
)
def test_contradicting_arguments_are_refused(arguments, message):
    with pytest.raises(BadData, match=message):
        load_malaria(**arguments)


def test_an_unknown_ending_is_refused(tmp_path):
    (tmp_path / "x.xlsx").write_text("")
    with pytest.raises(BadData, match="ending in .csv"):
        load_malaria(tmp_path / "x.xlsx")


# real files, where they are ------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, year, n, mean, derived",
    [
        ("malaria_benin_pfpr_2017.csv.gz", None, 5432, 0.456577, True),
        ("malaria_senegal_incidence_2010_2020.csv.gz", 2017, 9491, 0.0708365, True),
        ("malaria_nigeria_pfpr_2021_2022.csv.gz", 2022, 43189, 0.294185, False),
    ],
)
def test_real_tables(name, year, n, mean, derived):
    data = load_malaria(real(name), year=year)
    assert data.Y.shape == (n, 1) and data.Y.mean().item() == pytest.approx(mean, rel=1e-5)
    assert data.derived_std is derived and (data.Yvar is not None) is derived
    assert data.dropped == {} and not data.synthetic


def test_real_outliers_are_the_known_ones():
    name = real("malaria_nigeria_pfpr_2021_2022.csv.gz")
    for year in (2021, 2022):
        data = load_malaria(name, year=year, drop_outliers=True)
        assert data.dropped == {"outlier": 114 + 3} and data.Y.max() < 0.6


def test_real_layout_fixture():
    name = real("fixtures/malaria_df_layout_sample.hdf5")
    pytest.importorskip("tables", reason="the extra hdf is not installed")
    data = load_malaria(name, year=2017)
    assert data.Y.shape == (400, 1) and data.Yvar.min() > 0
    with pytest.raises(BadData, match="2012, 2013, 2014, 2015, 2016, 2017"):
        load_malaria(name)
