"""Methods along a stream: families of surrogates and baselines behind one interface."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.scores import Prequential, prequential
from experiments.common.baselines.baseline import Baseline, trained
from experiments.common.baselines.registry import BASELINES, FAMILIES
from experiments.common.baselines.surrogates import observations
from experiments.common.data import negative_log_densities

Batch = tuple[Tensor, Tensor]
Learn = Callable[[Tensor, Tensor], object]


def method(name: str, options: Mapping[str, Any], bounds: Tensor, seed: int) -> Family | Pointwise:
    """A family, with bounds ``2 x d``, or a baseline, with a seed, by name.

    A baseline's option ``seconds`` are those of processor time that it may spend on each batch.
    """
    if name in FAMILIES:
        return Family(name, dict(options), bounds)
    own = dict(options)
    budget = own.pop("seconds", 0.0)
    return Pointwise(BASELINES[name](**own, seed=seed), budget)


class Family:
    """A family; inputs are normalised to the bounds, outcomes by the first rows."""

    def __init__(self, name: str, options: dict[str, Any], bounds: Tensor) -> None:
        self.name, self.options, self.bounds = name, dict(options), bounds
        self.factor: float | None = self.options.pop("forget", None)
        self._model: StreamingGP | None = None

    @property
    def model(self) -> StreamingGP:
        """The surrogate, once there were rows."""
        return trained(self._model)

    @property
    def bytes(self) -> float:
        """The size of its state."""
        return float(self.model.state_bytes)

    def absorb(self, X: Tensor, Y: Tensor) -> None:
        """Take in rows and bring predictions up to date."""
        if self._model is None:
            self._model = FAMILIES[self.name](X, Y, bounds=self.bounds, **self.options)
        else:
            if self.factor is not None:
                self._model.forget(self.factor)
            self._model.observe(X, Y)
        self._model.process()  # bringing the posterior up to date belongs to the update

    def fit(self, evaluations: int) -> int:
        """Learn hyperparameters from what was seen; returns the number of evaluations it took."""
        report = self.model.fit(evaluations)
        self.model.process()
        return report.evaluations

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations at ``n x d`` points, ``n`` each."""
        return observations(self.model, X)

    def scored(self, batches: Iterable[Batch], learn: Learn) -> Iterator[Prequential]:
        """Predict each batch, score its joint density, have ``learn`` absorb it."""
        return prequential(self.model, batches, learn)


class Pointwise:
    """A baseline, which learns as it absorbs and predicts one point at a time."""

    bytes = math.nan

    def __init__(self, baseline: Baseline, budget: float) -> None:
        self.baseline, self.budget, self.predict = baseline, budget, baseline.predict

    def absorb(self, X: Tensor, Y: Tensor) -> None:
        """Take in rows and learn within the budget."""
        self.baseline.observe(X, Y, self.budget)

    def fit(self, evaluations: int) -> int:
        """Do nothing: it has learned already."""
        return 0

    def scored(self, batches: Iterable[Batch], learn: Learn) -> Iterator[Prequential]:
        """Score by the densities of single points, summed over a batch."""
        count, loss, squares = 0, 0.0, 0.0
        for X, Y in batches:
            mean, variance = self.predict(X)
            square = (Y[:, 0] - mean).square()
            nats = float(negative_log_densities(mean, variance, Y[:, 0]).sum())
            learn(X, Y)
            count, loss, squares = count + len(X), loss + nats, squares + float(square.sum())
            rmse = math.sqrt(squares / count)
            yield Prequential(count, -nats, float(square.mean()), loss / count, rmse, behind=False)
