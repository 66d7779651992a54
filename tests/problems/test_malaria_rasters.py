"""HDF5 files and rasters read by ``load_malaria``."""

import numpy as np
import pandas as pd
import pytest

from problems import load_malaria
from problems.errors import BadData, MissingExtra
from problems.malaria.columns import Z95
from tests.problems.malaria_cases import cells, geotiff, value_bands

# HDF5 ----------------------------------------------------------------------------------------


@pytest.fixture
def hdf(tmp_path):
    pytest.importorskip("tables", reason="the extra hdf is not installed")
    frame = pd.concat(
        [
            cells(std_dev=0.05, is_ng=1),
            cells(std_dev=0.07, is_ng=0, longitude=lambda f: f["longitude"] + 9),
        ]
    )
    frame.to_hdf(tmp_path / "malaria_df.hdf5", key="full", mode="w")
    return tmp_path / "malaria_df.hdf5"


def test_hdf_keeps_nigeria(hdf):
    data = load_malaria(hdf, country="NGA", year=2017)
    assert data.Y.shape == (16, 1) and "cases per person" in data.units
    np.testing.assert_allclose(data.Yvar, 0.05**2)
    with pytest.raises(BadData, match="country='NGA'"):
        load_malaria(hdf, country="SEN")


def test_hdf_of_another_layout_is_refused(tmp_path):
    pytest.importorskip("tables", reason="the extra hdf is not installed")
    cells().to_hdf(tmp_path / "a.h5", key="other", mode="w")
    with pytest.raises(BadData, match="key 'full'"):
        load_malaria(tmp_path / "a.h5")
    cells().to_hdf(tmp_path / "b.h5", key="full", mode="w")
    with pytest.raises(BadData, match="is_ng"):
        load_malaria(tmp_path / "b.h5")
    (tmp_path / "c.h5").write_text("no HDF5")
    with pytest.raises(BadData, match="expected an HDF5"):
        load_malaria(tmp_path / "c.h5")


@pytest.mark.parametrize(
    "module, name, extra",
    [("tables", "a.hdf5", "hdf"), ("rasterio", "a.tif", "geo"), ("pooch", None, "data")],
)
def test_a_missing_extra_is_named(tmp_path, monkeypatch, module, name, extra):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'bo_stream\[{extra}\]'"):
        if name is None:
            load_malaria(country="NGA", year=2017, download=True, cache_dir=tmp_path)
        (tmp_path / str(name)).write_bytes(b"II*\x00")
        load_malaria(tmp_path / str(name))


# GeoTIFF -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names, described",
    [
        (["value"], False),
        (["value", "mask"], False),
        (["value", "LCI", "UCI"], False),
        (["value", "mask", "LCI", "UCI"], False),
        (["value", "mask", "LCI", "UCI"], True),
        (["value", "UCI", "LCI"], True),
    ],
)
def test_bands_of_a_geotiff(tmp_path, names, described):
    bands = value_bands()
    descriptions = ["Mask: water" if name == "mask" else name for name in names]
    path = geotiff(
        tmp_path / "202508_Global_Pf_Incidence_Rate_NGA_2017.tiff",
        [bands[name] for name in names],
        descriptions if described else None,
    )
    data = load_malaria(path)
    assert data.year == 2017 and "cases per person" in data.units
    value = bands["value"].ravel()[1:]
    np.testing.assert_allclose(data.Y[:, 0], value, rtol=1e-6)
    # north to south, west to east, cell centres
    np.testing.assert_allclose(data.lonlat()[0], [5 + 1.5 / 24, 10 - 0.5 / 24])
    np.testing.assert_allclose(data.lonlat()[-1], [5 + 3.5 / 24, 10 - 2.5 / 24])
    if "LCI" in names:
        np.testing.assert_allclose(data.Yvar[:, 0], (0.4 * value / (2 * Z95)) ** 2, rtol=1e-5)
        assert data.derived_std
    else:
        assert data.Yvar is None and not data.derived_std


def test_nodata_tags_other_than_minus_9999_are_read(tmp_path):
    for i, nodata in enumerate([-3.4e38, float("nan"), None]):
        missing = -9999.0 if nodata is None else nodata
        path = geotiff(tmp_path / f"{i}.tif", [value_bands(missing)["value"]], nodata=nodata)
        assert load_malaria(path).Y.shape == (11, 1)


def test_the_year_comes_from_the_name_or_the_caller(tmp_path):
    path = geotiff(tmp_path / "pfpr_2021.tif", [value_bands()["value"]])
    assert load_malaria(path).year == 2021
    with pytest.raises(BadData, match="its name says 2021"):
        load_malaria(path, year=2020)
    path = geotiff(tmp_path / "202508_raster.tif", [value_bands()["value"]])
    assert load_malaria(path).year is None and load_malaria(path, year=2020).year == 2020


def test_a_global_raster_is_cut_to_the_country(tmp_path):
    path = geotiff(tmp_path / "world.tif", np.full((1, 2000, 1001), 0.2), compress="deflate")
    with pytest.raises(BadData, match="Pass country="):
        load_malaria(path)
    with pytest.warns(UserWarning, match="box of NGA"):  # it begins at 5 degrees, the box at 2.6
        data = load_malaria(path, country="NGA")
    west, east, south, north = data.extent
    assert west > 5.0 and east < 14.8 and south >= 4.2 and north < 10.0
    with pytest.raises(BadData, match="bounding box of SEN"):
        load_malaria(path, country="SEN")


def test_rasters_that_are_not_are_refused(tmp_path):
    value = value_bands()["value"]
    (tmp_path / "error.tif").write_text("<html>Service Exception</html>")
    with pytest.raises(BadData, match="first bytes"):
        load_malaria(tmp_path / "error.tif")
    whole = geotiff(tmp_path / "whole.tif", [np.random.default_rng(0).random((200, 200))])
    (tmp_path / "cut.tif").write_bytes(whole.read_bytes()[:50_000])
    with pytest.raises(BadData, match="truncated"):
        load_malaria(tmp_path / "cut.tif")
    with pytest.raises(BadData, match="gdalwarp"):
        load_malaria(geotiff(tmp_path / "utm.tif", [value], crs="EPSG:32631"))
    with pytest.raises(BadData, match="1 to 4 bands"):
        load_malaria(geotiff(tmp_path / "years.tif", [value] * 5))
    with pytest.raises(BadData, match="LCI, UCI, got"):
        load_malaria(geotiff(tmp_path / "odd.tif", [value] * 2, ["value", "population"]))
    with pytest.raises(BadData, match="NoData everywhere"):
        load_malaria(geotiff(tmp_path / "empty.tif", [np.full((3, 4), -9999.0)]))
