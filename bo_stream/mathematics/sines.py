"""Sine functions on a box around the bounds of the inputs [Solin].

The functions vanish at the walls of a box somewhat wider than the bounds. In one dimension, for the
unit interval and half width ``L``, they are ``sin(pi a (x - 1/2 + L) / (2 L)) / sqrt(L)`` for a =
1, 2, ...; in several dimensions they are products of these (MATHS 2.9). Main effects are functions
of one input each (MATHS 12.1).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce

import torch
from torch import Tensor

from bo_stream.mathematics.autograd import Pullback, lasting_property
from bo_stream.mathematics.shapes import shaped

__all__ = ["Basis", "least_indices"]

LEAST_HALF, MARGIN, LONGEST = 0.6, 1.2, 1.0
"""The half width is 1/2 + `MARGIN` lengthscales (each at most `LONGEST`), at least `LEAST_HALF`,
in widths of the bounds."""


@dataclass(frozen=True)
class Basis:
    """The sine functions of some multi-indices.

    Attributes:
        alpha: Multi-indices, ``f x d``, counted from 1; a zero stands for the constant 1 in place
            of that input's sine. First come the main effects, whose indices have one positive
            entry, input after input, then the functions of all inputs.
        half: Half widths of the box, in widths of the bounds.
        lengthscales: The lengthscales it was chosen for, in units of the inputs.
        low: Lower bounds.
        width: Widths of the bounds.
    """

    alpha: Tensor = shaped("f d", "not negative")
    half: Tensor = shaped("d", "positive")
    lengthscales: Tensor = shaped("d", "positive")
    low: Tensor = shaped("d")
    width: Tensor = shaped("d", "positive")

    @classmethod
    def choose(
        cls,
        lengthscales: Tensor,
        low: Tensor,
        width: Tensor,
        count: int,
        main: int = 0,
        *,
        half: float | None = None,
        highest: int | None = None,
    ) -> Basis:
        """The ``count`` functions of all inputs with the largest prior variance.

        Args:
            lengthscales: Of the kernel, ``d``.
            low: Lower bounds, ``d``.
            width: Widths of the bounds, ``d``.
            count: Number of functions of all inputs.
            main: Number of main effects of each input.
            half: Half width of the box in every input; by default one that suits the lengthscales.
            highest: The highest index of any input in functions of all inputs.
        """
        lengths = lengthscales / width
        around = (0.5 + MARGIN * lengths.clamp_max(LONGEST)).clamp_min(LEAST_HALF)
        around = around if half is None else torch.full_like(around, half)
        steps = (lengths * math.pi / (2.0 * around)).tolist()
        joint = torch.tensor(least_indices(steps, count, highest), device=low.device)
        one = torch.arange(1, main + 1, device=low.device)
        alone = torch.block_diag(*one.expand(len(low), -1).unsqueeze(-1))
        alpha = torch.cat([alone, joint])
        return cls(alpha, around, lengthscales.clone(), low.clone(), width.clone())

    def same_as(self, other: Basis) -> bool:
        """Whether the functions are the same."""
        names = ("alpha", "half", "low", "width")
        return all(torch.equal(getattr(self, name), getattr(other, name)) for name in names)

    @cached_property
    def main(self) -> int:
        """Number of main effects of each input."""
        return int((self.alpha == 0).any(-1).sum()) // self.alpha.shape[-1]

    @property
    def joint(self) -> Tensor:
        """Multi-indices of the functions of all inputs."""
        return self.alpha[self.main * self.alpha.shape[-1] :]

    @cached_property
    def highest(self) -> int:
        """The highest index of any input."""
        return int(self.alpha.max())

    @lasting_property
    def columns(self) -> tuple[Tensor, ...]:
        """For each input, every function's column of `tables`."""
        return tuple(self.alpha.T.contiguous())

    @property
    def rate(self) -> Tensor:
        """Radians per unit of the inputs of the first sines, ``d``."""
        return math.pi / (2.0 * self.half * self.width)

    def phases(self, X: Tensor) -> Tensor:
        """The angles whose multiples' sines are taken, for points ``batch x q x d``."""
        return ((X - self.low) / self.width - 0.5 + self.half) * (math.pi / (2.0 * self.half))

    def tables(self, X: Tensor, orders: int) -> Tensor:
        """For each input the constant and the sines, with derivatives in the input.

        Args:
            X: Points, ``p x d``.
            orders: 1 for values alone, 2 with first, 3 with second derivatives.

        Returns:
            ``d x orders x (1 + highest index) x p``: to pick rows is cheap, columns is not.
        """
        multiples = torch.arange(1, self.highest + 1, dtype=X.dtype, device=X.device).unsqueeze(-1)
        angle = multiples * self.phases(X).mT.unsqueeze(-2)
        scale, speed = (t[:, None, None] for t in (self.half.rsqrt(), self.rate))
        speed = speed * multiples
        waves = [angle.sin() * scale]
        if orders > 1:
            waves.append(angle.cos() * (speed * scale))
        if orders > 2:
            waves.append(waves[0] * -speed.square())
        table = torch.nn.functional.pad(torch.stack(waves, 1), (0, 0, 1, 0))
        table[:, 0, 0] = 1.0
        return table

    def factors(self, X: Tensor, orders: int) -> Iterator[Tensor]:
        """For each input the functions' factors, ``orders x f x p``, as in `tables`."""
        tables = zip(self.tables(X, orders), self.columns, strict=True)
        return (table.index_select(1, column) for table, column in tables)

    def features(self, X: Tensor) -> Tensor:
        """The functions at points ``batch x q x d``: ``batch x q x f``, differentiable."""
        factors = self.factors(X.reshape(-1, X.shape[-1]), 1)
        return reduce(torch.mul, factors)[0].mT.unflatten(0, X.shape[:-1])

    def sloped(self, X: Tensor) -> tuple[Tensor, Pullback]:
        """As `FeatureMap.sloped`, with derivatives in the points themselves."""
        rows, *others = self.factors(X.reshape(-1, X.shape[-1]), 2)
        for value, slope in others:
            rows = torch.cat([rows * value, rows[:1] * slope])
        return rows.permute(2, 0, 1).unflatten(0, X.shape[:-1]), lambda bar: bar


def least_indices(
    steps: list[float], count: int, highest: int | None = None
) -> list[tuple[int, ...]]:
    """The ``count`` multi-indices of least ``sum_k (steps_k alpha_k)^2``, ties by the first index.

    Sums that differ by rounding are ties, so that the choice is the same on all machines.

    Args:
        steps: One for each dimension.
        count: At most ``highest`` to the power of the number of dimensions.
        highest: The highest index of each dimension, or None for any.
    """
    dim, most = len(steps), math.inf if highest is None else highest
    first = sum(s * s for s in steps)

    def key(alpha: tuple[int, ...]) -> float:
        return round(sum((s * a) ** 2 for s, a in zip(steps, alpha, strict=True)) / first, 9)

    ones = (1,) * dim
    chosen: list[tuple[int, ...]] = []
    waiting = [(key(ones), ones, 0)]
    while len(chosen) < count:
        _, alpha, last = heapq.heappop(waiting)
        chosen.append(alpha)
        for k in range(last, dim):
            further = (*alpha[:k], alpha[k] + 1, *alpha[k + 1 :])
            if further[k] <= most:
                heapq.heappush(waiting, (key(further), further, k))
    return chosen
