"""Bounding boxes of the countries supported in Malaria Atlas Project requests."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from problems.errors import BadData

Box = tuple[float, float, float, float]

# (west, east, south, north), degrees WGS84, rounded outward to about 0.1 degrees; mainland and near
# islands.
BOXES: dict[str, Box] = {
    "AGO": (11.4, 24.2, -18.2, -4.3),
    "BDI": (28.9, 30.9, -4.5, -2.2),
    "BEN": (0.7, 3.9, 6.1, 12.5),
    "BFA": (-5.6, 2.5, 9.3, 15.2),
    "BWA": (19.9, 29.5, -27.0, -17.7),
    "CAF": (14.4, 27.6, 2.1, 11.1),
    "CIV": (-8.7, -2.4, 4.2, 10.8),
    "CMR": (8.4, 16.3, 1.6, 13.2),
    "COD": (12.1, 31.4, -13.6, 5.5),
    "COG": (11.0, 18.8, -5.2, 3.8),
    "COM": (43.1, 44.6, -12.5, -11.3),
    "ERI": (36.3, 43.3, 12.3, 18.1),
    "ETH": (32.9, 48.1, 3.3, 15.0),
    "GAB": (8.6, 14.6, -4.1, 2.4),
    "GHA": (-3.4, 1.3, 4.6, 11.3),
    "GIN": (-15.2, -7.6, 7.1, 12.8),
    "GMB": (-16.9, -13.7, 13.0, 13.9),
    "GNB": (-16.9, -13.6, 10.8, 12.8),
    "GNQ": (8.3, 11.4, 0.8, 3.9),
    "KEN": (33.8, 42.0, -4.8, 5.6),
    "LBR": (-11.6, -7.3, 4.2, 8.7),
    "MDG": (43.1, 50.6, -25.7, -11.8),
    "MLI": (-12.4, 4.4, 10.0, 25.1),
    "MOZ": (30.1, 41.0, -27.0, -10.3),
    "MRT": (-17.2, -4.7, 14.6, 27.4),
    "MWI": (32.6, 36.0, -17.3, -9.3),
    "NAM": (11.6, 25.4, -29.1, -16.8),
    "NER": (0.1, 16.1, 11.6, 23.6),
    "NGA": (2.6, 14.8, 4.2, 14.0),
    "RWA": (28.8, 31.0, -2.9, -1.0),
    "SDN": (21.7, 38.7, 8.6, 22.3),
    "SEN": (-17.7, -11.3, 12.2, 16.8),
    "SLE": (-13.4, -10.2, 6.8, 10.1),
    "SOM": (40.9, 51.5, -1.8, 12.1),
    "SSD": (23.4, 36.0, 3.4, 12.3),
    "SWZ": (30.7, 32.2, -27.4, -25.7),
    "TCD": (13.4, 24.1, 7.4, 23.5),
    "TGO": (-0.2, 1.9, 6.0, 11.2),
    "TZA": (29.3, 40.6, -11.8, -0.9),
    "UGA": (29.5, 35.1, -1.5, 4.3),
    "ZAF": (16.4, 33.0, -34.9, -22.1),
    "ZMB": (21.9, 33.8, -18.1, -8.1),
    "ZWE": (25.2, 33.1, -22.5, -15.5),
}


MARGIN = 0.5
"""Tolerance, in degrees, by which cells may fall short of their country's box."""


def box_of(country: str) -> Box:
    """Bounding box of a country.

    Args:
        country: ISO 3166-1 alpha-3 code, any case.

    Raises:
        BadData: for an unsupported code.
    """
    code = country.upper()
    if code not in BOXES:
        raise BadData(
            f"Expected country to be one of {', '.join(sorted(BOXES))} (ISO 3166-1 alpha-3), got "
            f"{country!r}. For another country clip the raster to it and pass the file as source."
        )
    return BOXES[code]


def warn_of_another_country(
    name: str, country: str, lon: NDArray[np.float64], lat: NDArray[np.float64]
) -> None:
    """Warn if cells extend beyond a country's box on one side and fall short of it on another.

    A file of the country lies inside its box, and one of a continent covers the box. Any other
    file is likely to be a neighbour's, of which the box keeps a strip.
    """
    west, east, south, north = box_of(country)
    got = [float(v) for v in (lon.min(), lon.max(), lat.min(), lat.max())]
    beyond = np.array([west - got[0], got[1] - east, south - got[2], got[3] - north])
    if (beyond > 0.0).any() and (beyond < -MARGIN).any():
        warnings.warn(
            f"{name}: expected cells inside the bounding box of {country.upper()} (west, east, "
            f"south, north = {box_of(country)}), or over all of it, got cells in "
            f"({', '.join(f'{v:.2f}' for v in got)}): keeping those in the box. If this is the "
            "file of another country, name that one, or leave country out to keep every cell.",
            stacklevel=2,
        )
