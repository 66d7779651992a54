"""What benchmarks share; that each runs is seen by ``make smoke``."""

import json
import time
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
import torch
import typer
from typer.testing import CliRunner

from experiments import smoke as every
from experiments.benchmarks.benchmark import LONG, benchmark, checked
from experiments.benchmarks.fit_modes import best_of, hard_problem
from experiments.benchmarks.timing import clock_on, loop_clock, seconds

BENCHMARKS = [f"experiments.{name}" for name in every.commands() if name.startswith("benchmarks.")]


def words(printed: str) -> str:
    """What was printed, without the frame around it."""
    return " ".join(printed.replace("│", " ").split())


@pytest.mark.parametrize("smoke", [False, True])
def test_tables_are_written_and_short_ones_printed(tmp_path: Path, smoke: bool) -> None:
    tables = {"short": pd.DataFrame({"a": [1.5]}), "long": pd.DataFrame({"b": range(LONG)})}
    seen: list[tuple[bool, str]] = []

    def measure(smoke: bool, device: torch.device) -> list[tuple[str, pd.DataFrame]]:
        seen.append((smoke, device.type))
        return list(tables.items())

    app = benchmark(measure, "about a minute", "What is measured.")
    options = ["--out", str(tmp_path), *(["--smoke"] if smoke else [])]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0 and seen == [(smoke, "cpu")]
    assert "1.5" in result.output and "39" not in result.output
    assert {path.stem for path in tmp_path.glob("*.csv")} == set(tables)
    about = json.loads((tmp_path / "long.json").read_text())
    assert about["device"] == {"type": "cpu", "name": None} and about["smoke"] == smoke
    assert about["environment"]["cpu"]
    assert pd.read_csv(tmp_path / "long.csv")["b"].tolist() == list(range(LONG))


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_a_device_that_is_not_there_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    options = ["--device", "cuda", "--smoke", "--out", str(tmp_path / "none")]
    for module in BENCHMARKS:
        result = CliRunner().invoke(import_module(module).app, options)
        assert result.exit_code == 2 and "Leave --device out" in words(result.output), module
    assert "needs a CUDA device" in words(result.output) and not (tmp_path / "none").exists()
    unknown = CliRunner().invoke(import_module(BENCHMARKS[0]).app, ["--device", "tpu"])
    assert unknown.exit_code == 2 and "'cpu', 'cuda'" in words(unknown.output)


def test_what_runs_on_the_processor_alone_says_so() -> None:
    with pytest.raises(typer.BadParameter, match="Campaigns run on the processor"):
        checked("cuda", "Campaigns run on the processor.")
    assert checked("cpu", "Campaigns run on the processor.").type == "cpu"


def test_the_clock_of_the_processor_counts_its_own_seconds() -> None:
    clock, wall = clock_on(torch.device("cpu")), time.perf_counter()
    assert seconds(lambda: time.sleep(0.1), clock) < 0.05 < time.perf_counter() - wall
    waited = loop_clock(torch.device("cpu"))
    assert seconds(lambda: time.sleep(0.1), lambda: waited()[0]) >= 0.1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("module", BENCHMARKS)
def test_every_benchmark_on_a_cuda_device(module: str, tmp_path: Path) -> None:
    options = ["--device", "cuda", "--smoke", "--out", str(tmp_path)]
    result = CliRunner().invoke(import_module(module).app, options)
    if "Leave --device out" in words(result.output):
        assert result.exit_code == 2 and not list(tmp_path.iterdir())
        return
    assert result.exit_code == 0, result.output
    abouts = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert {about["device"]["name"] for about in abouts} == {torch.cuda.get_device_name()}


def test_many_starts_find_no_worse_an_optimum_than_one() -> None:
    problem = hard_problem(0, 1)
    one, several = (best_of(lambda: problem.surrogate("exact"), n, 0) for n in (1, 3))
    assert several >= one - 1e-6
