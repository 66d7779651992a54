"""The malaria experiment: a smoke run, and refusals without tracebacks."""

import json

import pandas as pd
import pytest

from experiments.active_learning import __main__ as active_learning
from experiments.common.command import CONFIGS

CONFIG = CONFIGS / "malaria_senegal.toml"


def test_smoke_run_says_it_is_synthetic(smoke):
    out, printed = smoke
    assert "4 campaigns on 900 cells. Synthetic field" in printed
    assert printed.startswith("A smoke run takes seconds. Results go to results/active_learning")
    tables = sorted(out.glob("*_0.csv"))
    assert len(tables) == 4  # two observation models, two policies
    assert all("synthetic" in path.name and "wiski16" in path.name for path in tables)
    assert all(path.with_suffix(".png").stat().st_size > 10_000 for path in tables)
    said = [json.loads(path.with_suffix(".json").read_text()) for path in tables]
    assert all(about["synthetic"] and {"commit", "clean"} < set(about) for about in said)
    assert pd.read_csv(out / "sweep.csv")["state"].tolist() == ["done"] * 4
    assert pd.read_csv(tables[0])["n"].tolist() == [10, 16, 22, 28]
    assert (out / "known-noise_ard_rmse_wallclock.png").exists()
    assert (out / "raster_ard_rmse_steps.png").exists()


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
def test_an_option_outside_the_config_is_refused(refused, option, value, listed):
    smoke = ["--smoke"] if option != "--steps" else []
    assert listed in refused(active_learning.app, CONFIG, *smoke, option, value)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("steps = 200", "step = 200", "missing: steps; unknown: step"),
        ("grid_size = [60, 30]", "grid_size = 60", "grid_size to be a list, got 60"),
        ("then_every = 10", "then = 10", "[fit] with every_step_until"),
        ("year = 2017", "year = ", "is no TOML"),
        ('"exact"]', '"exakt"]', "a surrogate, one of wiski, projected_wiski"),
        ('"isotropic"]', '"round"]', "a kernel, one of ard, isotropic"),
        ('"random"]', '"rando"]', "a policy, one of nipv"),
        ('"raster", ', '"rastr", ', "an observation model, one of raster"),
    ],
)
def test_a_wrong_config_is_refused(refused, tmp_path, monkeypatch, old, new, message):
    text = CONFIG.read_text()
    assert old in text
    (tmp_path / "wrong.toml").write_text(text.replace(old, new))
    monkeypatch.delenv("BO_STREAM_DATA", raising=False)  # the synthetic field has 20,000 cells
    assert message in refused(active_learning.app, tmp_path / "wrong.toml")


def test_a_missing_config_is_refused(refused, tmp_path):
    assert "does not exist" in refused(active_learning.app, tmp_path / "none.toml")
