"""Conversion of a source's raw columns to a :class:`~problems.malaria.dataset.Malaria`.

Every source is read into the same named arrays (``longitude``, ``latitude``, ``mean``, optionally
``year``, ``lower``, ``upper``, ``std_dev``). All later steps are shared and implemented here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from problems.errors import BadData
from problems.malaria.countries import box_of, warn_of_another_country
from problems.malaria.dataset import Malaria

Array = NDArray[np.float64]
Columns = dict[str, Array]

REQUIRED = ("longitude", "latitude", "mean")
NUMBERS = (*REQUIRED, "lower", "upper", "std_dev")
NODATA = -9999.0
Z95 = 1.959964  # the 97.5 % point of a standard normal: half width of a 95 % interval in sd
DERIVED = "; std_dev derived from the published 95 % interval"
OUTLIER_FRACTION = 0.4


@dataclass(frozen=True)
class Labels:
    """The metadata of a :class:`Malaria`."""

    name: str
    units: str
    attribution: str
    synthetic: bool = False


def build(
    columns: Columns,
    labels: Labels,
    *,
    year: int | None = None,
    country: str | None = None,
    drop_outliers: bool = False,
) -> Malaria:
    """Select a year, clean, derive the standard deviation where needed, and scale. O(n log n).

    Args:
        columns: Arrays of one length ``n``; see the module.
        labels: Metadata of the result.
        year: Calendar year to keep; optional if the source has one year only.
        country: Keep only cells in this country's bounding box.
        drop_outliers: Also drop cells that are exactly zero (water) and cells that differ from the
            median of their eight nearest cells by more than 0.4 of the raster's largest value. On
            the 2021 and 2022 Nigeria PfPR rasters these are the 114 zeros and 3 isolated cells.

    Raises:
        BadData: for missing columns, several years with none chosen, an absent year, coordinates
            off the globe, negative values, crossed intervals, one cell given twice with different
            values, fewer than two cells left.
    """
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise BadData(
            f"{labels.name}: expected the columns longitude, latitude, mean[, year, lower, upper, "
            f"std_dev], got {sorted(columns)}; missing {missing}. Rename the columns, or pass a "
            "Malaria Atlas Project GeoTIFF."
        )
    dropped: Counter[str] = Counter()
    if "year" in columns:
        columns = _keep(columns, np.isfinite(columns["year"]), "missing", dropped)
    columns, year = _select_year(columns, year, labels.name)
    columns = {name: columns[name] for name in NUMBERS if name in columns}
    columns = {name: np.where(v == NODATA, np.nan, v) for name, v in columns.items()}
    columns = {name: v for name, v in columns.items() if name in REQUIRED or np.isfinite(v).any()}
    columns = _keep(columns, _complete(columns), "missing", dropped)
    _check_ranges(columns, labels.name)
    if country is not None:
        columns = _crop(columns, country, labels.name, dropped)
    columns = _keep(columns, _first_of_cell(columns, labels.name), "duplicate", dropped)
    std_dev, derived = _standard_deviation(columns)
    if std_dev is not None:
        columns = {**columns, "std_dev": std_dev}
        columns = _keep(columns, std_dev > 0.0, "zero_std", dropped)
    if drop_outliers:
        columns = _keep(columns, ~_outliers(columns), "outlier", dropped)
    X, extent = _unit_square(columns, labels.name)
    has_std = std_dev is not None
    return Malaria(
        X=X,
        Y=_column(columns["mean"]),
        Yvar=_column(columns["std_dev"] ** 2) if has_std else None,
        extent=extent,
        year=year,
        units=labels.units,
        attribution=labels.attribution + (DERIVED if derived else ""),
        derived_std=derived,
        synthetic=labels.synthetic,
        name=labels.name,
        dropped=dict(dropped),
    )


def _select_year(columns: Columns, year: int | None, name: str) -> tuple[Columns, int | None]:
    if "year" not in columns:
        return columns, year
    years = sorted({int(y) for y in columns["year"]})
    if year is None:
        if len(years) != 1:
            raise BadData(
                f"{name}: expected one year, the source has {years}. Pass one of them as year=..."
            )
        year = years[0]
    if year not in years:
        raise BadData(f"{name}: expected year to be one of {years}, got {year}.")
    chosen = columns["year"] == year
    return {key: v[chosen] for key, v in columns.items()}, year


def _complete(columns: Columns) -> NDArray[np.bool_]:
    """Cells with all required numbers; an interval is not required if a std_dev is given."""
    needed = set(columns)
    if "std_dev" in columns:
        needed -= {"lower", "upper"}
    finite = np.stack([np.isfinite(columns[key]) for key in sorted(needed)])
    return np.asarray(finite.all(axis=0), dtype=np.bool_)


def _keep(columns: Columns, kept: NDArray[np.bool_], reason: str, dropped: Counter[str]) -> Columns:
    count = int((~kept).sum())
    if count:
        dropped[reason] += count
    return {key: v[kept] for key, v in columns.items()}


def _check_ranges(columns: Columns, name: str) -> None:
    if (np.abs(columns["longitude"]) > 180.0).any() or (np.abs(columns["latitude"]) > 90.0).any():
        raise BadData(
            f"{name}: expected longitude in [-180, 180] and latitude in [-90, 90] degrees (WGS84), "
            "got values outside. Are the columns swapped, or the coordinates projected?"
        )
    if (columns["mean"] < 0.0).any():
        raise BadData(
            f"{name}: expected values >= 0, got {columns['mean'].min():g}. If that stands for "
            f"missing data, write {NODATA:g} or leave the field empty."
        )
    if (columns.get("std_dev", np.zeros(1)) < 0.0).any():
        raise BadData(f"{name}: expected std_dev >= 0, got {columns['std_dev'].min():g}.")
    if "lower" in columns and "upper" in columns and (columns["lower"] > columns["upper"]).any():
        raise BadData(f"{name}: expected lower <= upper in every cell. Are the columns swapped?")


def _crop(columns: Columns, country: str, name: str, dropped: Counter[str]) -> Columns:
    west, east, south, north = box_of(country)
    lon, lat = columns["longitude"], columns["latitude"]
    inside = (lon >= west) & (lon <= east) & (lat >= south) & (lat <= north)
    if not inside.any():
        raise BadData(
            f"{name}: expected cells in the bounding box of {country.upper()} (west, east, south, "
            f"north = {box_of(country)}), got none. Is this the file of another country?"
        )
    warn_of_another_country(name, country, lon, lat)
    return _keep(columns, inside, f"outside {country.upper()}", dropped)


def _first_of_cell(columns: Columns, name: str) -> NDArray[np.bool_]:
    """True at the first row of every cell; further rows of a cell must repeat its numbers."""
    where = np.stack([columns["longitude"], columns["latitude"]], axis=1)
    _, first, cell = np.unique(where, axis=0, return_index=True, return_inverse=True)
    source = first[cell.reshape(-1)]
    for key, v in columns.items():
        clash = (v != v[source]) & ~(np.isnan(v) & np.isnan(v[source]))
        if clash.any():
            row = int(np.nonzero(clash)[0][0])
            raise BadData(
                f"{name}: expected one value a cell, got {key} = {v[source[row]]:g} and {v[row]:g} "
                f"at longitude {where[row, 0]:g}, latitude {where[row, 1]:g} "
                f"({int(clash.sum())} such rows). Does the file mix quantities or releases?"
            )
    kept: NDArray[np.bool_] = np.isin(np.arange(len(source)), first)
    return kept


def _standard_deviation(columns: Columns) -> tuple[Array | None, bool]:
    """The standard deviation and whether it is derived from the interval."""
    from_interval = (
        (columns["upper"] - columns["lower"]) / (2.0 * Z95)
        if "lower" in columns and "upper" in columns
        else None
    )
    if "std_dev" not in columns:
        return from_interval, from_interval is not None
    given = columns["std_dev"]
    if from_interval is None:
        return given, False
    both = np.isfinite(from_interval)
    # A file keeps about six digits: equal up to that means computed from the interval.
    equal = np.allclose(given[both], from_interval[both], rtol=1e-3, atol=1e-6)
    return given, bool(both.any() and equal)


def _outliers(columns: Columns) -> NDArray[np.bool_]:
    where = np.stack([columns["longitude"], columns["latitude"]], axis=1)
    value = columns["mean"]
    if len(value) < 9:
        return value == 0.0
    _, neighbours = cKDTree(where).query(where, k=9)
    typical = np.median(value[neighbours[:, 1:]], axis=1)
    isolated = np.abs(value - typical) > OUTLIER_FRACTION * value.max()
    return np.asarray((value == 0.0) | isolated, dtype=np.bool_)


def _unit_square(columns: Columns, name: str) -> tuple[Tensor, tuple[float, float, float, float]]:
    lon, lat = columns["longitude"], columns["latitude"]
    if len(lon) < 2 or np.ptp(lon) == 0.0 or np.ptp(lat) == 0.0:
        raise BadData(
            f"{name}: expected cells at two or more longitudes and latitudes, got {len(lon)} cells "
            "after cleaning. Check year, country and the source."
        )
    extent = (float(lon.min()), float(lon.max()), float(lat.min()), float(lat.max()))
    west, east, south, north = extent
    unit = np.stack([(lon - west) / (east - west), (lat - south) / (north - south)], axis=1)
    return torch.from_numpy(np.ascontiguousarray(unit)), extent


def _column(values: Array) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float64)).unsqueeze(-1)
