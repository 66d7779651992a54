"""Models of scikit-learn as tasks."""

import numpy as np
import pandas as pd
import pytest

from experiments.comparison.tasks.registry import made
from experiments.comparison.tasks.task import Told
from experiments.comparison.tasks.tuning import TUNED

pytest.importorskip("sklearn", reason="the extra 'tuning' is not installed")
GOOD = {
    "boosting_diabetes": {"rate": 0.1, "trees": 30, "depth": 2, "loss": "squared_error"},
    "boosting_digits": {"rate": 0.2, "trees": 60, "depth": 3, "loss": "log_loss"},
    "svm_cancer": {"C": 1.0, "gamma": 0.03, "kernel": "rbf", "degree": 3},
}
BAD = {
    "boosting_diabetes": {"trees": 10, "rate": 0.003},
    "boosting_digits": {"trees": 10, "rate": 0.003},
    "svm_cancer": {"C": 1e-3, "gamma": 1e-5},
}


@pytest.mark.parametrize("name", GOOD)
def test_outcomes_are_noisy_and_settings_are_judged_without(name: str) -> None:
    task = made(name, 0, {})
    rows = pd.DataFrame([GOOD[name], GOOD[name], {**GOOD[name], **BAD[name]}])
    X = task.box.values(rows)
    Y = task.evaluate(X, np.random.default_rng(0))
    assert Y[0, 0] != Y[1, 0]
    good, again, bad = (task.judge(Told(X, Y, x)) for x in X)
    assert good == again and 0.0 < good < 0.3 * bad
    assert good + TUNED[name].least == pytest.approx(Y[:2].mean(), rel=0.4)


def test_folds_follow_the_generator_but_not_in_judging() -> None:
    task = made("svm_cancer", 0, {})
    X = task.box.values(pd.DataFrame([GOOD["svm_cancer"]]))
    first, same = (task.evaluate(X, np.random.default_rng(7)) for _ in range(2))
    assert first == same
    assert task.traits == {"mixed"}
    told = Told(X, first, X[0])
    assert task.judge(told) == made("svm_cancer", 1, {}).judge(told)
