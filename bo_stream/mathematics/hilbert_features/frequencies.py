"""Sums of products of cosines and sines, from which those over any sine features follow.

The product of two sines of one input is a difference of two cosines of it. So the sums over data of
all products of two features on one box are sums and differences of few numbers (MATHS 12.2): with
angles ``t_k`` they are weighted sums over the data of

    1,  sin(j t_k),  prod_k sin(j_k t_k),                                       (odd)
    prod_k cos(j_k t_k),  cos(j t_k) prod_{l /= k} sin(j_l t_l),  cos(j t_k),  sin(j t_k) sin(i t_l)

of which only the first row is needed for sums with outcomes and with a constant mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import torch
from torch import Tensor

from bo_stream.mathematics.hilbert_features.basis import least_indices

__all__ = ["HALF", "Frequencies", "add_sums"]

HALF = 0.75
"""Half width of the box in every input, in widths of the bounds."""
PERIODS = 12
"""Periods of the highest main effect within the bounds' width."""
SPARE = 1.2
"""The highest frequency stored, as a multiple of what equal lengthscales need."""
LEAST = 8
"""The least highest index stored for several inputs."""
CHUNK = 512
"""Points whose products are formed at a time."""


@dataclass(frozen=True)
class Frequencies:
    """The frequencies for which sums are stored.

    Attributes:
        dim: Number of inputs ``d``.
        joint: Highest index of each input in functions of all inputs, ``a``.
        main: Number of main effects of each input, ``p``; zero for none.
    """

    dim: int
    joint: int
    main: int

    @classmethod
    def for_features(cls, dim: int, count: int, main_effects: bool) -> Frequencies:
        """Enough for ``count`` functions of all inputs, also of unequal lengthscales."""
        equal = max(max(alpha) for alpha in least_indices([1.0] * dim, count))
        joint = equal if dim == 1 else max(math.ceil(SPARE * equal), LEAST)
        return cls(dim, joint, math.ceil(4.0 * HALF * PERIODS) if main_effects else 0)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parts, in the order in which they are stored."""
        d, a, p = self.dim, self.joint, self.main
        odd = {"one": (1,), "main": (d, p), "joint": (a,) * d}
        even = {"cosines": (2 * a + 1,) * d, "mixed": (d, p + a + 1, *(a,) * (d - 1))}
        if not p:
            return {**odd, "cosines": even["cosines"]}
        return {**odd, **even, "single": (d, 2 * p + 1), "pairs": (d * (d - 1) // 2, p, p)}

    @property
    def odd(self) -> int:
        """Number of sums with outcomes: those of the first row above."""
        return sum(math.prod(self.shapes[name]) for name in ("one", "main", "joint"))

    @property
    def total(self) -> int:
        """Number of sums without outcomes."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def parts(self, sums: Tensor) -> dict[str, Tensor]:
        """Views of a vector of sums by name; one of the odd sums alone lacks the others."""
        views, start = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            if start + size > len(sums):
                break
            views[name] = sums[start : start + size].view(shape)
            start += size
        return views


def add_sums(
    f: Frequencies, phases: Tensor, sums: Tensor, weights: Tensor, values: Tensor
) -> Tensor:
    """Add sums over points to ``sums`` (``s x total``) in place; return those with outcomes.

    Matrix products of few columns: O((2 a)^d) for each point.

    Args:
        f: The frequencies.
        phases: Angles of the points, ``n x d``.
        sums: Changed in place.
        weights: ``s x n``.
        values: Weighted outcomes, ``o x n``.

    Returns:
        The odd sums, weighted by the values: ``o x odd``.
    """
    odd = values.new_zeros(len(values), f.odd)
    into, with_values = [f.parts(row) for row in sums], [f.parts(row) for row in odd]
    chunks = (t.split(CHUNK, -1) for t in (weights, values, phases.mT.contiguous()))
    for w, y, t in zip(*chunks, strict=True):
        tables = _Tables(f, t)
        for part, r in zip(into, w, strict=True):
            tables.add_odd(part, r)
            tables.add_even(part, r)
        for part, r in zip(with_values, y, strict=True):
            tables.add_odd(part, r)
    return odd


class _Tables:
    """Cosines and sines of multiples of a few points' angles ``d x n``, a row for each."""

    def __init__(self, f: Frequencies, angles: Tensor) -> None:
        self.f = f
        high = max(f.joint, f.main)
        waves = [_multiples(t, max(2 * f.joint, f.main + f.joint, 2 * f.main)) for t in angles]
        self.cos, self.sin = [c for c, _ in waves], [s[1 : high + 1] for _, s in waves]
        self.few = [s[: f.joint] for s in self.sin]
        left_out = range(f.dim if f.main else 1)
        self.rest = [_products(self.few[:k] + self.few[k + 1 :]) for k in left_out]

    def add_odd(self, into: dict[str, Tensor], r: Tensor) -> None:
        """Add the odd products with weights ``n``."""
        into["one"].add_(r.sum())
        if self.f.main:
            for row, wave in zip(into["main"], self.sin, strict=True):
                row.addmv_(wave[: self.f.main], r)
        _add_product(into["joint"], r, self.few[0], self.rest[0])

    def add_even(self, into: dict[str, Tensor], r: Tensor) -> None:
        """Add the other products with weights ``n``."""
        a, p = self.f.joint, self.f.main
        few = [c[: 2 * a + 1] for c in self.cos]
        _add_product(into["cosines"], r, few[0], _products(few[1:]))
        if not p:
            return
        for k, wave in enumerate(self.cos):
            _add_product(into["mixed"][k], r, wave[: p + a + 1], self.rest[k])
            into["single"][k].addmv_(wave[: 2 * p + 1], r)
        for pair, (k, i) in zip(into["pairs"], combinations(range(self.f.dim), 2), strict=True):
            _add_product(pair, r, self.sin[k][:p], self.sin[i][:p])


def _multiples(angle: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of 0 to ``most`` times angles ``n``: ``(most + 1) x n`` each.

    The lowest are computed, the others follow: ``cos(h + i) = 2 cos(h) cos(i) - cos(h - i)``.
    """
    cos, sin = angle.new_empty(2, most + 1, len(angle))
    h = -(-most // 4)
    multiples = torch.arange(h + 1, dtype=angle.dtype, device=angle.device)
    angles = multiples.unsqueeze(-1) * angle
    torch.cos(angles, out=cos[: h + 1])
    torch.sin(angles, out=sin[: h + 1])
    while h < most:
        more = min(h, most - h)
        twice, back = 2.0 * cos[h], slice(h - more, h)
        for wave, sign in ((cos, -1.0), (sin, 1.0)):
            new = torch.mul(wave[1 : more + 1], twice, out=wave[h + 1 : h + more + 1])
            new.add_(wave[back].flip(0), alpha=sign)
        h += more
    return cos, sin


def _products(factors: list[Tensor]) -> Tensor | None:
    """Products of the rows of matrices with ``n`` columns; None for no matrices."""
    if not factors:
        return None
    rows = factors[0]
    for factor in factors[1:]:
        rows = (rows.unsqueeze(1) * factor).flatten(0, 1)
    return rows


def _add_product(into: Tensor, r: Tensor, first: Tensor, rows: Tensor | None) -> None:
    """Add ``sum_i r_i first_i x rows_i``: one matrix product."""
    if rows is None:
        into.addmv_(first, r)
    else:
        into.view(len(first), -1).addmm_(r * first, rows.T)
