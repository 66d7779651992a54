"""Sine functions on a box around the bounds of the inputs [Solin].

The functions vanish at the walls of a box somewhat wider than the bounds. In one dimension, for the
unit interval and half width ``L``, they are ``sin(pi a (x - 1/2 + L) / (2 L)) / sqrt(L)`` for a =
1, 2, ...; in several dimensions they are products of these (MATHS 2.9).
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_stream.mathematics.posterior.moments import Pullback, sloped_product
from bo_stream.mathematics.shapes import shaped

__all__ = ["Basis"]

LEAST_HALF, MARGIN, LONGEST = 0.6, 1.2, 1.0
"""The half width is 1/2 + `MARGIN` lengthscales (each at most `LONGEST`), at least `LEAST_HALF`,
in widths of the bounds."""


@dataclass(frozen=True)
class Basis:
    """The sine functions of some multi-indices.

    Attributes:
        alpha: Multi-indices, ``f x d``, counted from 1.
        half: Half widths of the box, in widths of the bounds.
        lengthscales: The lengthscales it was chosen for, in units of the inputs.
        low: Lower bounds.
        width: Widths of the bounds.
    """

    alpha: Tensor = shaped("f d", "positive")
    half: Tensor = shaped("d", "positive")
    lengthscales: Tensor = shaped("d", "positive")
    low: Tensor = shaped("d")
    width: Tensor = shaped("d", "positive")

    @classmethod
    def choose(cls, lengthscales: Tensor, low: Tensor, width: Tensor, count: int) -> Basis:
        """The ``count`` functions of largest prior variance at these lengthscales (``d``)."""
        unit = lengthscales / width
        half = (0.5 + MARGIN * unit.clamp_max(LONGEST)).clamp_min(LEAST_HALF)
        steps = (unit * math.pi / (2.0 * half)).tolist()
        alpha = torch.tensor(_least(steps, count), dtype=torch.long, device=half.device)
        return cls(alpha, half, lengthscales.clone(), low.clone(), width.clone())

    def same_as(self, other: Basis) -> bool:
        """Whether the functions are the same."""
        names = ("alpha", "half", "low", "width")
        return all(torch.equal(getattr(self, name), getattr(other, name)) for name in names)

    @property
    def defining_tensors(self) -> tuple[Tensor, ...]:
        """Tensors that determine the functions."""
        return self.alpha, self.half, self.low, self.width

    def frequencies(self) -> Tensor:
        """Radians per unit of the inputs, ``f x d``."""
        return self.alpha * (math.pi / (2.0 * self.half * self.width))

    def features(self, X: Tensor) -> Tensor:
        """The functions at points ``batch x q x d``: ``batch x q x f``, differentiable."""
        phase = (X - self.low) / self.width - 0.5 + self.half
        phase = phase * (math.pi / (2.0 * self.half))
        product = None
        for k, most in enumerate(self.alpha.amax(0).tolist()):
            multiples = torch.arange(1, most + 1, dtype=X.dtype, device=X.device)
            waves = (phase[..., k : k + 1] * multiples).sin() / self.half[k].sqrt()
            waves = waves.index_select(-1, self.alpha[:, k] - 1)
            product = waves if product is None else product * waves
        return torch.as_tensor(product)

    def sloped(self, X: Tensor) -> tuple[Tensor, Pullback]:
        """As `FeatureMap.sloped`, with derivatives in the points themselves."""
        rate = math.pi / (2.0 * self.half)
        phase = ((X - self.low) / self.width - 0.5 + self.half) * rate
        factors = []
        for k, most in enumerate(self.alpha.amax(0).tolist()):
            multiples = torch.arange(1, most + 1, dtype=X.dtype, device=X.device)
            angle = phase[..., k : k + 1] * multiples
            waves = torch.stack([angle.sin(), angle.cos() * (multiples * rate[k] / self.width[k])])
            waves = waves.movedim(0, -2) / self.half[k].sqrt()
            factors.append(waves.index_select(-1, self.alpha[:, k] - 1))
        return sloped_product(factors), lambda bar: bar


def _least(steps: list[float], count: int) -> list[tuple[int, ...]]:
    """The ``count`` multi-indices of least ``sum_k (steps_k alpha_k)^2``, ties by the first index.

    Sums that differ by rounding are ties, so that the choice is the same on all machines.
    """
    dim = len(steps)
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
            heapq.heappush(waiting, (key(further), further, k))
    return chosen
