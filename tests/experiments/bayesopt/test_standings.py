"""Who leads where, over several problems."""

import pandas as pd
import pytest

from experiments.bayesopt.standings import standings


def run(surrogate: str, seed: int, regret: float, n: int = 60) -> pd.DataFrame:
    """Two recommendations, the first after ten observations."""
    return pd.DataFrame(
        {
            "n": [10, n],
            "cpu_seconds": [0.1, 4.0],
            "inference_regret": [9.0, regret],
            "surrogate": surrogate,
            "seed": seed,
        }
    )


def test_the_best_at_a_budget_comes_first() -> None:
    parts = {
        "levy": [run("A", s, 1.0 + s, n=50) for s in (0, 1, 2)]
        + [run("B", s, 3.0 + s, n=50) for s in (0, 1, 2)],
        "ackley": [run("A", s, 2.0, n=50) for s in (0, 1, 2)]
        + [run("B", s, 1.0, n=50) for s in (0, 1)]
        + [run("B", 2, 5.0, n=50)],
    }
    told = standings(parts)
    assert list(told) == ["n = 50", "3 s"]  # nothing went further
    table = told["n = 50"]
    assert table["surrogate"].tolist() == ["A", "B"]
    assert table[["levy", "ackley"]].to_numpy().tolist() == [[2.0, 2.0], [4.0, 1.0]]
    assert table["led"].tolist() == [1, 1]
    assert table["mean rank"].tolist() == pytest.approx([8 / 6, 10 / 6])
    assert (table["low"] < table["mean rank"]).all() and (table["mean rank"] < table["high"]).all()
    assert table["n"].tolist() == [50, 50]
    assert table["processor s"].tolist() == pytest.approx([4.1, 4.1])
    assert told["3 s"]["mean rank"].tolist() == [1.5, 1.5]  # all had only the first recommendation


def test_a_surrogate_stands_where_all_its_runs_got_to() -> None:
    parts = {
        "levy": [run("A", 0, 1.0), run("B", 0, 2.0), run("C", 0, 0.0, n=30)],
        "ackley": [run("A", 0, 1.0), run("B", 0, 2.0), run("C", 0, 0.0)],
    }
    told = standings(parts)
    assert told["n = 50"]["surrogate"].tolist() == ["A", "B"]
    assert told["3 s"]["surrogate"].tolist() == ["A", "B", "C"]
    short = run("D", 0, 0.5).assign(cpu_seconds=0.1)
    told = standings({task: [*tables, short] for task, tables in parts.items()})
    assert told["3 s"]["surrogate"].tolist() == ["D", "A", "B", "C"]  # it spent less
    assert told["3 s"]["processor s"].tolist()[0] == pytest.approx(0.2)
    told = standings({"levy": [run("A", 0, 1.0), short]})
    assert told["3 s"]["surrogate"].tolist() == ["D", "A"]  # one of them spending it is enough
    alone = {task: tables[:1] for task, tables in parts.items()}
    assert standings(alone) == {}
