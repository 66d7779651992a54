"""What benchmarks share; that each runs is seen by ``make smoke``."""

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from experiments.benchmarks.benchmark import LONG, benchmark
from experiments.benchmarks.fit_modes import best_of, hard_problem


@pytest.mark.parametrize("smoke", [False, True])
def test_tables_are_written_and_short_ones_printed(tmp_path: Path, smoke: bool) -> None:
    tables = {"short": pd.DataFrame({"a": [1.5]}), "long": pd.DataFrame({"b": range(LONG)})}
    seen: list[bool] = []

    def measure(smoke: bool) -> list[tuple[str, pd.DataFrame]]:
        seen.append(smoke)
        return list(tables.items())

    app = benchmark(measure, "about a minute", "What is measured.")
    options = ["--out", str(tmp_path), *(["--smoke"] if smoke else [])]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0 and seen == [smoke]
    assert "1.5" in result.output and "39" not in result.output
    assert {path.stem for path in tmp_path.iterdir()} == set(tables)
    assert pd.read_csv(tmp_path / "long.csv")["b"].tolist() == list(range(LONG))


def test_many_starts_find_no_worse_an_optimum_than_one() -> None:
    problem = hard_problem(0, 1)
    one, several = (best_of(lambda: problem.surrogate("exact"), n, 0) for n in (1, 3))
    assert several >= one - 1e-6
