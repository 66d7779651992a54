"""Sufficient statistics of a Gaussian process on features (MATHS 2.2).

    A = W'R^-1 W,  b = W'R^-1 y,  yy = y'R^-1 y,  ld = sum log r

They are sums over observations that do not depend on hyperparameters: any order and any batching
give the same statistics, and those of two streams add up. Multiplied by a factor below one, they
forget exponentially. While the first points are buffered, the sums over other features can be
computed from them. The buffer has its full size from the start, so that the bytes of a state do not
grow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, Self, cast

import torch
from torch import Tensor

from bo_stream.errors import StateError
from bo_stream.mathematics.evidence import OutputStatistics
from bo_stream.mathematics.rows import Rows
from bo_stream.mathematics.shapes import nested, shaped

__all__ = [
    "BufferedStatistics",
    "GeneralStatistics",
    "SufficientStatistics",
    "SummedRows",
    "far",
]

FAR = 1e3
"""Outcomes of larger mean are centred by the first batch's mean."""
FORGOTTEN = 1e-200
"""Statistics below this are set to zero: subnormal numbers are slow."""


class SummedRows(Protocol):
    """Rows of W for a batch of ``n`` points."""

    def add_outer(self, A: Tensor, weights: Tensor) -> None:
        """``A += W' diag(weights) W`` in place."""
        ...

    def transpose_times(self, values: Tensor, m: int) -> Tensor:
        """``W' values`` for ``o x n`` values: ``o x m``."""
        ...


@dataclass(frozen=True)
class SufficientStatistics:
    """The statistics of m features and ``o`` outputs; ``s`` is 1 if outputs share their noise.

    Attributes:
        A: ``W'R^-1 W``.
        b: ``W'R^-1 (y - origin)``.
        yy: ``(y - origin)'R^-1 (y - origin)``.
        origin: Subtracted from y.
        ld: Sum of the logarithms of R.
        weight: Number of observations, or the sum of their weights after forgetting.
    """

    A: Tensor = shaped("s m m")
    b: Tensor = shaped("o m")
    yy: Tensor = shaped("o", "not negative")
    origin: Tensor = shaped("o")
    ld: Tensor = shaped("s")
    weight: Tensor = shaped("", "not negative")

    @classmethod
    def zeros(
        cls, m: int, outputs: int, shared: bool, entries: Sequence[int] | None = None
    ) -> Self:
        """Before any data; ``entries`` is the shape of A, by default ``m x m``."""
        zero, s = torch.zeros((), dtype=torch.float64), 1 if shared else outputs
        o = zero.new_zeros(outputs)
        return cls(
            zero.new_zeros(s, *((m, m) if entries is None else entries)),
            zero.new_zeros(outputs, m),
            o,
            o.clone(),
            zero.new_zeros(s),
            zero,
        )

    def absorb(self, rows: Any, Y: Tensor, R: Tensor, *, first: bool) -> Self:
        """With one more batch, Y ``o x n``, R ``s x n``: a copy of A and the cost of the rows."""
        weights = 1.0 / R
        origin = far(Y.mean(-1)) if first else self.origin
        y = Y - origin.unsqueeze(-1)
        weighted, A = weights * y, self.A.clone()
        return replace(
            self,
            A=A,
            b=self.b + self._summed(A, rows, weights, weighted),
            yy=self.yy + (weighted * y).sum(-1),
            origin=origin,
            ld=self.ld - weights.log().sum(-1),
            weight=self.weight + Y.shape[-1],
        )

    def _summed(self, A: Tensor, rows: Any, weights: Tensor, weighted: Tensor) -> Tensor:
        """Add a batch to A in place; return what is to be added to b."""
        for sums, r in zip(A, weights, strict=True):
            rows.add_outer(sums, r)
        return cast(Tensor, rows.transpose_times(weighted, self.b.shape[-1]))

    def totals(self) -> tuple[Tensor, Tensor, Tensor]:
        """``W'R^-1 1`` (``s x m``), ``1'R^-1 y`` (``o``) and ``1'R^-1 1`` (``s``)."""
        w1 = self.A.sum(-1)  # rows of W sum to one
        return w1, self.b.sum(-1), w1.sum(-1)

    def statistics(
        self, output: int, totals: tuple[Tensor, Tensor, Tensor] | None = None
    ) -> OutputStatistics:
        """The statistics of one output; ``totals`` may be given if they are known."""
        shared = min(output, len(self.A) - 1)
        w1, y1, one = self.totals() if totals is None else totals
        return OutputStatistics(
            self.A[shared],
            self.b[output],
            self.yy[output],
            self.ld[shared],
            self.weight,
            w1[shared],
            y1[output],
            one[shared],
        )

    def about(self, origin: Tensor) -> Self:
        """The same statistics about another origin: O(m^2)."""
        s, (w1, y1, one) = origin - self.origin, self.totals()
        yy = self.yy + (s.square() * one - 2.0 * s * y1)
        return replace(self, b=self.b - s.unsqueeze(-1) * w1, yy=yy, origin=origin)

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The statistics for targets ``(y - shift) / factor``, with known noise in their units."""
        f = factor
        noise = f.square() if known_noise else torch.ones_like(f)
        new = replace(
            self,
            A=self.A * noise.reshape(-1, *(1,) * (self.A.ndim - 1)) if known_noise else self.A,
            b=self.b * (noise / f).unsqueeze(-1),
            yy=self.yy * (noise / f.square()),
            origin=(self.origin - shift) / f,
            ld=self.ld - self.weight * noise.log() if known_noise else self.ld,
        )
        return new.about(far(new.origin))

    def merged_at(self, other: Self, n: int, others: int) -> Self:
        """The statistics of both streams, of n and ``others`` points: O(m^2)."""
        mine = self if n else self.about(other.origin)
        other = other if torch.equal(other.origin, mine.origin) else other.about(mine.origin)
        names = ("A", "b", "yy", "ld", "weight")
        return replace(mine, **{name: getattr(mine, name) + getattr(other, name) for name in names})

    def along(self, other: SufficientStatistics, n: int) -> Self:
        """The statistics of the same n points over another state's features: these, unless a
        family chooses its features.
        """
        return self

    def discounted(self, factor: float) -> Self:
        """The statistics with the weight of all points multiplied by a factor: O(m^2)."""
        names = ("A", "b", "yy", "ld", "weight")
        scaled = {name: factor * getattr(self, name) for name in names}
        return replace(
            self, **{k: torch.where(v.abs() < FORGOTTEN, 0.0, v) for k, v in scaled.items()}
        )


@dataclass(frozen=True)
class GeneralStatistics(SufficientStatistics):
    """Statistics of rows that need not sum to one: those of a constant mean are kept, too.

    Attributes:
        w1: ``W'R^-1 1``.
        y1: ``1'R^-1 (y - origin)``.
        one: ``1'R^-1 1``.
    """

    w1: Tensor = shaped("s m")
    y1: Tensor = shaped("o")
    one: Tensor = shaped("s", "not negative")

    def totals(self) -> tuple[Tensor, Tensor, Tensor]:
        """As kept."""
        return self.w1, self.y1, self.one

    def about(self, origin: Tensor) -> Self:
        """The same statistics about another origin: O(m)."""
        moved = super().about(origin)
        return replace(moved, y1=self.y1 - (origin - self.origin) * self.one)

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The statistics for targets ``(y - shift) / factor``, with known noise in their units."""
        scaled = replace(self, y1=self.y1 / factor)
        if known_noise:
            f2 = factor.square()
            w1, one = self.w1 * f2.unsqueeze(-1), self.one * f2
            scaled = replace(self, w1=w1, y1=self.y1 * factor, one=one)
        return super(GeneralStatistics, scaled).rescaled(shift, factor, known_noise)


def far(mean: Tensor) -> Tensor:
    """The origin for outcomes of this mean: zero, unless their squares would lose digits."""
    return torch.where(mean.abs() > FAR, mean, 0.0)


def noisier(R: Tensor, factor: float) -> Tensor:
    """Noise variances of observations whose weight is multiplied by a factor."""
    return (R / factor).clamp_max(1.0 / FORGOTTEN)


@dataclass(frozen=True)
class BufferedStatistics(SufficientStatistics, ABC):
    """Statistics over features that can be chosen again while all points are held.

    A family adds the features as a field, and defines `features`, `over` (a state with other
    features) and `rows_at` (rows of W).

    Attributes:
        buffer: Room for the first ``w`` points, held while there are no more.
        chosen_at: Number of points when the features were last chosen.
    """

    buffer: Rows = nested(n="w")
    chosen_at: Tensor = shaped("", "not negative")

    @property
    @abstractmethod
    def features(self) -> Any:
        """The features; ``same_as`` compares them with others."""

    @abstractmethod
    def over(self, features: Any) -> Self:
        """A state over other features, before any data."""

    @abstractmethod
    def rows_at(self, X: Tensor) -> SummedRows:
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
        zero = sums.weight
        Y, R = zero.new_zeros(outputs, opening), zero.new_ones(len(sums.A), opening)
        buffer = Rows(zero.new_zeros(opening, dim), Y, R)
        parts = {part.name: getattr(sums, part.name) for part in fields(SufficientStatistics)}
        return cls(**parts, buffer=buffer, chosen_at=zero.clone(), **features)

    def holds_all(self, n: int) -> bool:
        """Whether all n points are held."""
        return n <= len(self.buffer)

    def absorb_at(self, rows: Rows, n: int) -> Self:
        """The state after a batch, with n points before it (MATHS 2.2)."""
        new = self.absorb(self.rows_at(rows.X), rows.Y, rows.R, first=n == 0)
        return new._holding(rows, n)

    def _holding(self, rows: Rows, n: int) -> Self:
        """The state with rows behind the first n in the buffer, if there is room for them."""
        old, end = self.buffer, n + len(rows)
        if not self.holds_all(end):
            return self
        buffer = Rows(old.X.clone(), old.Y.clone(), old.R.clone())
        buffer.X[n:end], buffer.Y[:, n:end], buffer.R[:, n:end] = rows.X, rows.Y, rows.R
        return replace(self, buffer=buffer)

    def resummed(self, features: Any, n: int) -> Self:
        """The statistics of the same n points, all held, over other features."""
        rows, new = self.buffer[:n], self.over(features)
        weights = 1.0 / rows.R
        weighted = weights * (rows.Y - self.origin.unsqueeze(-1))
        return replace(new, b=new._summed(new.A, new.rows_at(rows.X), weights, weighted))

    def chosen(self, features: Any, n: int) -> Self:
        """As `resummed`, and the number of points is kept."""
        return replace(self.resummed(features, n), chosen_at=self.weight.new_tensor(n))

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
            StateError: if the features differ and neither stream holds all of its points, or if the
                buffer had room for points of the other stream that are no longer held.
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
        if other.holds_all(others):
            return new._holding(other.buffer[:others], n)
        if mine.holds_all(n + others):
            raise StateError(
                f"two streams with the same `opening` = {len(mine.buffer)}",
                f"{len(other.buffer)}, and {others} points that are no longer held",
                "Build both streams with the smaller `opening`.",
            )
        return new

    @abstractmethod
    def _unlike(self) -> tuple[str, str, str]:
        """The error for two streams over different features: expected, got, remedy."""
