"""Methods along a stream: families of bo_stream and baselines behind one interface."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from torch import Tensor

from bo_stream import surrogate
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import StateError
from bo_stream.scores import Prequential, prequential
from bo_stream.surrogates.registry import FAMILIES
from experiments.common.baselines.baseline import Baseline
from experiments.common.baselines.registry import BASELINES
from experiments.common.baselines.surrogates import observations
from experiments.common.densities import negative_log_densities
from experiments.common.kinds import built

__all__ = ["Contender", "contender"]

Batch = tuple[Tensor, Tensor]
Learn = Callable[[Tensor, Tensor], object]


class Contender(Protocol):
    """A method along a stream."""

    @property
    def bytes(self) -> float:
        """The size of its state; NaN where that is not known."""
        ...

    def absorb(self, X: Tensor, Y: Tensor) -> None:
        """Take in rows and bring predictions up to date."""
        ...

    def fit(self, evaluations: int) -> int:
        """Learn hyperparameters from what was seen; returns the number of evaluations it took."""
        ...

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations at ``n x d`` points, ``n`` each."""
        ...

    def scored(self, batches: Iterable[Batch], learn: Learn) -> Iterator[Prequential]:
        """Predict each batch, score the prediction, have ``learn`` absorb it."""
        ...


def contender(name: str, options: Mapping[str, Any], bounds: Tensor, seed: int) -> Contender:
    """A family of bo_stream, or a baseline of `experiments.common`.

    Args:
        name: Of the family, or of the baseline.
        options: Of it; a baseline's ``seconds`` are those of processor time that it may spend on
            each batch.
        bounds: ``2 x d``.
        seed: Of a baseline.
    """
    if name in FAMILIES:
        return Family(name, built(options), bounds)
    given = dict(options)
    budget = given.pop("seconds", 0.0)
    return Rival(BASELINES[name](**given, seed=seed), budget)


class Family:
    """A family of bo_stream; inputs are normalised to the bounds, outcomes by the first rows.

    Args:
        name: Of the family.
        options: Of it, and ``forget``.
        bounds: ``2 x d``.
    """

    def __init__(self, name: str, options: dict[str, Any], bounds: Tensor) -> None:
        self.name, self.options, self.bounds = name, dict(options), bounds
        self.factor: float | None = self.options.pop("forget", None)
        self._model: StreamingGP | None = None

    @property
    def model(self) -> StreamingGP:
        """The surrogate, once there were rows."""
        if self._model is None:
            raise StateError("rows first", "none", "Call absorb before anything else.")
        return self._model

    @property
    def bytes(self) -> float:
        """The size of its state."""
        return float(self.model.state_bytes)

    def absorb(self, X: Tensor, Y: Tensor) -> None:
        """Build it from the first rows, observe later ones."""
        if self._model is None:
            self._model = surrogate(self.name, X, Y, bounds=self.bounds, **self.options)
        else:
            if self.factor is not None:
                self._model.forget(self.factor)
            self._model.observe(X, Y)
        self._model.process()  # bringing the posterior up to date belongs to the update

    def fit(self, evaluations: int) -> int:
        """Fit with at most so many evaluations of the objective."""
        report = self.model.fit(evaluations)
        self.model.process()
        return report.evaluations

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations."""
        return observations(self.model, X)

    def scored(self, batches: Iterable[Batch], learn: Learn) -> Iterator[Prequential]:
        """Score by the joint density of a batch."""
        return prequential(self.model, batches, learn)


class Rival:
    """A baseline, which learns as it absorbs and has no joint density of a batch."""

    bytes = math.nan

    def __init__(self, method: Baseline, budget: float) -> None:
        self.method, self.budget = method, budget

    def absorb(self, X: Tensor, Y: Tensor) -> None:
        """Take in rows and learn within the budget."""
        self.method.observe(X, Y, self.budget)

    def fit(self, evaluations: int) -> int:
        """Do nothing: it has learned already."""
        return 0

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations."""
        return self.method.predict(X)

    def scored(self, batches: Iterable[Batch], learn: Learn) -> Iterator[Prequential]:
        """Score by the densities of single points, summed over a batch."""
        count, loss, squares = 0, 0.0, 0.0
        for X, Y in batches:
            mean, variance = self.predict(X)
            square = (Y[:, 0] - mean).square()
            nats = negative_log_densities(mean, variance, Y[:, 0])
            learn(X, Y)
            count, loss = count + len(X), loss + float(nats.sum())
            squares += float(square.sum())
            rmse = math.sqrt(squares / count)
            density, error = -float(nats.sum()), float(square.mean())
            yield Prequential(count, density, error, loss / count, rmse, behind=False)
