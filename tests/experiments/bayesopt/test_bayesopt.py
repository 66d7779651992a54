"""The command line of Bayesian optimisation, in its smoke mode."""

import json
import subprocess
import sys
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from typer.testing import CliRunner

from bo_stream import CaGP
from bo_stream.cli.reports.runs import read_results
from experiments.bayesopt import __main__ as bayesopt
from experiments.bayesopt.plots import draw_each, draw_regret
from experiments.bayesopt.study import Study
from experiments.common import progress
from experiments.common.budgets import BUDGETS
from experiments.common.command import CONFIGS
from experiments.common.sweep import sweep, table

DEMO = CONFIGS / "demo.toml"


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys\nfrom experiments.bayesopt import __main__ as bayesopt\n"
        "assert not {'torch', 'botorch', 'matplotlib', 'pandas'} & set(sys.modules)\n"
        "bayesopt.app(['--help'])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "demo" in shown.stdout and "run" in shown.stdout


def test_the_demonstration_is_what_the_documentation_says() -> None:
    study = Study.read(DEMO)
    assert study.runs[0].problem == {"name": "levy", "dim": 3, "noise_std": 10.0}
    assert {run.acquisition["name"] for run in study.runs} == {"qucb"}
    assert {run.config.q for run in study.runs} == {3}
    steps = {run.surrogate["name"]: run.config.steps for run in study.runs}
    assert steps == {"wiski": 150, "exact": 60}
    wiski = next(run for run in study.runs if run.surrogate["name"] == "wiski")
    assert wiski.surrogate["grid_size"] == 10
    seeds = {
        name: {r.config.seed for r in study.runs if r.surrogate["name"] == name} for name in steps
    }
    assert seeds["wiski"] == seeds["exact"]


def test_the_demonstration_runs_and_writes_its_picture_and_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "EVERY", 0.0)
    result = CliRunner().invoke(bayesopt.app, ["demo", "--smoke"])
    out = tmp_path / "results" / "demo_smoke"
    assert result.exit_code == 0, result.output
    lines = [line for line in result.output.splitlines() if " of 6 steps after " in line]
    assert len(lines) >= 2 and lines[-1].strip().startswith("6 of 6")
    assert any("wiski_0: regret" in line for line in lines)
    for line in ("surrogate", "WISKI 10x10x10", "ExactGP", "inference regret", "s/step"):
        assert line in result.output
    assert (out / "regret_vs_wallclock.png").stat().st_size > 10_000
    for name in ("wiski_0", "exact_0"):
        assert pd.read_csv(out / f"{name}.csv")["step"].tolist() == [0, 1, 2, 3]
        assert (out / f"{name}.json").exists()
    tables = [pd.read_csv(out / f"{name}.csv") for name in ("wiski_0", "exact_0")]
    first = [table[["incumbent", "simple_regret"]].iloc[0].tolist() for table in tables]
    assert first[0] == first[1]  # the same design with the same noise
    assert pd.read_csv(out / "summary.csv")["surrogate"].tolist() == [
        "WISKI 10x10x10",
        "ExactGP",
    ]


def test_a_study_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text("wrong = 1\n" + DEMO.read_text())
    with pytest.raises(KeyError, match="wrong"):
        Study.read(path)
    path.write_text('[problem]\nname = "levy"\n')
    with pytest.raises(KeyError, match="acquisition.*surrogate"):
        Study.read(path)


def test_a_study_may_set_the_fit_policy_and_test_points(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        """
        [problem]
        name = "branin"
        dim = 2
        [acquisition]
        name = "nipv"
        mc_points = 100
        [loop]
        steps = 1
        q = 2
        num_restarts = 1
        raw_samples = 8
        [loop.fit]
        every_step_until = 5
        then_every = 10
        [[surrogate]]
        name = "wiski"
        grid_size = 12
        """
    )
    (run,) = Study.read(path).runs
    assert run.config.fit.every_step_until == 5 and run.config.fit.then_every == 10
    loop = run.loop()
    assert loop.run()["n"].tolist() == [10, 12]
    acqf = loop.build_acquisition(loop.model)
    assert acqf.mc_points.shape == (100, 2)


@pytest.mark.parametrize("problem", ["levy", "ackley"])
def test_the_study_of_actions_compares_like_with_like_to_300_observations(problem: str) -> None:
    study = Study.read(CONFIGS / f"bo_actions_{problem}.toml")
    configs = {run.surrogate["name"]: [] for run in study.runs}
    for run in study.runs:
        assert run.problem["name"] == problem
        configs[run.surrogate["name"]].append(run.config)
    assert configs["cagp"] == configs["exact"]
    assert [config.seed for config in configs["cagp"]] == list(range(10))
    assert {c.num_initial + c.q * c.steps for c in configs["cagp"]} == {300}


def test_actions_are_chosen_by_name() -> None:
    model = (
        Study.read(CONFIGS / "bo_actions_levy.toml", smoke=True)
        .runs[0]
        .loop()
        .make_surrogate(
            *(torch.rand(80, k).double() for k in (3, 1)),
            bounds=torch.tensor([[0.0], [1.0]]).expand(2, 3),
        )
    )
    assert isinstance(model, CaGP) and model.num_actions == 64


@pytest.mark.slow  # that such studies run is seen by `make smoke`, pairs in the sweep below
def test_pairs_of_actions_and_exact_are_reported(tmp_path: Path) -> None:
    config = CONFIGS / "bo_actions_levy.toml"
    result = CliRunner().invoke(
        bayesopt.app, ["run", str(config), "--smoke", "--out", str(tmp_path)]
    )
    assert result.exit_code == 0, result.output
    assert "CaGP 64 - ExactGP" in result.output
    assert pd.read_csv(tmp_path / "paired.csv")["seeds"].tolist() == [1] * 6


TWO_GRIDS = """
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
[[surrogate]]
name = "wiski"
grid_size = 8
[[surrogate]]
name = "wiski"
grid_size = 12
[[surrogate]]
name = "exact"
"""


def test_two_configurations_of_a_family_keep_their_own_files(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(TWO_GRIDS)
    out = tmp_path / "out"
    arguments = ["run", str(path), "--out", str(out), "--workers", "0"]
    result = CliRunner().invoke(bayesopt.app, arguments)
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


def test_labels_may_tell_configurations_apart_and_must(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    named = TWO_GRIDS.replace("grid_size = 8", 'label = "fine"\ngrid_size = 8')
    path.write_text(named.replace("grid_size = 12", 'label = "Coarse grid"\ngrid_size = 12'))
    stems = [run.stem for run in Study.read(path).runs]
    assert stems == ["wiski_fine_0", "wiski_Coarse-grid_0", "exact_0"]
    path.write_text(named.replace("grid_size = 12", 'label = "Fine"\ngrid_size = 12'))
    with pytest.raises(ValueError, match="told apart.*a label of its own"):
        Study.read(path)
    path.write_text(TWO_GRIDS.replace("grid_size = 12", "grid_size = 8"))
    with pytest.raises(ValueError, match="told apart"):
        Study.read(path)


def test_regret_is_drawn_with_units_and_a_word_on_seeds(tmp_path: Path, kept: list[Figure]) -> None:
    steps = {"step": [0, 1], "n": [3, 4], "wallclock_seconds": [0.1, 0.2]}
    regrets = {"inference_regret": [2.0, 1.0], "simple_regret": [2.0, 0.0]}
    one = pd.DataFrame(steps | regrets).assign(surrogate="a", seed=0)
    draw_regret([one], tmp_path / "one.png", "Title")
    draw_regret([one, one.assign(seed=1)], tmp_path / "two.png", "Title")
    said = [figure.axes[1].get_legend().get_title().get_text() for figure in kept]
    assert said == ["one seed, hence no bands", "median; band: range of 2 seeds"]
    left, right = kept[0].axes
    assert left.get_xlabel() == "wall-clock time (seconds)"
    assert right.get_xlabel() == "number of observations"
    assert "units" in left.get_ylabel() and kept[0].get_suptitle() == "Title"
    assert len(left.collections) == 0 and len(kept[1].axes[0].collections) == 1


def test_a_crowd_has_a_panel_each(tmp_path: Path, kept: list[Figure]) -> None:
    steps = {"step": [0, 1, 2], "n": [3, 4, 5]}
    one = pd.DataFrame(steps | {"inference_regret": [2.0, None, 1.0]}).assign(seed=0)
    runs = [one.assign(surrogate=name, seed=seed) for name in "abcdef" for seed in (0, 1)]
    draw_each(runs, "n", tmp_path / "each.png", "Title")
    figure = kept[0]
    own = [ax for ax in figure.axes if ax.axison]
    assert [ax.get_title() for ax in own] == list("abcdef")
    assert all(len(ax.lines) == 7 and len(ax.collections) == 1 for ax in own)  # six behind, a band
    assert own[0].lines[-1].get_xydata().tolist() == [[3.0, 2.0], [5.0, 1.0]]
    assert figure.get_supxlabel() == "number of observations"
    assert "range of 2 seeds" in figure.get_suptitle()


def test_boxes_are_moved_by_the_seed_and_functions_named_anew() -> None:
    study = Study.read(CONFIGS / "bo_moved.toml", problem="levy")
    assert study.title.startswith("levy")
    assert {run.problem["name"] for run in study.runs} == {"levy"}
    two = [next(run for run in study.runs if run.config.seed == seed) for seed in (0, 1)]
    best = [run.loop().problem.optimizers[0] for run in two]
    assert float((best[0] - best[1]).abs().max()) > 0.01


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


def test_lists_are_every_problem_acquisition_and_surrogate(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(LISTS)
    runs = Study.read(path).runs
    assert len(runs) == 4 * 2 * 3 and len({run.stem for run in runs}) == 24
    assert runs[0].stem == "branin-dim-2_qucb_wiski_wiski-grid-size-6_3"
    assert runs[-1].stem == "hartmann-dim-3_qlogei_exact_3"
    assert {run.surrogate.get("grid_size") for run in runs} == {6, 8, None}
    path.write_text(LISTS.replace("[2, 3]", "[]"))
    with pytest.raises(ValueError, match="dim.*empty list"):
        Study.read(path)


def test_a_sweep_is_drawn_and_tabulated_by_problem_and_acquisition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BUDGETS, "n = 11", ("n", 11.0))
    path, out = tmp_path / "study.toml", tmp_path / "out"
    text = LISTS.replace("[2, 3]", "2").replace("[6, 8]", "6").replace("hartmann", "beale")
    path.write_text(text.replace('["qucb", "qlogei"]', '"qucb"'))
    arguments = ["run", str(path), "--out", str(out), "--workers", "0"]
    result = CliRunner().invoke(bayesopt.app, arguments)
    assert result.exit_code == 0, result.output
    pictures = {p.stem for p in out.glob("*.png")}
    assert pictures == {f"regret_vs_wallclock_{name}" for name in ("branin", "beale")}
    for name in ("summary", "paired", "budgets"):
        frame = pd.read_csv(out / f"{name}.csv")
        assert frame["problem"].tolist() == ["branin, dim 2"] * 2 + ["beale, dim 2"] * 2
        assert frame["acquisition"].tolist() == ["qucb"] * 4
    assert pd.read_csv(out / "summary.csv")["surrogate"].tolist() == ["wiski", "exact"] * 2
    standing = pd.read_csv(out / "standings.csv")
    assert set(standing["budget"]) == {"n = 11"} and sorted(standing["n"]) == [11, 11]
    assert {"surrogate", "branin", "beale", "led", "mean rank"} <= set(standing)
    assert "regret at n = 11" in result.output and "mean rank" in result.output
    found = read_results(out)
    assert found.tasks == ["beale, dim 2", "branin, dim 2"] and len(found.runs) == 4
    assert {run.label for run in found.runs} == {"wiski", "exact"}
    assert set(found.summaries) == {"budgets", "paired", "standings", "summary", "sweep"}
    path.write_text(path.read_text().replace("steps = 1", "steps = 2"))
    refused = CliRunner().invoke(bayesopt.app, arguments, env={"COLUMNS": "1000"})
    assert refused.exit_code == 2 and "--fresh" in refused.output


def test_a_run_that_fails_is_named_in_the_end(tmp_path: Path) -> None:
    path, out = tmp_path / "study.toml", tmp_path / "out"
    path.write_text(TWO_GRIDS.replace('name = "exact"', 'name = "exact"\nno_such_option = 1'))
    result = CliRunner().invoke(
        bayesopt.app, ["run", str(path), "--out", str(out), "--workers", "0"]
    )
    assert result.exit_code == 1
    assert "exact_0 failed: " in result.output and "1 of 3 runs failed" in result.output
    assert "no_such_option" in (out / "exact_0.error.txt").read_text()
    assert len(pd.read_csv(out / "summary.csv")) == 2  # the others are drawn


@pytest.mark.slow
def test_a_study_interrupted_and_resumed_is_the_undisturbed_one(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(TWO_GRIDS.replace("[problem]", "seeds = [0, 1]\n[problem]"))
    runs = Study.read(path).runs
    sweep(runs, tmp_path / "whole", workers=0)
    out, kills = tmp_path / "out", 0
    while True:
        process = get_context("fork").Process(target=partial(sweep, runs, out, workers=0))
        process.start()
        process.join(2.0)
        if process.exitcode is not None:
            break
        process.kill()
        process.join()
        kills += 1
    assert process.exitcode == 0 and kills > 0
    for run in runs:
        frames = [table(folder, run.stem) for folder in (out, tmp_path / "whole")]
        kept = [c for c in frames[0] if not c.endswith("_seconds")]
        pd.testing.assert_frame_equal(frames[0][kept], frames[1][kept], check_exact=True)
