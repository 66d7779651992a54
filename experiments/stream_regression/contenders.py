"""What a stream asks of a method, the same of a family of bo_stream and of a baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from torch import Tensor

from bo_stream import surrogate
from bo_stream.core.streaming import StreamingGP
from bo_stream.families import FAMILIES
from bo_stream.scores import Prequential, prequential
from experiments.common.baselines.baseline import Baseline
from experiments.common.baselines.surrogates import observations
from experiments.common.kinds import built
from experiments.decoupled.contenders import KINDS

__all__ = ["Contender", "contender"]

Batch = tuple[Tensor, Tensor]
Learn = Callable[[Tensor, Tensor], object]


class Contender(Protocol):
    """A method along a stream.

    Attributes:
        bytes: Of its state; NaN where that is not known.
    """

    @property
    def bytes(self) -> float:
        """Of its state; NaN where that is not known."""
        ...

    def absorb(self, X: Tensor, Y: Tensor) -> None:
        """Take in rows and bring predictions up to date."""
        ...

    def fit(self, evaluations: int) -> int:
        """Learn hyperparameters from what was seen; returns evaluations of the objective."""
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
        name: Of the family, or ``svi``, ``batch_sgpr``, ``local``, ``stochastic``.
        options: Of it; a baseline's ``seconds`` are those of processor time that it may spend on
            each batch.
        bounds: ``2 x d``.
        seed: Of a baseline.
    """
    if name in FAMILIES:
        return Family(name, built(options), bounds)
    given = dict(options)
    budget = given.pop("seconds", 0.0)
    return Rival(KINDS[name](**given, seed=seed), budget)


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
            raise RuntimeError("Expected rows before anything else; got none.")
        return self._model

    @property
    def bytes(self) -> float:
        """Of its state."""
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
        """At most so many evaluations of its objective."""
        report = self.model.fit(evaluations)
        self.model.process()
        return report.evaluations

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations."""
        return observations(self.model, X)

    def scored(self, batches: Iterable[Batch], learn: Learn) -> Iterator[Prequential]:
        """By the joint density of a batch."""
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
        """Nothing: it has learned already."""
        return 0

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of observations."""
        return self.method.predict(X)

    def scored(self, batches: Iterable[Batch], learn: Learn) -> Iterator[Prequential]:
        """By the densities of single points, summed over a batch."""
        count, loss, squares = 0, 0.0, 0.0
        for X, Y in batches:
            mean, variance = self.predict(X)
            square = (Y[:, 0] - mean).square()
            nats = 0.5 * ((2.0 * math.pi * variance).log() + square / variance)
            learn(X, Y)
            count, loss = count + len(X), loss + float(nats.sum())
            squares += float(square.sum())
            rmse = math.sqrt(squares / count)
            density, error = -float(nats.sum()), float(square.mean())
            yield Prequential(count, density, error, loss / count, rmse, behind=False)
