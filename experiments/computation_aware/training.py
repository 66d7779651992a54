"""A training on a budget: scores against the seconds of processor time spent on it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from experiments.common.data import TableSplit, coverage, scores

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Of the central intervals whose coverage is counted."""
GROWTH = 1.25
"""Scores are taken each time the seconds have grown by this factor."""

Predict = Callable[[Tensor], tuple[Tensor, Tensor]]
"""``n x d`` points to means and variances of observations, ``n`` each."""


@dataclass(frozen=True, eq=False)
class Trained:
    """What came of training; the model is the surrogate, or gpytorch's."""

    predict: Predict
    kernel: Kernel
    likelihood: GaussianLikelihood
    model: Any


def judged(predict: Predict, split: TableSplit) -> dict[str, float]:
    """Density, error and coverage of test observations: ``nll`` (nats), ``rmse``, ``coverage L``.

    Units are those of the standardised outcomes.
    """
    with torch.no_grad():
        at, y = predict(split.X_test), split.Y_test[:, 0]
    known = scores(*at, y)
    row = {"nll": known["nlpd"], "rmse": known["rmse"]}
    return row | {f"coverage {level}": coverage(*at, y, level) for level in LEVELS}


@dataclass
class Training:
    """One training for so many seconds: scores against seconds of processor time spent learning.

    Scoring apart; ``rows`` has a dict of `judged` with ``seconds`` for each time scores were taken.
    """

    split: TableSplit
    budget: float
    rows: list[dict[str, float]] = field(default_factory=list)
    _began: float = field(default_factory=time.process_time)
    _next: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds spent learning so far."""
        return time.process_time() - self._began

    @property
    def due(self) -> bool:
        """Whether it is time for scores."""
        return self.seconds >= self._next

    def note(self, predict: Predict) -> None:
        """Take scores now."""
        now = self.seconds
        self.rows.append({"seconds": now, **judged(predict, self.split)})
        self._next = max(GROWTH * now, self.budget / 100.0)
        self._began += self.seconds - now

    def rehearse(self, task: Callable[[], object]) -> int:
        """How often a task fits into the budget, by one rehearsal that is not counted."""
        now, began = self.seconds, time.process_time()
        task()
        once = time.process_time() - began
        self._began += self.seconds - now
        return max(2, round((self.budget - now) / max(once, 1e-6)))
