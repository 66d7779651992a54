"""A configuration of the malaria study is the whole matrix; what is named is what is built."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer

from bo_stream import SVDGP
from experiments.active_learning import __main__ as active_learning
from experiments.active_learning.campaigns import LearningRun
from experiments.active_learning.study import plan
from experiments.common.command import CONFIGS, parsed

CONFIG = CONFIGS / "malaria_senegal.toml"
FEW = {"seeds": [0], "kernels": ["ard"], "policies": ["random"], "observations": ["raster"]}
GRIDS = [{"name": "wiski", "grid_size": [8, 10]}, {"name": "exact"}]
SMALL = {"raster": [{"cells": 150}], "steps": 2, "q": 4, "num_initial": 8, "num_test": 40}


def matrix(**changed: Any) -> list[LearningRun]:
    """The runs of the default configuration on few cells, with these keys changed."""
    return plan({**parsed(CONFIG), **SMALL, "fit": {"every_step_until": 2}, **changed})


@pytest.mark.parametrize(("name", "observations"), [("benin", 2), ("senegal", 2), ("nigeria", 1)])
def test_a_config_is_the_whole_matrix(name: str, observations: int) -> None:
    whole = parsed(CONFIGS / f"malaria_{name}.toml")
    assert whole["seeds"] == [0, 1, 2] and len(whole["raster"]) == 1
    assert set(whole["kernels"]) == {"ard", "isotropic"}
    runs = plan(whole | SMALL | {"seeds": [0], "fit": {}})
    kinds = pd.DataFrame([run.facts for run in runs]).drop(columns=["cells", "seed"])
    assert set(kinds["surrogate"]) == {"WISKI, 30 x 30 nodes", "WISKI, 60 x 60 nodes", "exact"}
    assert set(kinds["policy"]) == {"nipv", "max_variance", "random"}
    assert len(kinds.drop_duplicates()) == len(kinds) == observations * 3 * 3 * 2


def test_the_kernel_and_the_grid_are_those_named() -> None:
    both = {"kernels": ["ard", "isotropic"], "surrogate": GRIDS, "steps": 1}
    runs = matrix(**(FEW | both))
    assert len(runs) == 6 and len({run.stem for run in runs}) == 6
    for run in runs:
        campaign = run.campaign()
        campaign.start()
        model: Any = campaign.model
        lengthscale = model.covar_module.base_kernel.lengthscale
        assert lengthscale.numel() == {"ard": 2, "isotropic": 1}[run.kernel]
        if run.surrogate != "exact":
            assert f"wiski, grid_size {model.grid.sizes[0]}" == run.surrogate


def test_a_run_knows_no_more_than_its_own_part_of_the_matrix() -> None:
    exact = [run for run in matrix(**FEW, surrogate=GRIDS) if run.surrogate == "exact"]
    assert exact == matrix(**FEW, surrogate=GRIDS[1:])


@pytest.mark.parametrize("policy", ["nipv", "random"])
def test_families_are_taken_by_name(policy: str) -> None:
    (run,) = matrix(**(FEW | {"surrogate": [{"name": "svdgp"}], "policies": [policy]}))
    campaign = run.campaign()
    campaign.run()
    assert run.surrogate == "svdgp" and isinstance(campaign.model, SVDGP)
    assert campaign.model.num_observed == 8 + 2 * 4


def test_a_run_writes_its_rows_maps_and_where_its_cells_come_from(tmp_path: Path) -> None:
    (run, *_) = matrix(**FEW, surrogate=GRIDS)
    run.execute(tmp_path)
    assert pd.read_csv(tmp_path / f"{run.stem}.csv")["n"].tolist() == [8, 12, 16]
    about = json.loads((tmp_path / f"{run.stem}.json").read_text())
    assert about["synthetic"] is True and about["policy"] == "random"
    assert (tmp_path / f"{run.stem}.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("steps = 200", "step = 200", "has no steps"),
        ("then_every = 10", "then = 10", "fit has then; known are"),
        ("year = 2017", "year = ", "is no TOML"),
        ('"exact"', '"exakt"', "no surrogate exakt; there are"),
        ("grid_size", "grid_sizes", "surrogate wiski has grid_sizes; known are"),
        ("release", "released", "raster has released; known are"),
        ('"isotropic"]', '"round"]', "kernels has round; known are"),
        ('"random"]', '"rando"]', "policies has rando; known are"),
        ('"raster", ', '"rastr", ', "observations has rastr; known are"),
        ("steps = 200", "steps = 100_000", "fewer steps"),
    ],
)
def test_a_wrong_config_is_refused(
    refused: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    text = CONFIG.read_text()
    assert old in text
    (tmp_path / "wrong.toml").write_text(text.replace(old, new))
    monkeypatch.delenv("BO_STREAM_DATA", raising=False)  # the synthetic field has 20,000 cells
    monkeypatch.chdir(tmp_path)
    assert message in refused(active_learning.app, tmp_path / "wrong.toml")


def test_observation_models_are_known_by_name() -> None:
    with pytest.raises(typer.BadParameter, match="known are known noise, raster"):
        matrix(**(FEW | {"observations": ["none"]}))
