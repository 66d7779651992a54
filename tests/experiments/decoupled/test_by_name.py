"""Decoupled GPs in the studies of optimisation and of malaria, by their name alone."""

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from bo_stream import SVDGP
from experiments.active_learning.campaigns import campaigns
from experiments.bayesopt import __main__ as bayesopt
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
    out = tmp_path / "out"
    result = CliRunner().invoke(bayesopt.app, ["run", str(config), "--smoke", "--out", str(out)])
    assert result.exit_code == 0, result.output
    table = pd.read_csv(out / "svdgp_0.csv")
    assert table["step"].tolist()[0] == 0 and len(table) > 1
    assert table["inference_regret"].notna().all()


@pytest.mark.parametrize("policy", ["nipv", "random"])
def test_malaria_takes_it_by_name(policy: str) -> None:
    _, ((facts, make),) = campaigns(MALARIA | {"policies": [policy]})
    campaign = make()
    campaign.run()
    assert facts["surrogate"] == "svdgp" and isinstance(campaign.model, SVDGP)
    assert campaign.model.num_observed == 8 + 2 * 4
