"""The course of a training: scores against the seconds of processor time spent on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from experiments.common.densities import negative_log_densities
from experiments.common.splits import TableSplit

__all__ = ["LEVELS", "Course", "Predict", "Trained", "judged"]

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Of the central intervals whose coverage is counted."""
GROWTH = 1.25
"""Scores are taken each time the seconds have grown by this factor."""

Predict = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Trained:
    """What came of training.

    Attributes:
        predict: ``n x d`` to means and variances of observations, ``n`` each.
        kernel: The kernel.
        likelihood: The likelihood.
        model: The surrogate, or gpytorch's model.
    """

    predict: Predict
    kernel: Kernel
    likelihood: GaussianLikelihood
    model: Any


def judged(predict: Predict, split: TableSplit) -> dict[str, float]:
    """Density, error and coverage of test observations: ``nll`` (nats), ``rmse``, ``coverage L``.

    Units are those of the standardised outcomes.
    """
    with torch.no_grad():
        mean, variance = predict(split.X_test)
    error = split.Y_test[:, 0] - mean
    nll = negative_log_densities(mean, variance, split.Y_test[:, 0]).mean()
    row = {"nll": float(nll), "rmse": float(error.square().mean().sqrt())}
    inside = torch.erf(error.abs() / (2.0 * variance).sqrt())
    return row | {f"coverage {p}": float((inside <= p).double().mean()) for p in LEVELS}


@dataclass
class Course:
    """The course of one training: scores against seconds of processor time spent learning.

    Taking scores is outside the account.

    Attributes:
        split: What is learned.
        budget: Seconds to be spent.
        rows: A dict of `judged` with ``seconds`` for each time scores were taken.
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
        """How often a task fits into the budget, by one rehearsal outside the account."""
        now, began = self.seconds, time.process_time()
        task()
        once = time.process_time() - began
        self._began += self.seconds - now
        return max(2, round((self.budget - now) / max(once, 1e-6)))
