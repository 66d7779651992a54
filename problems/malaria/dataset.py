"""The result of :func:`problems.load_malaria`: one year of a raster as a regression problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Malaria:
    """Cells of a malaria raster, or of a synthetic field that resembles one.

    Attributes:
        X: ``n x 2`` cell centres (longitude, latitude), each axis scaled separately to [0, 1];
            float64. A degree has different lengths on the two axes, so use ARD, or be aware of it
            with an isotropic kernel.
        Y: ``n x 1`` value of the cell, in ``units``, not standardised; float64.
        Yvar: ``n x 1`` squared standard deviation of the value, in ``units`` squared, or None where
            the source has no uncertainty.
        extent: (west, east, south, north) of the cell *centres*, degrees (WGS84 where real).
        year: Calendar year; None for the synthetic field and for a raster that does not say.
        units: Unit of ``Y``.
        attribution: Must accompany every figure and table made from the data. It states if the
            file was converted, and if the standard deviation is derived.
        derived_std: True if the standard deviation is (upper - lower) / (2 * 1.959964), computed
            from a published 95 % interval here or by the file's creator. False if the source states
            a standard deviation without an interval to compare with, and if there is none.
        synthetic: True for the seeded synthetic field.
        name: Short name for tables and file names.
        dropped: Number of dropped cells by reason (``missing``, ``duplicate``, ``zero_std``,
            ``outlier``, and ``outside NGA`` or another country). Of a GeoTIFF only the window of
            the country is read; cells outside are not counted.
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
