"""What :func:`problems.load_malaria` returns: one year of one raster as a regression problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Malaria:
    """Cells of a malaria raster, or of the synthetic field that stands in for one.

    Attributes:
        X: ``n x 2`` cell centres (longitude, latitude), each axis scaled by itself to [0, 1];
            float64. One degree is therefore not one length in both axes: use ARD, or an isotropic
            kernel knowingly.
        Y: ``n x 1`` value of the cell, in ``units``, not standardised; float64.
        Yvar: ``n x 1`` squared standard deviation of the value, in ``units`` squared, or None where
            the source has no uncertainty.
        extent: (west, east, south, north) of the cell *centres*, degrees (WGS84 where real).
        year: Calendar year; None for the synthetic field and for a raster that does not say.
        units: What one unit of ``Y`` is.
        attribution: To be kept beside every figure and table made from the data; it says where the
            file is no original, and where the standard deviation is derived.
        derived_std: True where the standard deviation is (upper - lower) / (2 * 1.959964), taken
            from a published 95 % interval by us or by whoever made the file: not a published
            quantity. False where the source states a standard deviation and has no interval to
            compare it with, and where there is none.
        synthetic: True for the seeded synthetic field.
        name: Short name for tables and file names.
        dropped: Cells left out, counted by reason (``missing``, ``duplicate``, ``zero_std``,
            ``outlier``, and ``outside NGA`` or another country; of a GeoTIFF only the window of the
            country is read, and nothing outside is counted).
    """

    X: Tensor
    Y: Tensor
    Yvar: Tensor | None
    extent: tuple[float, float, float, float]
    year: int | None
    units: str
    attribution: str
    derived_std: bool
    synthetic: bool
    name: str = "malaria"
    dropped: Mapping[str, int] = field(default_factory=dict)

    def to_degrees(self, X: Tensor) -> Tensor:
        """Longitude and latitude in degrees of unit-square points, ``... x 2 -> ... x 2``."""
        west, east, south, north = self.extent
        low = torch.tensor([west, south], dtype=X.dtype, device=X.device)
        high = torch.tensor([east, north], dtype=X.dtype, device=X.device)
        return low + X * (high - low)

    def lonlat(self) -> Tensor:
        """``n x 2`` longitude and latitude of the cells in degrees."""
        return self.to_degrees(self.X)
