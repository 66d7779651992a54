"""``load_malaria``: the synthetic field, files of four kinds, and the download service."""

from __future__ import annotations

import logging
import os
from functools import cache
from pathlib import Path

from problems.errors import BadData
from problems.files import locate
from problems.malaria.columns import Columns, Labels, build
from problems.malaria.dataset import Malaria
from problems.malaria.field import INCIDENCE, PREVALENCE, draw_cells
from problems.malaria.quantities import (
    SYNTHETIC_ATTRIBUTION,
    UNKNOWN_UNITS,
    Quantity,
    attribution,
    quantity_named,
    quantity_of_file,
    release_of_file,
)
from problems.malaria.raster import read_raster, year_in_name
from problems.malaria.sources import read_csv, read_hdf
from problems.malaria.wcs import RELEASE, WCS_URL, fetch

_log = logging.getLogger(__name__)
_SUFFIXES = (".csv.gz", ".csv", ".tiff", ".tif", ".hdf5", ".h5")
_FILE_REMEDY = (
    "Or call load_malaria() without arguments for the synthetic field, or load_malaria("
    "country='NGA', year=2017, download=True) to fetch a raster."
)


def load_malaria(
    source: str | os.PathLike[str] | None = None,
    country: str | None = None,
    year: int | str | None = None,
    *,
    quantity: str | None = None,
    download: bool = False,
    drop_outliers: bool = False,
    cells: int = 20_000,
    seed: int = 0,
    release: str | None = None,
    url: str = WCS_URL,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Malaria:
    """Load one year of a malaria raster, or a synthetic field that resembles one.

    Without arguments: the seeded synthetic field (``synthetic=True``), announced once in the log.
    With ``source``: the file, read in place. With ``country``, ``year`` and ``download=True``: the
    Malaria Atlas Project's WCS service, cached with a checksum. Nothing is downloaded otherwise.

    Files and their columns:

    * CSV or CSV.gz: ``longitude``, ``latitude`` (degrees WGS84, cell centre), ``year`` (calendar),
      ``mean`` (the value), optionally ``lower``, ``upper`` (published 95 % interval) and
      ``std_dev``, all in the value's units. Without ``std_dev`` it is
      (upper - lower) / (2 * 1.959964) and the result is labelled ``derived_std``, as for a
      ``std_dev`` equal to this.
    * GeoTIFF (extra ``geo``): bands value[, mask][, LCI, UCI], NoData -9999; the year is read from
      the file name unless ``year`` is given.
    * HDF5 of the WISKI study (extra ``hdf``): frame ``full`` with longitude, latitude, year, mean,
      std_dev, is_ng; only rows with ``is_ng == 1`` are read.

    The value is P. falciparum clinical incidence, cases per person per year (``incidence``), or the
    parasite rate PfPR2-10, a fraction (``pfpr``). Cells with missing numbers, repeated rows and
    cells with a zero standard deviation are dropped and counted in ``dropped``.

    Args:
        source: Path of a file, or its bare name (ending optional) under ``BO_STREAM_DATA``.
        country: ISO 3166-1 alpha-3 code. Keeps the cells in the country's bounding box, counts
            the others of a table in ``dropped``, and warns about files that seem to be of another
            country. The service returns the whole box, including cells of neighbouring countries
            (clip the raster to the border to avoid this). For HDF5 only ``NGA`` is possible.
        year: Calendar year, a number or its digits; required if the source has several.
        quantity: ``incidence`` or ``pfpr``. By default taken from the file name; ``incidence`` for
            the synthetic field, the HDF5 layout and downloads.
        download: Allow the request to the service.
        drop_outliers: Drop zeros and isolated extreme cells, by the rule in
            :func:`problems.malaria.columns.build`.
        cells: Number of synthetic cells, 16 to 200,000.
        seed: Seed of the synthetic field.
        release: Release of the Malaria Atlas Project: the one to request (default: 202508), or that
            of a file, for its attribution (default: the prefix of its name).
        url: WCS endpoint, without a query.
        cache_dir: Folder for downloads; default: the user's cache folder.

    Raises:
        DataNotFound: if ``source`` does not exist.
        BadData: if a source is malformed or the arguments contradict each other.
        MissingExtra: if a required optional package is missing.
        DownloadFailed: if the service does not return a valid raster.

    Example:
        >>> data = load_malaria(cells=5000, seed=1)
        >>> data.X.shape, data.Y.shape, data.synthetic
        (torch.Size([5000, 2]), torch.Size([5000, 1]), True)
    """
    year = None if year is None else _whole(year)
    if source is not None and download:
        raise BadData(
            "Expected source or download=True, got both. Leave source out to fetch the raster of "
            "country and year; leave download out to read the file."
        )
    if download:
        return _downloaded(
            country, year, quantity, drop_outliers, release or RELEASE, url, cache_dir
        )
    if source is not None:
        path = locate(source, suffixes=_SUFFIXES, remedy=_FILE_REMEDY)
        release = release or release_of_file(path.name)
        return _from_file(path, country, year, quantity, drop_outliers, release)
    if country is not None or year is not None:
        raise BadData(
            f"Expected a source for country={country!r}, year={year!r}, got none. Pass the path of "
            "a file as source, or download=True (with country and year) to fetch it; without any "
            "of these arguments load_malaria gives the synthetic field."
        )
    return _synthetic(quantity, cells, seed)


def _synthetic(quantity: str | None, cells: int, seed: int) -> Malaria:
    name = quantity_named(quantity or "incidence").name
    spec = INCIDENCE if name == "incidence" else PREVALENCE
    drawn = draw_cells(spec, cells, seed)
    _say_synthetic()
    columns: Columns = {
        "longitude": drawn.longitude,
        "latitude": drawn.latitude,
        "mean": drawn.mean,
        "std_dev": drawn.std_dev,
    }
    labels = Labels(f"synthetic_{name}_seed{seed}", spec.units, SYNTHETIC_ATTRIBUTION, True)
    return build(columns, labels)


@cache
def _say_synthetic() -> None:
    _log.warning(
        "load_malaria: no source given, using the SYNTHETIC malaria field. For real data pass the "
        "path of a file as source, or country, year and download=True."
    )


def _whole(year: int | str) -> int:
    try:
        number = float(year)
    except (TypeError, ValueError):
        number = float("nan")
    if not number.is_integer():
        raise BadData(f"Expected year to be a calendar year such as 2017, got {year!r}.")
    return int(number)


def _from_file(
    path: Path,
    country: str | None,
    year: int | None,
    quantity: str | None,
    drop_outliers: bool,
    release: str | None,
) -> Malaria:
    named = quantity_named(quantity) if quantity else quantity_of_file(path.name)
    lowered, kind = path.name.lower(), ""
    if lowered.endswith((".tif", ".tiff")):
        columns = read_raster(path, country)
        year = _raster_year(path.name, year)
    elif lowered.endswith((".csv", ".csv.gz")):
        columns, kind = read_csv(path), "converted from GeoTIFF to CSV"
    elif lowered.endswith((".hdf5", ".h5", ".hdf")):
        if country is not None and country.upper() != "NGA":
            raise BadData(
                f"{path.name}: expected country='NGA' or none (the layout marks Nigeria only), got "
                f"{country!r}."
            )
        country = None
        columns, kind = read_hdf(path), "converted to HDF5"
        named = named or quantity_named("incidence")
    else:
        raise BadData(
            f"{path.name}: expected a file ending in .csv, .csv.gz, .tif, .tiff, .hdf5 or .h5."
        )
    units = named.units if named else UNKNOWN_UNITS
    labels = Labels(_stem(path.name), units, attribution(release, kind))
    return build(columns, labels, year=year, country=country, drop_outliers=drop_outliers)


def _raster_year(filename: str, year: int | None) -> int | None:
    stated = year_in_name(filename)
    if year is not None and stated is not None and stated != year:
        raise BadData(
            f"{filename}: expected a raster of {year}, its name says {stated}. Pass the other "
            "file, or leave year out."
        )
    return year if year is not None else stated


def _stem(filename: str) -> str:
    for suffix in _SUFFIXES:
        if filename.lower().endswith(suffix):
            return filename[: -len(suffix)]
    return filename


def _downloaded(
    country: str | None,
    year: int | None,
    quantity: str | None,
    drop_outliers: bool,
    release: str,
    url: str,
    cache_dir: str | os.PathLike[str] | None,
) -> Malaria:
    if country is None or year is None:
        raise BadData(
            f"Expected country and year with download=True, got country={country!r}, "
            f"year={year!r}. Example: load_malaria(country='NGA', year=2017, download=True)."
        )
    asked: Quantity = quantity_named(quantity or "incidence")
    path = fetch(asked, country, year, release=release, url=url, cache_dir=cache_dir)
    credit = attribution(release)
    labels = Labels(f"map_{asked.name}_{country.upper()}_{year}", asked.units, credit)
    columns = read_raster(path)
    return build(columns, labels, year=year, country=country, drop_outliers=drop_outliers)
