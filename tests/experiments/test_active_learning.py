"""The malaria experiment: help without torch, a smoke run, maps, and errors without tracebacks."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from experiments import active_learning, malaria_report
from experiments.campaigns import campaigns
from experiments.maps import draw_maps, plt, rasterised
from experiments.matrix import narrowed, read, smoked
from experiments.plots import draw_bands

CONFIGS = Path(__file__).parents[2] / "experiments" / "configs"
CONFIG = CONFIGS / "malaria_senegal.toml"


def refused(app, *arguments):
    """What a command prints beside its usage when it refuses arguments, on one line."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], terminal_width=1000)
    assert result.exit_code == 2, result.output
    return " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize("name", ["active_learning", "malaria_report"])
def test_help_does_not_import_torch(name):
    code = f"import sys, experiments.{name}; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The folder of a smoke run of both policies that the report compares, and what it printed."""
    folder = tmp_path_factory.mktemp("smoke")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        arguments = ["--smoke", "--policy", "nipv", "--policy", "random", "--surrogate", "wiski"]
        result = CliRunner().invoke(active_learning.app, [str(CONFIG), *arguments])
    assert result.exit_code == 0, result.output
    return folder / "results" / "active_learning" / "senegal_2017_smoke", result.output


def test_smoke_run_says_it_is_synthetic(smoke):
    out, printed = smoke
    assert "4 campaigns on 900 cells. Synthetic field" in printed
    tables = sorted(out.glob("*.csv"))
    assert len(tables) == 4  # two observation models, two policies
    assert all("synthetic" in path.name and "wiski16" in path.name for path in tables)
    assert all(path.with_suffix(".png").stat().st_size > 10_000 for path in tables)
    assert all(json.loads(path.with_suffix(".json").read_text())["synthetic"] for path in tables)
    assert pd.read_csv(tables[0])["n"].tolist() == [10, 16, 22, 28]
    assert (out / "known-noise_ard_rmse_wallclock.png").exists()
    assert (out / "raster_ard_rmse_steps.png").exists()


def test_the_report_takes_the_middle_step_for_half_way(smoke):
    out, _ = smoke
    result = CliRunner().invoke(malaria_report.app, [str(out)])
    assert result.exit_code == 0, result.output
    assert "synthetic_incidence_seed0: Synthetic field" in result.output
    report = pd.read_csv(out / "report.csv")
    assert sorted(report["observation"]) == ["known noise", "raster"]
    assert report["n half way"].tolist() == [22, 22]
    numbers = report.select_dtypes("number").drop(columns="seed")
    assert bool((numbers > 0).all(axis=None))
    ratio = report["nipv"] / report["random"]  # a CSV is read to the last digit but one
    np.testing.assert_allclose(report["nipv / random"], ratio, rtol=1e-12)


def test_the_report_refuses_with_a_message(smoke, tmp_path):
    out, _ = smoke
    assert "does not exist" in refused(malaria_report.app, "/nonexistent")
    message = refused(malaria_report.app, out, "--half", 610)
    assert "10, 16, 22, ..., 28; got 610" in message
    assert "got 0 campaigns" in refused(malaria_report.app, tmp_path)
    (tmp_path / "other.json").write_text("{}")
    assert "JSON of a saved campaign" in refused(malaria_report.app, tmp_path)
    for path in out.glob("*raster*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "other.json").unlink()
    (shorter,) = tmp_path.glob("*random*.csv")
    pd.read_csv(shorter).iloc[:-1].to_csv(shorter, index=False)
    assert "one length, got 28 cells" in refused(malaria_report.app, tmp_path)


# the matrix ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name, observations", [("benin", 2), ("senegal", 2), ("nigeria", 1)])
def test_a_config_is_the_whole_matrix(name, observations):
    c = smoked(read(CONFIGS / f"malaria_{name}.toml") | {"seeds": [0]})
    c |= {"kernels": ["ard", "isotropic"], "grid_size": [30, 60]}
    _, planned = campaigns(c)
    kinds = pd.DataFrame([facts for facts, _ in planned]).drop(columns=["cells", "seed"])
    assert set(kinds["surrogate"]) == {"wiski30", "wiski60", "exact"}
    assert set(kinds["policy"]) == {"nipv", "max_variance", "random"}
    assert len(kinds.drop_duplicates()) == len(kinds) == observations * 3 * 3 * 2
    whole = read(CONFIGS / f"malaria_{name}.toml")
    assert {30, 60} == set(whole["grid_size"]) and whole["seeds"] == [0, 1, 2]
    assert set(whole["kernels"]) == {"ard", "isotropic"}


def test_the_kernel_and_the_grid_are_those_named():
    c = smoked(read(CONFIG)) | {"steps": 1, "kernels": ["ard", "isotropic"], "grid_size": [8, 10]}
    _, planned = campaigns(narrowed(c, {"policies": ["random"], "observations": ["raster"]}))
    for facts, make in planned:
        campaign = make()
        campaign.start()
        lengthscale = campaign.model.covar_module.base_kernel.lengthscale
        assert lengthscale.numel() == {"ard": 2, "isotropic": 1}[facts["kernel"]]
        if facts["surrogate"] != "exact":
            assert f"wiski{campaign.model.grid.sizes[0]}" == facts["surrogate"]


@pytest.mark.parametrize(
    "option, value, listed",
    [
        ("--surrogate", "cagp", "surrogates, exact, wiski; got 'cagp'"),
        ("--grid-size", 45, "grid_size, 30, 60; got 45"),
        ("--kernel", "rbf", "kernels, ard, isotropic; got 'rbf'"),
        ("--policy", "ucb", "policies, max_variance, nipv, random; got 'ucb'"),
        ("--observation", "none", "observations, known noise, raster; got 'none'"),
        ("--seed", 7, "seeds, 0, 1, 2; got 7"),
        ("--steps", 0, "Invalid value for '--steps'"),
        ("--steps", 100_000, "Take fewer steps"),
    ],
)
def test_an_option_outside_the_config_is_refused(option, value, listed):
    smoke = ["--smoke"] if option != "--steps" else []
    assert listed in refused(active_learning.app, CONFIG, *smoke, option, value)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("steps = 200", "step = 200", "missing: steps; unknown: step"),
        ("grid_size = [60, 30]", "grid_size = 60", "grid_size to be a list, got 60"),
        ("then_every = 10", "then = 10", "[fit] with every_step_until"),
        ("year = 2017", "year = ", "is no TOML"),
        ('"exact"]', '"exakt"]', "a surrogate, one of wiski, cagp"),
        ('"isotropic"]', '"round"]', "a kernel, one of ard, isotropic"),
        ('"random"]', '"rando"]', "a policy, one of nipv"),
        ('"raster", ', '"rastr", ', "an observation model, one of raster"),
    ],
)
def test_a_wrong_config_is_refused(tmp_path, monkeypatch, old, new, message):
    text = CONFIG.read_text()
    assert old in text
    (tmp_path / "wrong.toml").write_text(text.replace(old, new))
    monkeypatch.delenv("BO_STREAM_DATA", raising=False)  # the synthetic field has 20,000 cells
    assert message in refused(active_learning.app, tmp_path / "wrong.toml")


def test_a_missing_config_is_refused(tmp_path):
    assert "does not exist" in refused(active_learning.app, tmp_path / "none.toml")


# maps ----------------------------------------------------------------------------------------


def test_cells_become_an_image_with_gaps():
    lonlat = np.array([[10.0, 5.0], [10.5, 5.0], [10.0, 5.25], [11.0, 5.25]])
    image = rasterised(lonlat, np.arange(4.0))
    expected = np.array([[2.0, np.nan, 3.0], [0.0, 1.0, np.nan]])
    np.testing.assert_array_equal(image, expected)


def test_maps_keep_the_shape_of_a_country_and_say_what_is_drawn(tmp_path, monkeypatch):
    c = smoked(read(CONFIG)) | {"steps": 1}
    cells, planned = campaigns(narrowed(c, {"policies": ["random"], "surrogates": ["wiski"]}))
    north_of = replace(cells, extent=(1.0, 4.0, 55.0, 61.0), attribution="so and so " * 30)
    campaign = planned[0][1]()
    campaign.start()
    monkeypatch.setattr(plt, "close", lambda figure: None)
    draw_maps(campaign, north_of, tmp_path / "map.png", title="a title")
    figure = plt.gcf()
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
    monkeypatch.undo()
    plt.close(figure)


@pytest.mark.parametrize("logarithmic_x, scale", [(True, "log"), (False, "linear")])
def test_bands_may_have_a_logarithmic_time(tmp_path, monkeypatch, logarithmic_x, scale):
    table = pd.DataFrame({"step": [0, 1], "seconds": [1, 9], "rmse": [2, 1], "policy": "nipv"})
    monkeypatch.setattr(plt, "close", lambda figure: None)
    path = tmp_path / "bands.png"
    draw_bands([table], "rmse", "seconds", ["policy"], path, logarithmic_x=logarithmic_x)
    assert plt.gca().get_xscale() == scale and plt.gca().get_yscale() == "log"
    monkeypatch.undo()
    plt.close("all")
