"""Studies of Bayesian optimisation: what a configuration means, what is run and reported."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import typer
from typer.testing import CliRunner

from bo_stream import SVDGP, CaGP
from bo_stream.cli.reports.runs import read_results
from bo_stream.errors import InputError
from experiments.bayesopt import __main__ as bayesopt
from experiments.bayesopt.runs import BayesoptRun
from experiments.bayesopt.study import plan
from experiments.common.command import CONFIGS, parsed

DEMO = CONFIGS / "demo.toml"
SMALL = """
[problem]
name = "branin"
dim = 2
[acquisition]
name = "qucb"
[loop]
steps = 1
q = 1
num_restarts = 1
raw_samples = 8
"""
TWO_GRIDS = f"""{SMALL}
[[surrogate]]
name = "wiski"
grid_size = 8
[[surrogate]]
name = "wiski"
grid_size = 12
[[surrogate]]
name = "exact"
"""
LISTS = """
seeds = [3]
[problem]
name = ["branin", "hartmann"]
dim = [2, 3]
[acquisition]
name = ["qucb", "qlogei"]
[loop]
steps = 1
q = 1
num_restarts = 1
raw_samples = 8
[[surrogate]]
name = "wiski"
grid_size = [6, 8]
[[surrogate]]
name = "exact"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.toml"


def planned(path: Path, text: str) -> list[BayesoptRun]:
    """The runs of a configuration with this text."""
    path.write_text(text)
    return plan(parsed(path))


def ran(path: Path, out: Path) -> Any:
    """What a command says that runs a configuration."""
    arguments = ["run", str(path), "--out", str(out), "--workers", "0"]
    return CliRunner().invoke(bayesopt.app, arguments, env={"COLUMNS": "1000"})


# -- plans ---------------------------------------------------------------------------------------


def test_the_demonstration_is_what_the_documentation_says() -> None:
    runs = plan(parsed(DEMO))
    assert runs[0].problem == {"name": "levy", "dim": 3, "noise_std": 10.0}
    searches = {run.surrogate["name"]: run.acquisition["name"] for run in runs}
    assert searches == {"wiski": "qucb", "exact": "qucb", "hsgp": "thompson"}
    assert {run.config.q for run in runs} == {3}
    steps = {run.surrogate["name"]: run.config.steps for run in runs}
    assert steps == {"wiski": 150, "exact": 60, "hsgp": 1000}
    assert next(r for r in runs if r.surrogate["name"] == "wiski").surrogate["grid_size"] == 10
    seeds = {name: {r.config.seed for r in runs if r.surrogate["name"] == name} for name in steps}
    assert seeds["wiski"] == seeds["exact"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wrong = 1\n" + TWO_GRIDS, "wrong"),
        ('[problem]\nname = "levy"\n', "acquisition.*surrogate"),
        (TWO_GRIDS.replace("steps = 1", "stips = 1"), "stips"),
        (TWO_GRIDS.replace("grid_size = 8", "nodes = 8"), "surrogate wiski has nodes"),
    ],
)
def test_keys_that_are_none_are_refused(path: Path, text: str, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        planned(path, text)


def test_a_study_may_set_the_fit_policy_and_test_points(path: Path) -> None:
    text = SMALL.replace('"qucb"', '"nipv"\nmc_points = 100').replace("q = 1", "q = 2")
    text += "[loop.fit]\nevery_step_until = 5\nthen_every = 10\n"
    (run,) = planned(path, text + '[[surrogate]]\nname = "wiski"\ngrid_size = 12\n')
    assert run.config.fit.every_step_until == 5 and run.config.fit.then_every == 10
    loop: Any = run.loop()
    assert loop.run()["n"].tolist() == [10, 12]
    assert loop.build_acquisition(loop.model).mc_points.shape == (100, 2)


@pytest.mark.parametrize("problem", ["levy", "ackley"])
def test_the_study_of_actions_compares_like_with_like_to_300_observations(problem: str) -> None:
    runs = plan(parsed(CONFIGS / f"bo_actions_{problem}.toml"))
    configs: dict[str, list[Any]] = {run.surrogate["name"]: [] for run in runs}
    for run in runs:
        assert run.problem["name"] == problem
        configs[run.surrogate["name"]].append(run.config)
    assert configs["cagp"] == configs["exact"]
    assert [config.seed for config in configs["cagp"]] == list(range(10))
    assert {c.num_initial + c.q * c.steps for c in configs["cagp"]} == {300}


def test_families_and_their_policies_are_chosen_by_name(path: Path) -> None:
    bounds = torch.tensor([[0.0], [1.0]]).expand(2, 3)
    X = torch.rand(80, 3, dtype=torch.float64)
    runs = plan(parsed(CONFIGS / "bo_actions_levy.toml"), smoke=True)
    model = runs[0].loop().make_surrogate(X, X[:, :1], bounds=bounds)  # type: ignore[union-attr]
    assert isinstance(model, CaGP) and model.num_actions == 64
    own = '[[surrogate]]\nname = "svdgp"\nwindow = 40\ncovar_basis = 20\nsteps = 1\n'
    (run,) = planned(path, SMALL + own)
    loop: Any = run.loop()
    loop.run()
    assert isinstance(loop.model, SVDGP) and run.config.steps == 1


def test_boxes_are_moved_by_the_seed() -> None:
    runs = plan(parsed(CONFIGS / "bo_moved.toml"))
    two = [next(run for run in runs if run.config.seed == seed) for seed in (0, 1)]
    best = [run.loop().problem.optimizers[0] for run in two]  # type: ignore[attr-defined]
    assert float((best[0] - best[1]).abs().max()) > 0.01


def test_labels_may_tell_configurations_apart_and_must(path: Path) -> None:
    named = TWO_GRIDS.replace("grid_size = 8", 'label = "fine"\ngrid_size = 8')
    apart = named.replace("grid_size = 12", 'label = "Coarse grid"\ngrid_size = 12')
    stems = [run.stem for run in planned(path, apart)]
    assert stems == ["wiski_fine_0", "wiski_Coarse-grid_0", "exact_0"]
    with pytest.raises(InputError, match="told apart.*a label of its own"):
        planned(path, named.replace("grid_size = 12", 'label = "Fine"\ngrid_size = 12'))
    with pytest.raises(InputError, match="told apart"):
        planned(path, TWO_GRIDS.replace("grid_size = 12", "grid_size = 8"))


def test_lists_are_every_problem_acquisition_and_surrogate(path: Path) -> None:
    runs = planned(path, LISTS)
    assert len(runs) == 4 * 2 * 3 and len({run.stem for run in runs}) == 24
    assert runs[0].stem == "branin-dim-2_qucb_wiski_wiski-grid-size-6_3"
    assert runs[-1].stem == "hartmann-dim-3_qlogei_exact_3"
    assert {run.surrogate.get("grid_size") for run in runs} == {6, 8, None}
    with pytest.raises(InputError, match="dim.*empty list"):
        planned(path, LISTS.replace("[2, 3]", "[]"))


# -- runs ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_configurations_of_a_family_keep_their_own_files(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    path.write_text(TWO_GRIDS)
    result = ran(path, out)
    assert result.exit_code == 0, result.output
    runs = {p.stem: json.loads(p.read_text())["surrogate"] for p in out.glob("*_0.json")}
    assert runs == {
        "wiski_wiski-grid-size-8_0": {"name": "wiski", "grid_size": 8},
        "wiski_wiski-grid-size-12_0": {"name": "wiski", "grid_size": 12},
        "exact_0": {"name": "exact"},
    }
    nodes = {stem: pd.read_csv(out / f"{stem}.csv")["bytes"].iloc[-1] for stem in runs}
    outcomes = pd.read_csv(out / "sweep.csv").set_index("stem")["state"]
    assert outcomes.to_dict() == dict.fromkeys(runs, "done")
    about = json.loads((out / "exact_0.json").read_text())
    assert {"commit", "clean"} < set(about) and about["config"]["dtype"] == "float64"
    assert "versions" in about["environment"]
    assert json.loads((out / "sweep.json").read_text())["study"]["loop"]["q"] == 1
    assert nodes["wiski_wiski-grid-size-8_0"] < nodes["wiski_wiski-grid-size-12_0"]
    labels = ["wiski, grid_size 8", "wiski, grid_size 12", "exact"]
    assert pd.read_csv(out / "summary.csv")["surrogate"].tolist() == labels
    first = [pd.read_csv(out / f"{stem}.csv")["incumbent"][0] for stem in runs]
    assert first == first[:1] * 3  # the same design with the same noise


@pytest.mark.slow
def test_a_sweep_is_drawn_and_tabulated_by_problem_and_acquisition(
    path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    text = LISTS.replace("[2, 3]", "2").replace("[6, 8]", "6").replace("hartmann", "beale")
    text = text.replace('["qucb", "qlogei"]', '"qucb"').replace(
        "q = 1\n", "q = 1\nnum_initial = 50\n"
    )
    path.write_text(text)
    result = ran(path, out)
    assert result.exit_code == 0, result.output
    pictures = {p.stem for p in out.glob("*.png")}
    assert pictures == {f"regret_vs_wallclock_{name}" for name in ("branin", "beale")}
    for name in ("summary", "paired", "budgets"):
        frame = pd.read_csv(out / f"{name}.csv")
        assert frame["problem"].tolist() == ["branin, dim 2"] * 2 + ["beale, dim 2"] * 2
        assert frame["acquisition"].tolist() == ["qucb"] * 4
    assert pd.read_csv(out / "summary.csv")["surrogate"].tolist() == ["wiski", "exact"] * 2
    standing = pd.read_csv(out / "standings.csv")
    assert "n = 50" in set(standing["budget"])
    assert {"surrogate", "branin", "beale", "led", "mean rank"} <= set(standing)
    assert "regret at n = 50" in result.output and "mean rank" in result.output
    found = read_results(out)
    assert found.tasks == ["beale, dim 2", "branin, dim 2"] and len(found.runs) == 4
    assert {run.label for run in found.runs} == {"wiski", "exact"}
    assert set(found.summaries) == {"budgets", "paired", "standings", "summary", "sweep"}
    path.write_text(text.replace("steps = 1", "steps = 2"))
    refused = ran(path, out)
    assert refused.exit_code == 2 and "--fresh" in refused.output
