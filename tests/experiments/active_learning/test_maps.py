"""Maps: cells as images in true proportions, with units, attribution and words."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from experiments.active_learning.campaigns import load_cells
from experiments.active_learning.maps import described, draw_maps, rasterised
from experiments.active_learning.study import draw_errors, plan
from experiments.common.command import CONFIGS, parsed


def test_cells_become_an_image_with_gaps():
    lonlat = np.array([[10.0, 5.0], [10.5, 5.0], [10.0, 5.25], [11.0, 5.25]])
    image = rasterised(lonlat, np.arange(4.0))
    expected = np.array([[2.0, np.nan, 3.0], [0.0, 1.0, np.nan]])
    np.testing.assert_array_equal(image, expected)


def test_maps_keep_the_shape_of_a_country_and_say_what_is_drawn(tmp_path, kept):
    c = parsed(CONFIGS / "malaria_senegal.toml")
    c |= {"steps": 1, "policies": ["random"], "surrogates": ["wiski"]}
    run = plan(c, smoke=True)[0]
    cells = load_cells(run.c)
    north_of = replace(cells, extent=(1.0, 4.0, 55.0, 61.0), attribution="so and so " * 30)
    campaign = run.campaign()
    campaign.start()
    draw_maps(campaign, north_of, tmp_path / "map.png", title="a title")
    (figure,) = kept
    maps = [ax for ax in figure.axes if ax.get_title()]
    bars = [ax for ax in figure.axes if not ax.get_title()]
    assert len(maps) == len(bars) == 4
    for ax in maps:
        box = ax.get_window_extent()
        west, east, south, north = *ax.get_xlim(), *ax.get_ylim()
        assert west < 1.0 and north > 61.0  # the edges of cells, not their centres
        degrees = (north - south) / (east - west)
        assert box.height / box.width == pytest.approx(degrees / np.cos(np.radians(58)), rel=0.02)
    assert all(bar.get_ylabel().replace("\n", " ") == cells.units for bar in bars)
    (caption,) = [t for t in figure.texts if "so and so" in t.get_text()]
    inside = caption.get_window_extent()
    assert (
        caption.get_fontsize() >= 7 and " ".join(caption.get_text().split()).count("so and") == 30
    )
    assert inside.x0 >= 0 and inside.y0 >= 0 and inside.x1 <= figure.bbox.x1
    assert inside.y1 < min(ax.get_tightbbox().y0 for ax in maps)
    (points,) = maps[3].collections
    assert points.get_sizes().tolist() == [6] and len(points.get_offsets()) == 10


def test_a_campaign_is_described_in_words():
    facts = {
        "cells": "synthetic_incidence_seed0",
        "surrogate": "WISKI, 16 x 16 nodes",
        "policy": "nipv",
    }
    facts |= {"observation": "known noise", "kernel": "ard", "seed": "0"}
    assert described(facts) == (
        "Synthetic incidence seed0: WISKI, 16 x 16 nodes; integrated variance (NIPV); readings "
        "with known noise; a lengthscale for each axis; seed 0"
    )


def test_pictures_of_errors_have_words_and_units(tmp_path, kept):
    facts = {"surrogate": "exact", "policy": "nipv", "observation": "raster", "kernel": "ard"}
    facts["cells"] = "benin_in_2017"
    rows = {"step": [0, 1], "wallclock_seconds": [1.0, 9.0], "rmse": [2.0, 1.0]}
    table = pd.DataFrame(rows).assign(**facts, seed=0)
    draw_errors(table, "cases a year", tmp_path)
    for figure, x in zip(
        kept, ("step (a batch of cells each)", "wall-clock time (seconds)"), strict=True
    ):
        (ax,) = figure.axes
        assert ax.get_xlabel() == x and ax.get_ylabel() == "RMSE at the test cells (cases a year)"
        said = "readings as in the raster, a lengthscale for each axis"
        assert ax.get_title() == f"Error of the map: benin in 2017, {said}"
        assert ax.get_legend().get_title().get_text() == "one seed, hence no bands"
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "benin_in_2017_raster_ard_rmse_steps.png",
        "benin_in_2017_raster_ard_rmse_wallclock.png",
    ]
