"""Tuning models of scikit-learn on the data sets that it ships: inputs of several kinds, and noise.

An outcome is the loss of a two-fold cross-validation, with folds and model seeded anew in each
evaluation. The setting that a method recommends is judged by the mean over five cross-validations
with seeds of their own, the same for all: its loss is what that lies above a number a little below
the best one known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from bo_stream import Box
from experiments.comparison.tasks.task import Task, Told

FOLDS, JUDGED = 2, 5
ROWS = 600
"""Rows of the digits, whose parity is learned."""

Row = Mapping[str, Any]
Model = Callable[[Row, int], Any]


@dataclass(frozen=True)
class Tuned:
    """A model by settings and seed, their box, rows and labels, a score and its best value.

    ``least`` is a little less than the mean of the best setting known.
    """

    box: Box
    model: Model
    data: Callable[[], tuple[np.ndarray, np.ndarray]]
    scoring: str
    least: float
    best: float = 0.0


def tuning_task(name: str, seed: int, **task: Any) -> Task:
    """One of `TUNED`, the same for all seeds: a loss, to be minimised."""
    tuned, mean = TUNED[name], cache(partial(judged, name))

    def evaluate(X: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        rows: Any = tuned.box.labelled(X).to_dict("records")
        seeds = generator.integers(2**31, size=len(rows)).tolist()
        return np.array([[validated(name, row, s)] for row, s in zip(rows, seeds, strict=True)])

    def judge(told: Told) -> float:
        if told.recommended is None:
            return float("nan")
        return mean(tuple(told.recommended)) - tuned.least

    return Task(name, tuned.box, evaluate, judge, deterministic=False, **task)


def judged(name: str, values: tuple[float, ...]) -> float:
    """The mean loss of a setting, as the box's values."""
    rows: Any = TUNED[name].box.labelled(np.array([values])).to_dict("records")
    return float(np.mean([validated(name, rows[0], -1 - i) for i in range(JUDGED)]))


def validated(name: str, row: Row, seed: int) -> float:
    """The loss of one cross-validation; seeds below 0 are those of `judged`."""
    from sklearn.model_selection import KFold, cross_val_score

    tuned, state = TUNED[name], seed % 2**32
    X, y = data(name)
    folds = KFold(FOLDS, shuffle=True, random_state=state)
    scores = cross_val_score(tuned.model(row, state), X, y, cv=folds, scoring=tuned.scoring)
    return tuned.best - float(np.mean(scores))


@cache
def data(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels of a task, read once."""
    return TUNED[name].data()


# -- models and data -----------------------------------------------------------------------------


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    """442 patients, ten inputs, the progression of the disease."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    return X, y


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images of 64 pixels, and whether the digit is odd."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X[:ROWS], y[:ROWS] % 2


def cancer() -> tuple[np.ndarray, np.ndarray]:
    """569 tumours, 30 inputs scaled to unit variance, benign or not."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.preprocessing import StandardScaler

    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def boosted_regressor(row: Row, state: int) -> Any:
    """Boosted trees of a number."""
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(subsample=0.7, random_state=state, **named(row))


def boosted_classifier(row: Row, state: int) -> Any:
    """Boosted trees of two classes."""
    from sklearn.ensemble import GradientBoostingClassifier

    options = {"subsample": 0.7, "max_features": "sqrt"}
    return GradientBoostingClassifier(random_state=state, **options, **named(row))


def support_vectors(row: Row, state: int) -> Any:
    """A support vector machine; settings that do not converge are stopped."""
    from sklearn.svm import SVC

    return SVC(max_iter=20_000, random_state=state, **row)


def named(row: Row) -> dict[str, Any]:
    """Settings of boosted trees by scikit-learn's names."""
    return {
        "learning_rate": row["rate"],
        "n_estimators": row["trees"],
        "max_depth": row["depth"],
        "loss": row["loss"],
    }


def boosted_box(losses: list[str]) -> Box:
    """Learning rate, number of trees, their depth and the loss that they reduce."""
    bounds = {"rate": (0.003, 1.0), "trees": (10, 60), "depth": (1, 4), "loss": losses}
    return Box(bounds, log=["rate"], integer=["trees", "depth"])


VECTORS = Box(
    {
        "C": (1e-3, 1e3),
        "gamma": (1e-5, 1.0),
        "kernel": ["rbf", "poly", "sigmoid"],
        "degree": (2, 4),
    },
    log=["C", "gamma"],
    integer=["degree"],
)
TUNED = {
    "boosting_diabetes": Tuned(
        boosted_box(["squared_error", "huber"]),
        boosted_regressor,
        diabetes,
        "neg_root_mean_squared_error",
        least=56.5,
    ),
    "boosting_digits": Tuned(
        boosted_box(["log_loss", "exponential"]),
        boosted_classifier,
        digits,
        "neg_log_loss",
        least=0.09,
    ),
    "svm_cancer": Tuned(VECTORS, support_vectors, cancer, "accuracy", least=0.025, best=1.0),
}
