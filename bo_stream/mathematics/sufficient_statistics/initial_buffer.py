"""A buffer of the first points of a stream, from which its statistics can be computed again.

The buffer has its full size from the start, so that the bytes of a state do not grow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, Self, cast

import torch
from torch import Tensor

from bo_stream.errors import StateError
from bo_stream.mathematics.shapes import nested, shaped
from bo_stream.mathematics.sufficient_statistics.state import Rows, SufficientStatistics, noisier

__all__ = ["InitialBuffer", "BufferedStatistics"]


@dataclass(frozen=True)
class InitialBuffer:
    """The first points, in transformed space: at most ``w``.

    Attributes:
        X: Inputs.
        Y: Targets.
        R: Noise variances, before any learned scale; zero where there is no point.
        chosen_at: Number of points when the features were last chosen.
    """

    X: Tensor = shaped("w d")
    Y: Tensor = shaped("o w")
    R: Tensor = shaped("s w", "not negative")
    chosen_at: Tensor = shaped("", "not negative")

    @classmethod
    def empty(cls, size: int, dim: int, outputs: int, noises: int) -> InitialBuffer:
        """Room for ``size`` points."""
        zero = torch.zeros((), dtype=torch.float64)
        Y, R = zero.new_zeros(outputs, size), zero.new_zeros(noises, size)
        return cls(zero.new_zeros(size, dim), Y, R, zero)

    def holds_all(self, n: int) -> bool:
        """Whether all n points of the stream are held."""
        return n <= len(self.X)

    def holding(self, X: Tensor, Y: Tensor, R: Tensor, n: int) -> InitialBuffer:
        """The buffer with points behind the first n, if there is room for all of them."""
        end = n + len(X)
        if not self.holds_all(end):
            return self
        new = replace(self, X=self.X.clone(), Y=self.Y.clone(), R=self.R.clone())
        new.X[n:end], new.Y[:, n:end], new.R[:, n:end] = X, Y, R
        return new

    def first(self, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, targets and noise variances of the first n points, all of them held."""
        return self.X[:n], self.Y[:, :n], self.R[:, :n]

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> InitialBuffer:
        """The points with targets ``(y - shift) / factor``, and known noise in the same units."""
        Y = (self.Y - shift.unsqueeze(-1)) / factor.unsqueeze(-1)
        Y = torch.where(self.R[0] > 0.0, Y, 0.0)
        R = self.R / factor.square().unsqueeze(-1) if known_noise else self.R
        return replace(self, Y=Y, R=R)


@dataclass(frozen=True)
class BufferedStatistics(SufficientStatistics, ABC):
    """Statistics over features that can be chosen again while all points are held.

    A family adds the features as a field, and defines `features`, `over` (a state with other
    features) and `rows_at` (rows of W).
    """

    buffer: InitialBuffer = nested()

    @property
    @abstractmethod
    def features(self) -> Any:
        """The features; ``same_as`` compares them with others."""

    @abstractmethod
    def over(self, features: Any) -> Self:
        """A state over other features, before any data."""

    @abstractmethod
    def rows_at(self, X: Tensor) -> Rows:
        """Rows of W at points ``n x d``."""

    @classmethod
    def entries(cls, m: int, **features: Any) -> tuple[int, ...]:
        """Shape of A over m features."""
        return m, m

    @classmethod
    def empty(
        cls, m: int, dim: int, outputs: int, shared: bool, opening: int, **features: Any
    ) -> Self:
        """Before any data."""
        sums = SufficientStatistics.zeros(m, outputs, shared, cls.entries(m, **features))
        held = InitialBuffer.empty(opening, dim, outputs, len(sums.A))
        parts = {part.name: getattr(sums, part.name) for part in fields(SufficientStatistics)}
        return cls(**parts, buffer=held, **features)

    def holds_all(self, n: int) -> bool:
        """Whether all n points are held."""
        return self.buffer.holds_all(n)

    @property
    def chosen_at(self) -> Tensor:
        """Number of points when the features were last chosen."""
        return self.buffer.chosen_at

    def absorb_at(self, X: Tensor, Y: Tensor, R: Tensor, n: int) -> Self:
        """The state after a batch, with n points before it (MATHS 2.2)."""
        new = self.absorb(self.rows_at(X), Y, R, first=n == 0)
        return replace(new, buffer=self.buffer.holding(X, Y, R, n))

    def resummed(self, features: Any, n: int) -> Self:
        """The statistics of the same n points, all held, over other features."""
        (X, Y, R), new = self.buffer.first(n), self.over(features)
        rows, weights = new.rows_at(X), 1.0 / R
        y = Y - self.origin.unsqueeze(-1)
        for A, r in zip(new.A, weights, strict=True):
            rows.add_outer(A, r)
        return replace(new, b=rows.transpose_times(weights * y, new.b.shape[-1]))

    def chosen(self, features: Any, n: int) -> Self:
        """As `resummed`, and the number of points is kept."""
        at = self.weight.new_tensor(n)
        return replace(self.resummed(features, n), buffer=replace(self.buffer, chosen_at=at))

    def along(self, other: SufficientStatistics, n: int) -> Self:
        """The statistics of the same n points over another state's features.

        Raises:
            StateError: if the features differ and the points are no longer held.
        """
        features = cast(BufferedStatistics, other).features
        if self.features.same_as(features):
            return self
        if not self.holds_all(n):
            raise StateError(*self._unlike())
        return self.resummed(features, n)

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The state for targets ``(y - shift) / factor``, and known noise in the same units."""
        buffer = self.buffer.rescaled(shift, factor, known_noise)
        return replace(super().rescaled(shift, factor, known_noise), buffer=buffer)

    def discounted(self, factor: float) -> Self:
        """The state with the weight of all points multiplied by a factor."""
        buffer = replace(self.buffer, R=noisier(self.buffer.R, factor))
        return replace(super().discounted(factor), buffer=buffer)

    def merged_at(self, other: Self, n: int, others: int) -> Self:
        """The statistics of both streams, of n and ``others`` points: O(m^2).

        Raises:
            StateError: if the features differ and neither stream holds all of its points.
        """
        mine = self
        if not mine.features.same_as(other.features):
            if other.holds_all(others):
                other = other.resummed(mine.features, others)
            elif mine.holds_all(n):
                mine = mine.resummed(other.features, n)
            else:
                raise StateError(*self._unlike())
        new = super(BufferedStatistics, mine).merged_at(other, n, others)
        if not other.holds_all(others):
            return new
        return replace(new, buffer=mine.buffer.holding(*other.buffer.first(others), n))

    @abstractmethod
    def _unlike(self) -> tuple[str, str, str]:
        """The error for two streams over different features: expected, got, remedy."""
