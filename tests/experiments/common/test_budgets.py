"""Regret at a budget of observations or of the optimiser's seconds."""

import math

import pandas as pd
import pytest

from experiments.common.budgets import at_n, at_seconds, optimiser_seconds

NAN = math.nan
RUN = pd.DataFrame(
    {
        "n": [10, 13, 16, 19],
        "fit_seconds": [1.0, 0.0, 2.0, 0.0],
        "acquisition_seconds": [0.0, 1.0, 1.0, 1.0],
        "update_seconds": [0.5, 0.5, 0.0, 0.0],
        "evaluation_seconds": [100.0] * 4,
        "recommend_seconds": [10.0] * 4,
        "inference_regret": [8.0, 4.0, NAN, 1.0],
        "simple_regret": [9.0, 7.0, 5.0, 3.0],
    }
)


def test_only_the_optimiser_spends_seconds() -> None:
    assert optimiser_seconds(RUN).tolist() == [1.5, 3.0, 6.0, 7.0]


@pytest.mark.parametrize(
    ("seconds", "regret"),
    [(1.0, NAN), (1.5, 8.0), (2.9, 8.0), (3.0, 4.0), (6.5, 4.0), (7.0, 1.0), (7.1, NAN)],
)
def test_at_seconds(seconds: float, regret: float) -> None:
    assert at_seconds(RUN, seconds) == pytest.approx(regret, nan_ok=True)


@pytest.mark.parametrize(
    ("n", "regret"), [(9, NAN), (10, 8.0), (15, 4.0), (18, 4.0), (19, 1.0), (20, NAN)]
)
def test_at_n(n: int, regret: float) -> None:
    assert at_n(RUN, n) == pytest.approx(regret, nan_ok=True)


def test_another_regret_may_be_asked_for() -> None:
    assert at_n(RUN, 16, "simple_regret") == at_seconds(RUN, 6.0, "simple_regret") == 5.0
