"""A configuration is the whole matrix of campaigns; what is named is what is built."""

import pandas as pd
import pytest

from experiments.active_learning.campaigns import campaigns
from experiments.active_learning.course import planned as runs_of
from experiments.active_learning.matrix import narrowed, read, smoked
from experiments.common.command import CONFIGS


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
    c = smoked(read(CONFIGS / "malaria_senegal.toml")) | {
        "steps": 1,
        "kernels": ["ard", "isotropic"],
        "grid_size": [8, 10],
    }
    _, planned = campaigns(narrowed(c, {"policies": ["random"], "observations": ["raster"]}))
    for facts, make in planned:
        campaign = make()
        campaign.start()
        lengthscale = campaign.model.covar_module.base_kernel.lengthscale
        assert lengthscale.numel() == {"ard": 2, "isotropic": 1}[facts["kernel"]]
        if facts["surrogate"] != "exact":
            assert f"wiski{campaign.model.grid.sizes[0]}" == facts["surrogate"]


def test_every_run_knows_no_more_than_its_own_part_of_the_matrix():
    c = smoked(read(CONFIGS / "malaria_senegal.toml")) | {"grid_size": [8, 10], "seeds": [0, 1]}
    _, runs = runs_of(c)
    _, whole = campaigns(c)
    assert [run.facts for run in runs] == [facts for facts, _ in whole]
    assert len({run.stem for run in runs}) == len(runs)
    for run in runs:
        _, ((facts, _),) = campaigns(run.c)
        assert facts == run.facts
    other_sizes = runs_of(c | {"grid_size": [12]})[1]
    exact = [run for run in runs if run.facts["surrogate"] == "exact"]
    assert exact == [run for run in other_sizes if run.facts["surrogate"] == "exact"]
