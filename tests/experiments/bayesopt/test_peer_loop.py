"""Runs of peers: the same design and noise as a surrogate's run, and its columns."""

import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from acquisitions import build
from bo_stream import surrogate
from bo_stream.errors import OptionError
from bo_stream.simulation import BOLoop, LoopConfig
from experiments.bayesopt import __main__ as bayesopt
from experiments.bayesopt.peer_loop import PeerLoop
from experiments.bayesopt.peers.peer import RandomSearch, SobolSearch
from experiments.bayesopt.peers.registry import PEERS, peer, skipped
from experiments.bayesopt.study import plan
from experiments.common.command import CONFIGS, parsed
from problems import synthetic

CONFIG = LoopConfig(steps=2, q=3, num_initial=6, seed=4, num_restarts=1, raw_samples=8)


class Noisy:
    """A function in two inputs whose noise comes from torch's global generator."""

    bounds = torch.tensor([[-1.0, 0.0], [1.0, 3.0]], dtype=torch.float64)
    optimal_value = 0.0

    def __init__(self) -> None:
        self.noise: list[Tensor] = []

    def evaluate_true(self, X: Tensor) -> Tensor:
        return -X.square().sum(-1, keepdim=True)

    def __call__(self, X: Tensor) -> Tensor:
        self.noise.append(torch.randn(len(X), 1, dtype=X.dtype))
        return self.evaluate_true(X) + self.noise[-1]


def streaming(problem: Any, config: LoopConfig) -> BOLoop:
    return BOLoop(problem, partial(surrogate, "exact"), partial(build, "qucb"), config)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_design_and_noise_are_those_of_a_surrogates_run(dtype: str) -> None:
    config = LoopConfig(**{**vars(CONFIG), "dtype": dtype})
    problems = [Noisy(), Noisy(), Noisy()]
    loops = [
        streaming(problems[0], config),
        PeerLoop(problems[1], RandomSearch, config),
        PeerLoop(problems[2], SobolSearch, config),
    ]
    tables = [loop.run() for loop in loops]
    assert len({table["incumbent"][0] for table in tables}) == 1
    first, second, third = (torch.cat(problem.noise) for problem in problems)
    assert torch.equal(first, second) and torch.equal(first, third)
    assert len(first.unique()) == len(first)


def test_a_problem_with_a_seed_of_its_own_has_the_same_noise_too() -> None:
    loops = [
        streaming(synthetic("branin", 2, noise_std=1.0, seed=4), CONFIG),
        PeerLoop(synthetic("branin", 2, noise_std=1.0, seed=4), RandomSearch, CONFIG),
    ]
    rows = [loop.run().iloc[0][["n", "incumbent", "simple_regret"]].tolist() for loop in loops]
    assert rows[0] == rows[1]


def test_the_columns_are_those_of_a_surrogates_run() -> None:
    config = LoopConfig(**{**vars(CONFIG), "recommend_every": 2})
    expected = streaming(Noisy(), config).run()
    table = PeerLoop(Noisy(), partial(peer, "turbo", candidates=50), config).run()
    assert table.columns.tolist() == expected.columns.tolist()
    assert table["n"].tolist() == expected["n"].tolist() == [6, 9, 12]
    parts = [f"{part}_seconds" for part in ("fit", "acquisition", "evaluation", "update")]
    assert (table["step_seconds"] - table[parts].sum(axis=1)).abs().max() < 1e-12
    assert (table["wallclock_seconds"] - table["step_seconds"].cumsum()).abs().max() < 1e-12
    assert (table["fit_seconds"] > 0.0).all() and (table["update_seconds"] == 0.0).all()
    assert table["inference_regret"].isna().tolist() == [False, True, False]
    assert (table["recommend_seconds"] > 0.0).tolist() == [True, False, True]


def test_seconds_of_searches_without_a_model_are_updates() -> None:
    table = PeerLoop(Noisy(), RandomSearch, CONFIG).run()
    assert (table["update_seconds"] > 0.0).all() and (table["fit_seconds"] == 0.0).all()
    assert (table["inference_regret"] == table["simple_regret"]).all()


def test_evaluations_that_fail_are_counted_and_left_out() -> None:
    class Failing(Noisy):
        def __call__(self, X: Tensor) -> Tensor:
            Y = super().__call__(X)
            Y[0] = math.nan
            return Y

    loop = PeerLoop(Failing(), RandomSearch, CONFIG)
    table = loop.run()
    assert table["failed"].tolist() == [1, 1, 1] and table["n"].tolist() == [5, 7, 9]
    assert loop.peer.Y.isfinite().all()


def test_a_run_is_repeatable_and_saved(tmp_path: Path) -> None:
    tables = [PeerLoop(Noisy(), RandomSearch, CONFIG).run() for _ in range(2)]
    assert tables[0]["incumbent"].tolist() == tables[1]["incumbent"].tolist()
    loop = PeerLoop(Noisy(), RandomSearch, CONFIG)
    loop.run()
    loop.save(tmp_path / "a" / "run.csv", label="by chance")
    about = json.loads((tmp_path / "a" / "run.json").read_text())
    assert about["label"] == "by chance" and about["config"]["seed"] == 4
    assert pd.read_csv(tmp_path / "a" / "run.csv")["n"].tolist() == [6, 9, 12]


STUDY = """
[problem]
name = "branin"
dim = 2
noise_std = 1.0
[acquisition]
name = "qucb"
[loop]
steps = 1
q = 2
num_restarts = 1
raw_samples = 8
[[surrogate]]
name = "exact"
[[peer]]
name = "cma"
[[peer]]
name = "sobol"
label = "Sobol search"
"""


@pytest.mark.slow
def test_a_study_runs_peers_and_names_those_it_skips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cma", None)
    path, out = tmp_path / "study.toml", tmp_path / "out"
    path.write_text(STUDY)
    arguments = ["run", str(path), "--out", str(out), "--workers", "1"]
    result = CliRunner().invoke(bayesopt.app, arguments)
    assert result.exit_code == 0, result.output
    assert "skipped: cma (pip install 'bo_stream[peers]')" in result.output
    skipped = pd.read_csv(out / "skipped.csv")
    assert skipped["peer"].tolist() == ["cma"] and "cma" in skipped["why"][0]
    assert pd.read_csv(out / "summary.csv")["surrogate"].tolist() == ["exact", "Sobol search"]
    first = [pd.read_csv(out / f"{stem}_0.csv").iloc[0]["incumbent"] for stem in ("exact", "sobol")]
    assert first[0] == first[1]
    about = json.loads((out / "sobol_0.json").read_text())
    assert about["peer"] is True and about["surrogate"] == {"name": "sobol"}


def test_peers_with_a_model_search_as_hard_as_the_surrogates(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace('name = "sobol"\nlabel = "Sobol search"', 'name = "botorch"'))
    run = next(run for run in plan(parsed(path)) if run.surrogate["name"] == "botorch")
    optimiser = run.loop().peer.optimiser
    assert (optimiser.num_restarts, optimiser.raw_samples) == (1, 8)
    path.write_text(STUDY + "fast = true\n")
    with pytest.raises(OptionError, match="sobol.*fast"):
        plan(parsed(path))


def test_the_study_of_peers_has_all_of_them_on_the_same_terms() -> None:
    c = parsed(CONFIGS / "peers.toml")
    runs = plan(c)
    named = {run.surrogate["name"] for run in runs} | set(skipped(c["peer"]))
    assert named == {"wiski", "exact", *PEERS}
    assert {run.config.seed for run in runs} == set(range(5))
    configs = [run.config for run in runs if run.config.seed == 0]
    assert all(config == configs[0] for config in configs) and configs[0].q == 3
