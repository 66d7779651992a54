"""The synthetic field: named as such, repeatable, and with the numbers it claims."""

import logging

import numpy as np
import pytest
import torch
from scipy.optimize import curve_fit

from problems import load_malaria
from problems.malaria.field import CELL_DEGREES, INCIDENCE, PREVALENCE, draw_cells


def variogram(lon, lat, value, reach=2.0):
    """Mean half squared difference of cell pairs by distance, brute force over grid shifts."""
    i = np.rint((lon - lon.min()) / CELL_DEGREES).astype(int)
    j = np.rint((lat - lat.min()) / CELL_DEGREES).astype(int)
    grid = np.full((i.max() + 1, j.max() + 1), np.nan)
    grid[i, j] = value
    shifts = range(1, int(reach / CELL_DEGREES))
    pairs = [(s, grid[s:] - grid[:-s]) for s in shifts]
    pairs += [(s, grid[:, s:] - grid[:, :-s]) for s in shifts]
    lag = np.array([s * CELL_DEGREES for s, d in pairs])
    return lag, np.array([0.5 * np.nanmean(d**2) for _, d in pairs])


@pytest.mark.parametrize("spec", [INCIDENCE, PREVALENCE], ids=["incidence", "prevalence"])
def test_the_field_has_the_variogram_it_is_calibrated_to(spec):
    nugget, sill, reach = [], [], []
    for seed in range(8):
        c = draw_cells(spec, 20_000, seed)
        lag, gamma = variogram(c.longitude, c.latitude, np.log(c.mean))
        fit, _ = curve_fit(
            lambda h, n, s, r: n + s * (1 - np.exp(-h / r)), lag, gamma, p0=[0.01, 0.1, 1.0]
        )
        nugget.append(fit[0]), sill.append(fit[0] + fit[1]), reach.append(fit[2])
    # one realisation over a country says little about its range: medians over seeds
    assert 0.6 * spec.range_degrees < np.median(reach) < 1.6 * spec.range_degrees
    assert np.median(nugget) == pytest.approx(spec.nugget * spec.log_sd**2, rel=0.5)
    assert np.median(sill) == pytest.approx(spec.log_sd**2, rel=0.4)


@pytest.mark.parametrize("seed", range(4))
def test_the_standard_deviation_is_a_third_of_the_value(seed):
    data = load_malaria(cells=20_000, seed=seed)
    ratio = (data.Yvar.sqrt() / data.Y).mean().item()
    assert ratio == pytest.approx(0.33, abs=0.02)
    assert data.Y.min() > 0


def test_it_is_named_synthetic_and_shaped_like_a_country():
    data = load_malaria()
    assert data.synthetic and not data.derived_std and data.year is None
    assert "synthetic" in data.name and "ynthetic" in data.attribution
    assert data.X.shape == (20_000, 2) and data.Y.shape == data.Yvar.shape == (20_000, 1)
    assert data.X.dtype == data.Y.dtype == data.Yvar.dtype == torch.float64
    assert torch.equal(data.X.amin(0), torch.zeros(2, dtype=torch.float64))
    assert torch.equal(data.X.amax(0), torch.ones(2, dtype=torch.float64))
    lonlat = data.lonlat()
    steps = torch.unique(lonlat[:, 0]).diff()
    torch.testing.assert_close(steps, torch.full_like(steps, 2.5 / 60))
    west, east, south, north = data.extent
    box = (east - west + CELL_DEGREES) * (north - south + CELL_DEGREES) / CELL_DEGREES**2
    assert 0.3 < 20_000 / box < 0.95  # irregular: well inside its bounding box


def test_the_seed_decides_everything():
    a, b, c = (load_malaria(cells=5000, seed=s) for s in (3, 3, 4))
    assert torch.equal(a.X, b.X) and torch.equal(a.Y, b.Y) and torch.equal(a.Yvar, b.Yvar)
    assert not torch.equal(a.Y, c.Y)


def test_it_says_so_once(caplog):
    from problems.malaria import loader

    loader._say_synthetic.cache_clear()
    with caplog.at_level(logging.WARNING):
        load_malaria(cells=100)
        load_malaria(cells=100)
    assert sum("SYNTHETIC" in r.message for r in caplog.records) == 1


@pytest.mark.parametrize("cells", [0, 15, 200_001])
def test_an_absurd_number_of_cells_is_refused(cells):
    with pytest.raises(ValueError, match="16 <= cells"):
        load_malaria(cells=cells)
