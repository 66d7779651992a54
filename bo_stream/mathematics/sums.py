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
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

import torch
from torch import Tensor

from bo_stream.errors import StateError
from bo_stream.mathematics.evidence import OutputStatistics
from bo_stream.mathematics.shapes import Rows, nested, shaped

__all__ = [
    "BufferedStatistics",
    "FeatureStatistics",
    "SufficientStatistics",
    "far",
]

FAR = 1e3
"""Outcomes of larger mean are centred by the first batch's mean."""
GROWTH = 2.0
"""Features are worth choosing again once the data have grown by this factor."""
FORGOTTEN = 1e-200
"""Statistics below this are set to zero: subnormal numbers are slow."""


@dataclass(frozen=True)
class SufficientStatistics(ABC):
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

    powers: ClassVar[dict[str, int]] = {"A": 0, "b": 1, "yy": 2}
    """The sums over R, and their powers of the targets."""

    @classmethod
    def zeros(
        cls, entries: Sequence[int], m: int, outputs: int, shared: bool, **others: Any
    ) -> Self:
        """Before any data.

        Args:
            entries: Shape of A for each noise.
            m: Number of entries of b for each output.
            outputs: Number of outputs.
            shared: Whether they share noise variances.
            others: What a family's state holds besides.
        """
        o = torch.zeros(outputs, dtype=torch.float64)
        s = o[:1] if shared else o
        A, b, ld, weight = o.new_zeros(len(s), *entries), o.new_zeros(outputs, m), s.clone(), 0.0
        return cls(A, b, o, o.clone(), ld, o.new_tensor(weight), **others)

    @abstractmethod
    def totals(self) -> tuple[Tensor, Tensor, Tensor]:
        """``W'R^-1 1`` (``s x m``), ``1'R^-1 y`` (``o``) and ``1'R^-1 1`` (``s``)."""

    def statistics(self) -> list[OutputStatistics]:
        """The statistics of every output."""
        (w1, y1, one), o = self.totals(), len(self.b)
        A, ld, w1, one = (t.expand(o, *t.shape[1:]) for t in (self.A, self.ld, w1, one))
        each = zip(A, self.b, self.yy, ld, self.weight.expand(o), w1, y1, one, strict=True)
        return [OutputStatistics(*sums) for sums in each]

    def about(self, origin: Tensor) -> Self:
        """The same statistics about another origin: O(m^2)."""
        s, (w1, y1, one) = origin - self.origin, self.totals()
        yy = self.yy + (s.square() * one - 2.0 * s * y1)
        return replace(self, b=self.b - s.unsqueeze(-1) * w1, yy=yy, origin=origin)

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The statistics for targets ``(y - shift) / factor``, with known noise in their units."""
        noise = factor.square() if known_noise else torch.ones_like(factor)
        sums = {"ld": self.ld - self.weight * noise.log()} if known_noise else {}
        for name, power in self.powers.items():
            if power or known_noise:
                old, scale = getattr(self, name), noise / factor**power
                sums[name] = old * scale.reshape(-1, *(1,) * (old.ndim - 1))
        new = replace(self, origin=(self.origin - shift) / factor, **sums)
        return new.about(far(new.origin))

    def merged_at(self, other: Self, n: int, others: int) -> Self:
        """The statistics of both streams, of n and ``others`` points: O(m^2)."""
        mine = self if n else self.about(other.origin)
        other = other if torch.equal(other.origin, mine.origin) else other.about(mine.origin)
        names = (*self.powers, "ld", "weight")
        return replace(mine, **{name: getattr(mine, name) + getattr(other, name) for name in names})

    def along(self, other: SufficientStatistics, n: int) -> Self:
        """The statistics of the same n points over another state's features: these, unless a
        family chooses its features.
        """
        return self

    def discounted(self, factor: float) -> Self:
        """The statistics with the weight of all points multiplied by a factor: O(m^2)."""
        names = (*self.powers, "ld", "weight")
        scaled = {name: factor * getattr(self, name) for name in names}
        return replace(
            self, **{k: torch.where(v.abs() < FORGOTTEN, 0.0, v) for k, v in scaled.items()}
        )


def far(mean: Tensor) -> Tensor:
    """The origin for outcomes of this mean: zero, unless their squares would lose digits."""
    return torch.where(mean.abs() > FAR, mean, 0.0)


@dataclass(frozen=True)
class FeatureStatistics(SufficientStatistics):
    """Statistics of rows that are features of the points, from which those over others follow."""

    def absorb_at(self, rows: Rows, n: int) -> Self:
        """The statistics after a batch, with n points before it (MATHS 2.2)."""
        weights = 1.0 / rows.R
        origin = self.origin if n else far(rows.Y.mean(-1))
        y = rows.Y - origin.unsqueeze(-1)
        weighted = weights * y
        A, b = self._summed(rows.X, n, weights, weighted)
        return replace(
            self,
            A=A.add_(self.A),
            b=b.add_(self.b),
            yy=self.yy + (weighted * y).sum(-1),
            origin=origin,
            ld=self.ld - weights.log().sum(-1),
            weight=self.weight + len(rows.X),
        )

    @abstractmethod
    def _summed(
        self, X: Tensor, n: int, weights: Tensor, weighted: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What points add to A and b.

        Args:
            X: Points, ``q x d``.
            n: Number of points before them.
            weights: ``1 / R``, ``s x q``.
            weighted: Targets times their weights, ``o x q``.
        """

    def holds_all(self, n: int) -> bool:
        """Whether the statistics of n points over other features follow: always."""
        return True

    def worth_choosing(self, n: int) -> bool:
        """Whether features are worth choosing again with n points: always."""
        return True


FEATURES = TypeVar("FEATURES", bound="Comparable")


class Comparable(Protocol):
    """Features that can be compared."""

    def same_as(self, other: Self) -> bool:
        """Whether they are the same."""


@dataclass(frozen=True)
class BufferedStatistics(FeatureStatistics, Generic[FEATURES]):
    """Statistics over features that can be chosen again while all points are held.

    A family adds the features as a field, and defines `features` and `over`.

    Attributes:
        buffer: Room for the first ``w`` points, held while there are no more.
        chosen_at: Number of points when the features were last chosen.
    """

    buffer: Rows = nested(n="w")
    chosen_at: Tensor = shaped("", "not negative")

    @property
    @abstractmethod
    def features(self) -> FEATURES:
        """The features."""

    @abstractmethod
    def over(self, features: FEATURES) -> Self:
        """The state with other features, whose sums are to be replaced."""

    @classmethod
    def empty(
        cls,
        entries: Sequence[int],
        m: int,
        dim: int,
        outputs: int,
        shared: bool,
        opening: int,
        **others: Any,
    ) -> Self:
        """As `zeros`, with room for ``opening`` points of ``dim`` inputs."""
        zero = torch.zeros((), dtype=torch.float64)
        Y, R = zero.new_zeros(outputs, opening), zero.new_ones(1 if shared else outputs, opening)
        buffer = Rows(zero.new_zeros(opening, dim), Y, R)
        return cls.zeros(entries, m, outputs, shared, buffer=buffer, chosen_at=zero, **others)

    def holds_all(self, n: int) -> bool:
        """Whether all n points are held."""
        return n <= len(self.buffer)

    def worth_choosing(self, n: int) -> bool:
        """Whether the data have doubled since the features were chosen."""
        return n >= GROWTH * float(self.chosen_at)

    def absorb_at(self, rows: Rows, n: int) -> Self:
        """The state after a batch, with n points before it (MATHS 2.2)."""
        return super(BufferedStatistics, self._holding(rows, n)).absorb_at(rows, n)

    def _holding(self, rows: Rows, n: int) -> Self:
        """The state with rows behind the first n in the buffer, if there is room for them."""
        old, end = self.buffer, n + len(rows.X)
        if end > len(old.X):
            return self
        buffer = Rows(old.X.clone(), old.Y.clone(), old.R.clone())
        buffer.X[n:end], buffer.Y[:, n:end], buffer.R[:, n:end] = rows.X, rows.Y, rows.R
        return replace(self, buffer=buffer)

    def resummed(self, features: FEATURES, n: int) -> Self:
        """The statistics of the same n points, all held, over other features."""
        rows, new = self.buffer[:n], self.over(features)
        weights = 1.0 / rows.R
        weighted = weights * (rows.Y - self.origin.unsqueeze(-1))
        A, b = new._summed(rows.X, 0, weights, weighted)
        return replace(new, A=A, b=b)

    def chosen(self, features: FEATURES, n: int) -> Self:
        """As `resummed`, and the number of points is kept."""
        return replace(self.resummed(features, n), chosen_at=self.weight.new_tensor(n))

    def along(self, other: SufficientStatistics, n: int) -> Self:
        """The statistics of the same n points over another state's features.

        Raises:
            StateError: if the features differ and the points are no longer held.
        """
        features = cast(BufferedStatistics[FEATURES], other).features
        if self.features.same_as(features):
            return self
        if not self.holds_all(n):
            raise StateError(
                "two streams on the same grid, or on the same features",
                "others, and points no longer held",
                "Build both with the same `lengthscales` or `grid_size`.",
            )
        return self.resummed(features, n)

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The state for targets ``(y - shift) / factor``, and known noise in the same units."""
        buffer = self.buffer.rescaled(shift, factor, known_noise)
        return replace(super().rescaled(shift, factor, known_noise), buffer=buffer)

    def discounted(self, factor: float) -> Self:
        """The state with the weight of all points multiplied by a factor."""
        buffer = replace(self.buffer, R=(self.buffer.R / factor).clamp_max(1.0 / FORGOTTEN))
        return replace(super().discounted(factor), buffer=buffer)

    def merged_at(self, other: Self, n: int, others: int) -> Self:
        """The statistics of both streams, of n and ``others`` points: O(m^2).

        Raises:
            StateError: if the features differ and neither stream holds all of its points, or if the
                buffer had room for points of the other stream that are no longer held.
        """
        mine = self
        if other.holds_all(others):
            other = other.along(mine, others)
        else:
            mine = mine.along(other, n)
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
