"""Reading GeoTIFFs of the Malaria Atlas Project, from its web application or its WCS."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from problems.errors import BadData
from problems.files import need
from problems.malaria.columns import NODATA, Array, Columns
from problems.malaria.countries import Box, box_of, warn_of_another_country

# II*\0 and MM\0*, and their BigTIFF forms.
TIFF_MAGIC = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
_BY_COUNT = {
    1: ("mean",),
    2: ("mean", "mask"),
    3: ("mean", "lower", "upper"),
    4: ("mean", "mask", "lower", "upper"),
}
_MAX_CELLS = 2_000_000


def is_tiff(path: Path) -> bool:
    """Whether the first four bytes are those of a TIFF or BigTIFF file."""
    with path.open("rb") as file:
        return file.read(4) in TIFF_MAGIC


def year_in_name(filename: str) -> int | None:
    """The one four-digit year in a file name such as ``202508_..._BEN_2017.tiff``, or None."""
    years = {int(y) for y in re.findall(r"(?<!\d)((?:19|20)\d\d)(?!\d)", filename)}
    return years.pop() if len(years) == 1 else None


def read_raster(path: Path, country: str | None = None) -> Columns:
    """Cells with a value, north to south and west to east, as columns of centres and values.

    Bands are identified by their descriptions (``Mask...``, ``LCI``, ``UCI``) or, without these, by
    their number: value; value, mask; value, LCI, UCI; value, mask, LCI, UCI. The mask is the
    project's hint for drawing (aridity, no transmission) and drops nothing; NoData (-9999) does.
    It needs rasterio (extra ``geo``).

    Args:
        path: The file.
        country: Read only the window of this country's bounding box.

    Raises:
        MissingExtra: without rasterio.
        BadData: for a file that is not a TIFF, is truncated, is not in longitude and latitude, has
            no or more than two million cells, or has other bands.
    """
    rasterio = need("rasterio", "geo", f"Reading {path.name} (GeoTIFF)")
    if not is_tiff(path):
        raise BadData(
            f"{path.name}: expected a GeoTIFF (first bytes II*\\0 or MM\\0*), got something else. "
            "A saved error page of the server looks like this: look inside, fetch it again."
        )
    try:
        with rasterio.open(path) as file:
            roles = _roles(file.count, file.descriptions, path.name)
            if file.crs is not None and not file.crs.is_geographic:
                raise BadData(
                    f"{path.name}: expected longitude and latitude (EPSG:4326), got {file.crs}. "
                    "Warp it first: gdalwarp -t_srs EPSG:4326 in.tif out.tif"
                )
            place = file.transform
            if place.b != 0.0 or place.d != 0.0 or place.a <= 0.0 or place.e >= 0.0:
                raise BadData(
                    f"{path.name}: expected a north-up raster with a position, got transform "
                    f"{tuple(place)[:6]}. Warp it first: gdalwarp -t_srs EPSG:4326 in.tif out.tif"
                )
            lon = place.c + place.a * (np.arange(file.width) + 0.5)
            lat = place.f + place.e * (np.arange(file.height) + 0.5)
            rows, cols = _window(lat, lon, country, path.name)
            if (rows.stop - rows.start) * (cols.stop - cols.start) > _MAX_CELLS:
                raise BadData(
                    f"{path.name}: expected a country, got {rows.stop - rows.start} x "
                    f"{cols.stop - cols.start} cells. Pass country='NGA' (or another) to cut it."
                )
            window = ((rows.start, rows.stop), (cols.start, cols.stop))
            nodata = [NODATA if value is None else value for value in file.nodatavals]
            bands = {
                role: _band(file.read(index + 1, window=window), nodata[index])
                for index, role in enumerate(roles)
                if role != "mask"
            }
    except rasterio.errors.RasterioError as error:
        raise BadData(
            f"{path.name}: expected a complete GeoTIFF, could not read it ({error}). It may be "
            "truncated: fetch it again."
        ) from error
    row, column = np.nonzero(np.isfinite(bands["mean"]))
    if len(row) == 0:
        raise BadData(f"{path.name}: expected cells with values, got NoData everywhere.")
    columns: Columns = {"longitude": lon[cols][column], "latitude": lat[rows][row]}
    columns.update({role: values[row, column] for role, values in bands.items()})
    return columns


def _roles(count: int, descriptions: Sequence[str | None], name: str) -> tuple[str, ...]:
    if count not in _BY_COUNT:
        raise BadData(
            f"{name}: expected 1 to 4 bands (value, mask, LCI, UCI), got {count}. Is this a stack "
            "of years? Pass one year a file."
        )
    words = [(text or "").strip().lower() for text in descriptions]
    if not any(words[1:]):
        return _BY_COUNT[count]
    known = {"lci": "lower", "uci": "upper"}
    roles = ["mean"] + ["mask" if w.startswith("mask") else known.get(w, "?") for w in words[1:]]
    if "?" in roles or len(set(roles)) != len(roles):
        raise BadData(
            f"{name}: expected the bands value, Mask, LCI, UCI, got {list(descriptions)}. Keep "
            "those with gdal_translate -b, value first."
        )
    return tuple(roles)


def _band(values: Array, nodata: float) -> Array:
    stored = np.asarray(values)
    band = stored.astype(np.float64)
    # Compared as stored: -3.4e38 written as float32 differs from its float64 spelling.
    band[(stored == np.asarray(nodata).astype(stored.dtype)) | (band == NODATA)] = np.nan
    return band


def _window(lat: Array, lon: Array, country: str | None, name: str) -> tuple[slice, slice]:
    if country is None:
        return slice(0, len(lat)), slice(0, len(lon))
    west, east, south, north = box = box_of(country)
    rows = np.nonzero((lat >= south) & (lat <= north))[0]
    cols = np.nonzero((lon >= west) & (lon <= east))[0]
    if len(rows) == 0 or len(cols) == 0:
        raise BadData(_outside(name, country, box))
    warn_of_another_country(name, country, lon, lat)
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(cols[0]), int(cols[-1]) + 1)


def _outside(name: str, country: str, box: Box) -> str:
    return (
        f"{name}: expected cells in the bounding box of {country.upper()} (west, east, south, "
        f"north = {box}), got none. Is this the file of another country?"
    )
