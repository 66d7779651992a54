"""Sufficient statistics of a Gaussian process on features (MATHS 2.2).

    A = W'R^-1 W,  b = W'R^-1 y,  yy = y'R^-1 y,  ld = sum log r

They are sums over observations that do not depend on hyperparameters: any order and any batching
give the same statistics, and those of two streams add up. Multiplied by a factor below one, they
forget exponentially.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, cast

import torch
from torch import Tensor

from bo_stream.mathematics.shapes import shaped
from bo_stream.mathematics.sufficient_statistics.evidence import OutputStatistics

__all__ = ["GeneralStatistics", "Rows", "SufficientStatistics", "far", "noisier"]

FAR = 1e3
"""Outcomes of larger mean are centred by the first batch's mean."""
FORGOTTEN = 1e-200
"""Statistics below this are set to zero: subnormal numbers are slow."""


class Rows(Protocol):
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
        for own, r in zip(A, weights, strict=True):
            rows.add_outer(own, r)
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

    def merged(self, other: SufficientStatistics) -> Self:
        """The statistics of both streams about this one's origin: O(m^2)."""
        other = other if torch.equal(other.origin, self.origin) else other.about(self.origin)
        A, b, yy, ld = self.A + other.A, self.b + other.b, self.yy + other.yy, self.ld + other.ld
        return replace(self, A=A, b=b, yy=yy, ld=ld, weight=self.weight + other.weight)

    def merged_at(self, other: Self, n: int, others: int) -> Self:
        """The statistics of both streams, of n and ``others`` points: O(m^2)."""
        mine = self if n else self.about(other.origin)
        return mine.merged(other)

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
