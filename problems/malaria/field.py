"""A seeded synthetic field that resembles a malaria raster, for use without real data.

The log of the value is a Gaussian field of exponential covariance in degrees, plus a nugget, on a
2.5 arc-minute grid, drawn exactly by circulant embedding [Dietrich1997] and cut to an irregular
outline. The standard deviation of a cell follows its value through a second, independent field.

All parameters are estimates: method-of-moments variograms of the log value over all pairs of cells
up to 2 degrees apart (distance in degrees of longitude and latitude), with a least-squares fit of
nugget + sill (1 - exp(-h / range)):

=====================================  ======  =====  ======  ===================  ==============
raster                                 median  range  sill    nugget / total sill  sd / value
=====================================  ======  =====  ======  ===================  ==============
Senegal, incidence, 2017               0.0656  1.09   0.106   0.023                0.33 (med 0.32)
Senegal, incidence, 2020               0.0736  1.13   0.0926  0.013                0.46
Nigeria, PfPR, 2021 (zeros left out)   0.293   0.96   0.0613  0.032                not published
Nigeria, PfPR, 2022 (zeros left out)   0.295   0.68   0.0399  0.054                not published
Benin, PfPR, 2017                      0.454   0.50   0.0617  0.000                0.17 (med 0.16)
=====================================  ======  =====  ======  ===================  ==============

Over windows of 1.5 to 4 degrees the ranges of these five are between 0.4 and 1.5 degrees where the
variogram levels off (Senegal 2017 has a trend beyond 2 degrees, which is not modelled).
log(sd / value) has a standard deviation of 0.26 for Senegal 2017 (range 1.0, no nugget, slope 0.09
in the log value) and 0.35 for Benin (range 1.3, slope -0.66).

``INCIDENCE`` uses Senegal 2017; ``PREVALENCE`` uses Nigeria 2021 with Benin's uncertainty. Both
fields are centred over the outline, so the medians hold for every seed.

References:
    [Dietrich1997] C. R. Dietrich, G. N. Newsam. Fast and Exact Simulation of Stationary Gaussian
        Processes through Circulant Embedding of the Covariance Matrix. SIAM J. Sci. Comput. 18,
        1997.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CELL_DEGREES = 2.5 / 60.0  # 2.5 arc-minutes, about 5 km


@dataclass(frozen=True)
class FieldSpec:
    """Calibrated numbers of a synthetic field; see the module's table.

    Attributes:
        median: Median of the value, in the raster's units.
        log_sd: Standard deviation of the log value, nugget included (root of the total sill).
        range_degrees: Range r of exp(-h / r), degrees; of both fields.
        nugget: Share of the log value's variance that is white noise between cells.
        std_ratio: Median of std_dev / value.
        std_log_sd: Residual standard deviation of log(std_dev / value) given the value.
        std_slope: Slope of log(std_dev / value) against the log value.
        units: Units of the value.
    """

    median: float
    log_sd: float
    range_degrees: float
    nugget: float
    std_ratio: float
    std_log_sd: float
    std_slope: float
    units: str


INCIDENCE = FieldSpec(
    median=0.0656,
    log_sd=0.329,
    range_degrees=1.09,
    nugget=0.023,
    std_ratio=0.317,
    std_log_sd=0.257,
    std_slope=0.0,
    units="P. falciparum clinical cases per person per year, all ages",
)
PREVALENCE = FieldSpec(
    median=0.293,
    log_sd=0.252,
    range_degrees=0.96,
    nugget=0.032,
    std_ratio=0.157,
    std_log_sd=0.319,
    std_slope=-0.66,
    units="PfPR2-10: fraction (0-1) of children aged 2-10 with detectable P. falciparum",
)


@dataclass(frozen=True, eq=False)
class FieldCells:
    """Synthetic raster cells, north to south and west to east: four arrays of length ``n``."""

    longitude: Array
    latitude: Array
    mean: Array
    std_dev: Array


def draw_cells(spec: FieldSpec, cells: int, seed: int) -> FieldCells:
    """Draw exactly ``cells`` raster cells; the same ``seed`` gives the same cells.

    O(N log N) time and O(N) memory in the N (a few hundred thousand) cells of the embedding grid.

    Raises:
        ValueError: if ``cells`` is not between 16 and 200,000.
    """
    if not 16 <= cells <= 200_000:
        raise ValueError(
            f"Expected 16 <= cells <= 200000 (a country has 5,000 to 45,000), got {cells}."
        )
    rng = np.random.default_rng(seed)
    inside = _outline(cells, rng)
    z_value, z_std = _exponential_pair(inside.shape, spec.range_degrees, rng)
    z_value, z_std = (z - z[inside].mean() for z in (z_value, z_std))
    white = rng.standard_normal(inside.shape)
    log_value = spec.log_sd * (
        math.sqrt(1.0 - spec.nugget) * z_value + math.sqrt(spec.nugget) * white
    )
    log_ratio = spec.std_slope * log_value + spec.std_log_sd * z_std
    row, column = np.nonzero(inside)
    mean = spec.median * np.exp(log_value[inside])
    return FieldCells(
        longitude=np.asarray(CELL_DEGREES * (column + 0.5), dtype=np.float64),
        latitude=np.asarray(CELL_DEGREES * (inside.shape[0] - row - 0.5), dtype=np.float64),
        mean=mean,
        std_dev=mean * spec.std_ratio * np.exp(log_ratio[inside]),
    )


def _outline(cells: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """A region of exactly ``cells`` cells; its log radius is a random low-order Fourier series."""
    side = math.ceil(3.0 * math.sqrt(cells))
    y, x = np.mgrid[:side, :side] - (side - 1) / 2.0
    angle = np.arctan2(y, x)
    log_radius = np.zeros_like(angle)
    for order in range(1, 9):
        amplitude, phase = rng.normal(0.0, 0.22 / order), rng.uniform(0.0, 2.0 * math.pi)
        log_radius += amplitude * np.cos(order * angle + phase)
    score = np.hypot(x, y) * np.exp(-log_radius)
    nearest = np.argsort(score, axis=None, kind="stable")[:cells]
    inside = np.isin(np.arange(side * side), nearest).reshape(side, side)
    return inside[np.ix_(inside.any(axis=1), inside.any(axis=0))]


def _exponential_pair(
    shape: tuple[int, ...], range_degrees: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Two independent unit-variance fields with covariance exp(-h / range) on the grid."""
    # A torus at least twice the grid and wide enough for the covariance to die out.
    reach = math.ceil(12.0 * range_degrees / CELL_DEGREES)
    size = [1 << math.ceil(math.log2(max(2 * extent, extent + reach))) for extent in shape]
    wrap = [CELL_DEGREES * np.minimum(np.arange(n), n - np.arange(n)) for n in size]
    covariance = np.exp(-np.hypot(wrap[0][:, None], wrap[1][None, :]) / range_degrees)
    eigenvalues = np.fft.fft2(covariance).real
    clipped = -eigenvalues[eigenvalues < 0.0].sum() / eigenvalues.sum()
    if clipped > 1e-4:
        raise RuntimeError(
            f"Circulant embedding is not positive (share {clipped:.1e} of the variance); "
            f"expected a range well below the grid, got {range_degrees} degrees."
        )
    noise = rng.standard_normal((2, *size))
    spectrum = np.sqrt(np.clip(eigenvalues, 0.0, None) * eigenvalues.size)
    # Real and imaginary part are independent draws [Dietrich1997, section 3].
    fields = np.fft.ifft2(spectrum * (noise[0] + 1j * noise[1]))
    grid = (slice(0, shape[0]), slice(0, shape[1]))
    return fields.real[grid], fields.imag[grid]
