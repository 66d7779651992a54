"""The files of the pages on papers are those that the studies write, not some that were picked."""

from pathlib import Path

import pandas as pd
import pytest
from typer import Typer
from typer.testing import CliRunner

from experiments import currencies
from experiments.common.command import CONFIGS
from experiments.computation_aware.__main__ import app as budgets
from experiments.decoupled.__main__ import app as decoupled
from experiments.model_size.__main__ import app as model_size
from experiments.stream_classification.__main__ import app as labels
from experiments.stream_regression.__main__ import app as streams

PAPERS = CONFIGS.parents[1] / "docs" / "papers"
RUNS: dict[str, tuple[Typer, list[str], dict[str, str]]] = {
    "computation_aware": (
        budgets,
        [],
        {f"cagp_{name}": name for name in ("curves", "subspaces", "losses", "cost")},
    ),
    "sinc": (decoupled, ["sinc"], {"svdgp_sinc": "table"}),
    "torque": (decoupled, ["arm", "decoupled_arm_first.toml"], {"svdgp_torque": "table"}),
    "currencies": (currencies.app, [], {"wiski_currencies": "summary"}),
    "labels": (labels, ["classes.toml"], {"wiski_labels": "accuracies"}),
    "rivals": (streams, ["stream_rivals.toml"], {"wiski_streams": "summary"}),
    "budget": (streams, ["stream_budget.toml"], {"cagp_budget": "summary"}),
    "policies": (
        model_size,
        ["model_size_policies.toml"],
        {f"vips_{name}": name for name in ("splits", "means")},
    ),
}
"""A study's program, its arguments, and what its files are called where they are stored."""
NAMES = ("method", "surrogate", "contender", "learned by")


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_stored_files_are_as_their_studies_write_them(name: str, tmp_path: Path) -> None:
    app, arguments, files = RUNS[name]
    paths = [str(CONFIGS / one) if one.endswith("toml") else one for one in arguments]
    ran = CliRunner().invoke(app, [*paths, "--smoke", "--out", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    for own, written in files.items():
        kept, new = (
            pd.read_csv(path) for path in (PAPERS / f"{own}.csv", tmp_path / f"{written}.csv")
        )
        assert list(kept) == list(new)
        for column in set(NAMES) & set(kept):
            assert set(new[column]) <= set(kept[column])  # a smoke run may have fewer
