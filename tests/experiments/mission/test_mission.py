"""The mission's study: what is planned, and what tables say of a part of the runs."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer

from experiments.common.command import CONFIGS, parsed
from experiments.common.plots import in_words
from experiments.comparison.study import ComparisonRun
from experiments.mission.study import (
    ended,
    in_common,
    kept,
    learned,
    per_step,
    plan,
    report,
    steps_table,
    with_rule,
)

CONFIG = parsed(CONFIGS / "mission.toml")


def table(method: str, task: str, seed: int) -> pd.DataFrame:
    """Four checkpoints; a step of three points takes .1 s more with every checkpoint."""
    n, spent = [10, 40, 41, 100, 400], np.array([0.0, 3.0, 3.1, 9.0, 69.0])
    rows = {"n": n, "cpu_seconds": spent, "loss": 1.0}
    return pd.DataFrame(rows).assign(method=method, task=task, seed=seed)


def test_every_surrogate_meets_every_acquisition_function_and_seeds_come_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("BO_STREAM_DATA", raising=False)
    few = CONFIG["malaria"] | {"raster": [{"cells": 3000}], "seeds": [0, 1]}
    runs = plan(CONFIG | {"malaria": few})
    functions = [run for run in runs if isinstance(run, ComparisonRun)]
    assert len(functions) == 8 * 3 * 6 * 10 and len(runs) - len(functions) == 3 * 3 * 2
    assert len({run.stem for run in runs}) == len(runs)
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    assert {run.label.split(", ")[1] for run in functions} == {
        *("qUCB", "qLogEI", "Thompson sampling")
    }
    with pytest.raises(typer.BadParameter, match="has budget"):
        plan(CONFIG | {"budget": 3})


def test_only_tasks_and_seeds_that_all_methods_have_count() -> None:
    runs = [table(m, t, s) for m in "ab" for t in ("levy", "ackley") for s in (0, 1)]
    every = pd.concat([*runs[:-1], table("a", "levy", 2)])
    found = in_common(every, ["task", "seed"], ["method"])
    pairs = set(zip(found["task"], found["seed"], strict=True))
    assert pairs == {("levy", 0), ("levy", 1), ("ackley", 0)} and len(found) == 6 * 5
    assert set(found) == set(every)


def test_stored_runs_count_unless_they_were_made_again(tmp_path: Path) -> None:
    stored, folder = tmp_path / "stored", tmp_path / "out"
    keys = ["rule", "method", "task", "seed"]
    for path, (seeds, loss) in {stored: ((0, 1), 1.0), folder: ((1, 2), 2.0)}.items():
        path.mkdir()
        runs = [table("WISKI, qUCB", "levy", seed).assign(loss=loss) for seed in seeds]
        split = [with_rule(run) for run in runs]
        whole = kept(split, keys, "functions", {"stored": str(stored)}, path)
    assert whole.groupby("seed")["loss"].first().to_dict() == {0: 1.0, 1: 2.0, 2: 2.0}
    assert len(whole) == 3 * 5 and set(whole["rule"]) == {"qUCB"}
    assert sorted(path.name for path in folder.iterdir()) == [
        f"functions_{seed}.csv" for seed in (0, 1, 2)
    ]


def test_seconds_of_a_step_are_those_between_checkpoints() -> None:
    steps = per_step([table("a", "levy", 0), table("b", "levy", 0)], 3)
    assert steps["n"].tolist() == [25.0, 70.5, 250.0] * 2  # one point is less than a step
    assert steps["seconds"].tolist() == pytest.approx([0.3, 0.3, 0.6] * 2)
    row = steps_table(steps).set_index("method").loc["a"]
    assert row["n = 30"] == pytest.approx(300.0) and row["n = 300"] == pytest.approx(600.0)
    assert np.isnan(row["n = 1,000"])


def test_campaigns_are_compared_by_the_seeds_that_all_have() -> None:
    few = {"raster": [{"cells": 3000}], "seeds": [0, 1], "policies": ["nipv", "random"]}
    maps = CONFIG["malaria"] | few | {"surrogate": CONFIG["malaria"]["surrogate"][:1]}
    runs = [run for run in plan(CONFIG | {"malaria": maps}) if not isinstance(run, ComparisonRun)]
    rows = {"n": [10, 370], "rmse": [2.0, 1.0], "integrated_variance": 0.5, "coverage": 0.9}
    ends = [(run, pd.DataFrame(rows | {"cpu_seconds": [1.0, 2.0 + run.seed]})) for run in runs]
    found = learned(pd.concat([ended(*end) for end in ends[:-1]]))
    assert found["policy"].tolist() == [in_words(name) for name in ("nipv", "random")]
    assert found["seeds"].tolist() == [1, 1]
    assert found["processor seconds"].tolist() == [3.0, 3.0] and found["n"].tolist() == [370, 370]


def test_stored_tables_are_those_of_the_stored_runs(tmp_path: Path) -> None:
    stored = CONFIGS.parents[1] / CONFIG["stored"]
    report(CONFIG | {"stored": str(stored)}, [], tmp_path)
    tables = (path.relative_to(stored) for path in stored.rglob("*.csv"))
    names = [name for name in tables if name.name != "kernels.csv"]  # of a benchmark
    assert len(names) >= 5
    for name in names:
        made, kept = pd.read_csv(tmp_path / name), pd.read_csv(stored / name)
        pd.testing.assert_frame_equal(made, kept, rtol=1e-6)
