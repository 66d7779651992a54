"""Standings and pairs at equal budgets."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from experiments.comparison.pages import number, pairs, standing
from experiments.comparison.pictures import stairs
from experiments.comparison.report import report
from experiments.comparison.tables import Unit, at_budget, paired, standings


def run(method: str, task: str, seed: int, losses: list[float], pace: float = 0.1) -> pd.DataFrame:
    n = 10 * (np.arange(len(losses)) + 1)
    table = pd.DataFrame({"n": n, "cpu_seconds": pace * n, "loss": losses})
    return table.assign(method=method, task=task, seed=seed)


RUNS = [
    run(method, task, seed, [8.0, factor * (1.0 + seed)])
    for task in ("b", "a")
    for seed in (0, 1, 2)
    for method, factor in (("ours", 0.1), ("other", 1.0))
]


def test_the_loss_is_that_of_the_last_row_within_the_budget() -> None:
    table = run("m", "a", 0, [3.0, 2.0])

    def loss(unit: Unit, budget: float) -> list[float]:
        return at_budget(table, unit, budget)["loss"].tolist()

    assert loss("n", 19) == [3.0] and loss("n", 20) == [2.0] and loss("n", 21) == loss("n", 9) == []
    assert loss("cpu_seconds", 1.0) == [3.0] and loss("cpu_seconds", 2.0) == [2.0]
    assert loss("cpu_seconds", 100.0) == [2.0]  # it ended with time left
    assert stairs(table, "n", np.array([5.0, 15.0, 25.0])).tolist() == [3.0, 3.0, 2.0]


def test_standings_rank_within_tasks_and_seeds() -> None:
    table = standings(RUNS, "n", 20).set_index("method")
    assert list(table.index) == ["ours", "other"] and list(table["mean rank"]) == [1.0, 2.0]
    assert list(table.columns[:2]) == ["b", "a"]  # in the order of the configuration
    assert table.loc["ours", "a"] == pytest.approx(0.2) and table.loc["other", "seeds"] == 3
    assert table.loc["ours", "n"] == 20 and table.loc["ours", "processor s"] == 2.0


def test_ranks_are_among_the_methods_with_all_seeds() -> None:
    few = run("few", "a", 0, [8.0, 0.0]), run("few", "b", 0, [8.0, 0.0])
    short = run("short", "a", 0, [8.0]), run("short", "b", 0, [8.0])
    table = standings([*RUNS, *few, *short], "n", 20).set_index("method")
    assert np.isnan(table.loc["few", "mean rank"]) and table.loc["few", "seeds"] == 1
    assert table.loc["ours", "mean rank"] == 1.0 and "short" not in table.index


def test_a_task_that_starts_beyond_the_budget_is_left_out() -> None:
    late = [run(m, "late", 0, [1.0]).assign(n=30) for m in ("ours", "other")]
    table = standings([*RUNS, *late], "n", 20)
    assert "late" not in table and table["mean rank"].tolist() == [1.0, 2.0]


def test_pairs_compare_the_first_method_on_the_seeds_that_both_have() -> None:
    table = paired([*RUNS, run("few", "a", 0, [8.0, 0.01])], "n", 20).set_index("against")
    assert table.loc["other", "median"] == pytest.approx(-1.0)
    assert table.loc["other", "better"] == 1.0 and table.loc["other", "runs"] == 6
    assert table.loc["few", "runs"] == 1 and table.loc["few", "better"] == 0.0


def test_pages_say_what_the_files_say() -> None:
    frame = standings(RUNS, "n", 20).assign(budget="n = 20")
    lines = standing(frame, "n = 20").splitlines()
    assert lines[0] == "|  | ours | other |" and lines[2] == "| b | **0.2** | 2 |"
    assert lines[4] == "| mean rank (95 %) | 1.0 (1.0 to 1.0) | 2.0 (2.0 to 2.0) |"
    page = pairs(paired(RUNS, "n", 20).assign(budget="n = 20"))
    assert page.splitlines()[2] == "| other | -1.00 (-1.00 to -1.00), 100% |"
    assert [number(v) for v in (1e-7, 0.0123, 1234.5, np.nan)] == ["<1e-5", "0.012", "1,234", "-"]


def test_reports_write_every_table_and_the_pairs_of_tasks_apart(tmp_path: Path) -> None:
    budget = {"marks": (20,), "mark_seconds": (2.0,)}
    done = [(SimpleNamespace(budget=budget), table) for table in RUNS]
    for pooled in (False, True):
        report({"title": "T", "apart": ["a"], "pooled": pooled}, done, tmp_path)
        pictures = sorted(path.name for path in tmp_path.glob("*.png"))
        assert pictures == ["loss_by_evaluations.png", "loss_by_seconds.png"]
    assert pd.read_csv(tmp_path / "standings.csv")["budget"].unique().tolist() == ["n = 20", "2 s"]
    runs = {
        name: pd.read_csv(tmp_path / f"{name}.csv")["runs"] for name in ("paired", "paired_apart")
    }
    assert set(runs["paired"]) == {6} and set(runs["paired_apart"]) == {3}
    assert (tmp_path / "tables.md").read_text().count("mean rank") == 2
