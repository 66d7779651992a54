"""The command line of Bayesian optimisation, in its smoke mode."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from bo_stream import CaGP
from experiments import bayesopt
from experiments.report import paired, summary
from experiments.study import Study

DEMO = bayesopt.CONFIGS / "demo.toml"


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys\nfrom experiments import bayesopt\n"
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
    result = CliRunner().invoke(bayesopt.app, ["demo", "--smoke"])
    out = tmp_path / "results" / "demo_smoke"
    assert result.exit_code == 0, result.output
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


def test_the_summary_takes_medians_of_the_last_steps() -> None:
    def table(label: str, regret: float) -> pd.DataFrame:
        steps = range(31)
        columns = ["n", "bytes", "wallclock_seconds", "fit_evaluations", "log_predictive"]
        times = ["step_seconds", "fit_seconds", "acquisition_seconds", "update_seconds"]
        return pd.DataFrame(
            {
                "step": steps,
                **{name: [float(s) for s in steps] for name in (*columns, *times)},
                "simple_regret": 100.0,
                "inference_regret": [50.0] * 11 + [regret] * 20,
                "surrogate": label,
            }
        )

    out = summary([table("a", 1.0), table("b", 2.0), table("a", 3.0)], batch=3).set_index(
        "surrogate"
    )
    assert out.index.tolist() == ["a", "b"]
    assert out["seeds"].tolist() == [2, 1]
    assert out["inference regret"].tolist() == [2.0, 2.0]
    assert out["s/step"].tolist() == [20.5, 20.5]
    assert out["log density/point"].tolist() == [20.5 / 3, 20.5 / 3]
    assert out["total s"].tolist() == [30.0, 30.0]
    of_unequal_length = summary([table("a", 1.0), table("a", 5.0).tail(5)], batch=3)
    assert of_unequal_length["inference regret"].tolist() == [3.0]  # each run counts once


@pytest.mark.parametrize("problem", ["levy", "ackley"])
def test_the_study_of_actions_compares_like_with_like_to_300_observations(problem: str) -> None:
    study = Study.read(bayesopt.CONFIGS / f"bo_actions_{problem}.toml")
    configs = {run.surrogate["name"]: [] for run in study.runs}
    for run in study.runs:
        assert run.problem["name"] == problem
        configs[run.surrogate["name"]].append(run.config)
    assert configs["cagp"] == configs["exact"]
    assert [config.seed for config in configs["cagp"]] == list(range(10))
    assert {c.num_initial + c.q * c.steps for c in configs["cagp"]} == {300}


def test_actions_are_chosen_by_name_and_the_pairs_are_reported(tmp_path: Path) -> None:
    config = bayesopt.CONFIGS / "bo_actions_levy.toml"
    model = (
        Study.read(config, smoke=True)
        .runs[0]
        .loop()
        .make_surrogate(
            *(torch.rand(80, k).double() for k in (3, 1)),
            bounds=torch.tensor([[0.0], [1.0]]).expand(2, 3),
        )
    )
    assert isinstance(model, CaGP) and model.num_actions == 64
    result = CliRunner().invoke(
        bayesopt.app, ["run", str(config), "--smoke", "--out", str(tmp_path)]
    )
    assert result.exit_code == 0, result.output
    assert "CaGP 64 - ExactGP" in result.output
    assert pd.read_csv(tmp_path / "paired.csv")["seeds"].tolist() == [1] * 6


def test_differences_are_paired_by_seed() -> None:
    def table(label: str, seed: int, regrets: list[float]) -> pd.DataFrame:
        columns = {"step": range(len(regrets)), "inference_regret": regrets}
        return pd.DataFrame(columns | {"surrogate": label, "seed": seed})

    tables = [table("a", s, [9.0] * 18 + [1.0 + s, 2.0 * (1 + s)]) for s in range(4)]
    tables += [table("b", s, [3.0] * 18 + [1.0 + s, 1.0 + s]) for s in reversed(range(3))]
    tables += [table("b", 3, [3.0] * 10)]  # shorter: compared where both have been
    out = paired(tables).set_index("at")
    assert out["pair"].unique().tolist() == ["a - b"] and out["seeds"].tolist() == [4, 4]
    assert out.loc["last step", "median"] == pytest.approx(np.log(2.0))
    assert out.loc["last tenth", "median"] == pytest.approx(0.5 * np.log(2.0))
    assert bool((out["low"] <= out["median"]).all() and (out["median"] <= out["high"]).all())
