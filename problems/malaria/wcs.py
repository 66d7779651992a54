"""Requests to the Malaria Atlas Project's Web Coverage Service for one country and year.

Nothing is requested unless a caller passes ``download=True``.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from problems.errors import BadData, DownloadFailed
from problems.files import need
from problems.malaria.countries import box_of
from problems.malaria.quantities import Quantity, attribution
from problems.malaria.raster import is_tiff, read_raster

_log = logging.getLogger(__name__)

WCS_URL = "https://data.malariaatlas.org/geoserver/Malaria/ows"
RELEASE = "202508"
TIMEOUT_SECONDS = 120.0
_REMEDY = (
    "Instead: fetch the GeoTIFF by hand from https://data.malariaatlas.org and pass its path as "
    "source, or call load_malaria() without arguments for the synthetic field."
)


def coverage_url(url: str, quantity: Quantity, release: str, country: str, year: int) -> str:
    """A WCS 2.0.1 GetCoverage request for the bounding box of a country."""
    west, east, south, north = box_of(country)
    query = [
        ("service", "WCS"),
        ("version", "2.0.1"),
        ("request", "GetCoverage"),
        ("coverageId", f"Malaria__{release}_{quantity.coverage}"),
        ("format", "image/geotiff"),
        ("subset", f"Long({west},{east})"),
        ("subset", f"Lat({south},{north})"),
        ("subset", f'time("{year}-01-01T00:00:00.000Z")'),
    ]
    return f"{url}?{urlencode(query, quote_via=quote, safe='(),/')}"


def fetch(
    quantity: Quantity,
    country: str,
    year: int,
    *,
    release: str = RELEASE,
    url: str = WCS_URL,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Path:
    """Path of the GeoTIFF, from the cache or the service. It needs pooch (extra ``data``).

    A response is kept only if it is a TIFF whose bands can all be read. Its SHA-256 is stored with
    it. A cached file that no longer matches is refused, and one without checksum (an interrupted
    download) is fetched again. The required attribution is logged.

    Raises:
        MissingExtra: without pooch, or without rasterio to check the answer.
        DownloadFailed: with the request and an alternative.
    """
    pooch = need("pooch", "data", "Downloading from the Malaria Atlas Project")
    need("rasterio", "geo", "Checking a downloaded GeoTIFF")
    request = coverage_url(url, quantity, release, country, year)
    folder = Path(cache_dir if cache_dir is not None else pooch.os_cache("bo_stream")).expanduser()
    tag = hashlib.sha256(request.encode()).hexdigest()[:8]
    path = folder / f"{release}_{quantity.coverage}_{country.upper()}_{year}_{tag}.tiff"
    recorded = path.with_suffix(".sha256")
    if path.is_file() and recorded.is_file():
        if pooch.file_hash(str(path)) != recorded.read_text().strip():
            raise DownloadFailed(
                f"Expected {path} to have the SHA-256 recorded in {recorded.name}, it has changed. "
                "Delete both files and ask again."
            )
    else:
        path.unlink(missing_ok=True)
        _retrieve(pooch, request, path)
        recorded.write_text(pooch.file_hash(str(path)) + "\n")
    _log.info("%s: %s. Keep this attribution.", path.name, attribution(release))
    return path


def _retrieve(pooch: Any, request: str, path: Path) -> None:
    def checked(url: str, output: str, pooch_object: Any) -> None:
        pooch.HTTPDownloader(timeout=TIMEOUT_SECONDS)(url, output, pooch_object)
        _believe(Path(output))

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pooch.retrieve(
            request, known_hash=None, fname=path.name, path=path.parent, downloader=checked
        )
    except (OSError, ValueError) as error:  # requests' errors are OSErrors, BadData a ValueError
        path.unlink(missing_ok=True)
        raise DownloadFailed(f"No raster from {request}: {error}. {_REMEDY}") from error


def _believe(path: Path) -> None:
    """Refuse a response that is not a complete TIFF."""
    if not is_tiff(path):
        start = path.read_bytes()[:200].decode("utf-8", errors="replace").strip()
        raise BadData(
            f"expected a GeoTIFF (first bytes II*\\0 or MM\\0*), the server sent: {start!r}"
        )
    read_raster(path)
