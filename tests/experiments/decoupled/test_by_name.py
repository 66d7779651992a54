"""Decoupled GPs in the studies of optimisation and of malaria, by their name alone."""

from pathlib import Path

import pytest

from bo_stream import SVDGP
from experiments.active_learning.campaigns import campaigns
from experiments.bayesopt.study import Study
from experiments.common.command import CONFIGS

MALARIA = {
    "source": None,
    "cells": 150,
    "observations": ["known noise"],
    "surrogates": ["svdgp"],
    "kernels": ["ard"],
    "seeds": [0],
    "grid_size": [10],
    "steps": 2,
    "q": 4,
    "num_initial": 8,
    "num_test": 40,
    "fit": {"every_step_until": 2},
}


def test_optimisation_takes_it_by_name(tmp_path: Path) -> None:
    text = (CONFIGS / "demo.toml").read_text()
    entry = '[[surrogate]]\nname = "svdgp"\nwindow = 40\ncovar_basis = 20\nsteps = 2\n'
    config = tmp_path / "study.toml"
    config.write_text(text.partition("[[surrogate]]")[0] + entry)
    (run,) = Study.read(config, smoke=True).runs
    loop = run.loop()
    table = loop.run()
    assert isinstance(loop.model, SVDGP)
    assert table["step"].tolist()[0] == 0 and len(table) > 1
    assert table["inference_regret"].notna().all()


@pytest.mark.parametrize("policy", ["nipv", "random"])
def test_malaria_takes_it_by_name(policy: str) -> None:
    _, ((facts, make),) = campaigns(MALARIA | {"policies": [policy]})
    campaign = make()
    campaign.run()
    assert facts["surrogate"] == "svdgp" and isinstance(campaign.model, SVDGP)
    assert campaign.model.num_observed == 8 + 2 * 4
