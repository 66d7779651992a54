"""Malaria tables and rasters made up."""

import numpy as np
import pandas as pd
import pytest


def cells(n=4, **columns):
    """An n x n grid of cells as a frame; keyword arguments override or add columns."""
    lat, lon = np.meshgrid(10 + np.arange(n) / 24, 5 + np.arange(n) / 24, indexing="ij")
    frame = pd.DataFrame(
        {
            "longitude": lon.ravel(),
            "latitude": lat.ravel(),
            "year": 2017,
            "mean": np.linspace(0.1, 0.4, n * n),
        }
    )
    return frame.assign(**columns)


def geotiff(path, bands, descriptions=None, crs="EPSG:4326", nodata=-9999.0, **extra):
    rasterio = pytest.importorskip("rasterio", reason="the extra geo is not installed")
    bands = np.asarray(bands, dtype="float32")
    profile = {
        "driver": "GTiff",
        "count": len(bands),
        "height": bands.shape[1],
        "width": bands.shape[2],
        "dtype": "float32",
        "crs": crs,
        "nodata": nodata,
        "transform": rasterio.transform.from_origin(5.0, 10.0, 1 / 24, 1 / 24),
    }
    with rasterio.open(path, "w", **(profile | extra)) as file:
        file.write(bands)
        if descriptions:
            file.descriptions = descriptions
    return path


def value_bands(nodata=-9999.0):
    value = np.linspace(0.1, 0.5, 12).reshape(3, 4)
    value[0, 0] = nodata
    mask = np.ones_like(value)
    return {"value": value, "mask": mask, "LCI": 0.8 * value, "UCI": 1.2 * value}
