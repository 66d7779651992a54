"""Regret at a budget of observations or of the optimiser's seconds."""

import math

import pandas as pd
import pytest

from experiments.common.budgets import at_budget, budgets

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
