"""What runs reached: at the end, at equal budgets, in pairs, over several problems."""

import math

import numpy as np
import pandas as pd
import pytest

from experiments.bayesopt.tables import at_budget, budgets, paired, standings, summary

NAN = math.nan
RUN = pd.DataFrame(
    {
        "n": [10, 13, 16, 19],
        "cpu_seconds": [1.5, 1.5, 3.0, 1.0],
        "evaluation_seconds": [100.0] * 4,
        "inference_regret": [8.0, 4.0, NAN, 1.0],
    }
)


@pytest.mark.parametrize(
    ("seconds", "regret"),
    [(1.0, NAN), (1.5, 8.0), (2.9, 8.0), (3.0, 4.0), (6.5, 4.0), (7.0, 1.0), (7.1, NAN)],
)
def test_regret_within_seconds(seconds: float, regret: float) -> None:
    assert at_budget(RUN, "cpu_seconds", seconds).regret == pytest.approx(regret, nan_ok=True)


@pytest.mark.parametrize(
    ("n", "regret"), [(9, NAN), (10, 8.0), (15, 4.0), (18, 4.0), (19, 1.0), (20, NAN)]
)
def test_regret_within_observations(n: int, regret: float) -> None:
    assert at_budget(RUN, "n", n).regret == pytest.approx(regret, nan_ok=True)


def test_a_run_that_ended_before_may_count() -> None:
    assert at_budget(RUN, "cpu_seconds", 100.0, within=True) == (1.0, 19, 7.0)
    assert math.isnan(at_budget(RUN, "cpu_seconds", 1.0, within=True).regret)


def test_surrogates_are_compared_where_all_their_runs_got_to() -> None:
    longer = pd.DataFrame(
        {"n": [10, 60], "cpu_seconds": [1.0, 4.0], "inference_regret": [6.0, 2.0]}
    )
    tables = [
        longer.assign(surrogate="A"),
        longer.assign(surrogate="A", inference_regret=[6.0, 4.0]),
        longer.assign(surrogate="B"),
        RUN.assign(surrogate="B"),
    ]
    compared = budgets(tables).set_index("surrogate")
    assert compared.columns.tolist() == ["n = 50", "3 s"]  # further than anything went: no column
    assert compared.loc["A"].tolist() == [6.0, 6.0]
    assert math.isnan(compared.loc["B", "n = 50"]) and compared.loc["B", "3 s"] == 5.0


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
