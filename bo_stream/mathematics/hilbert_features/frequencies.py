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
CHUNK = 320
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
    rows, both = [f.parts(row) for row in (*sums, *odd)], torch.cat([weights, values])
    pieces = -(-len(phases) // CHUNK)
    if pieces:
        split = (t.tensor_split(pieces, -1) for t in (both, phases.mT.contiguous()))
        for r, angles in zip(*split, strict=True):
            _add_piece(f, rows, r, angles, len(sums))
    return odd


def _add_piece(
    f: Frequencies, rows: list[dict[str, Tensor]], r: Tensor, angles: Tensor, even: int
) -> None:
    """Add the products at a few points.

    Args:
        f: The frequencies.
        rows: The sums to add to; the first ``even`` of them get all products, the others the odd.
        r: Weights of the points, one row for each of ``rows``.
        angles: ``d x n``.
        even: See ``rows``.
    """
    d, a, p = f.dim, f.joint, f.main
    cos = _cosines(angles, max(2 * a, p + a, 2 * p))
    sin = _sines(angles, max(a, p))
    few = sin[:, 1 : a + 1]
    rest = [_products([*few[:k], *few[k + 1 :]], r) for k in range(d if p else 1)]
    _add_odd(f, rows, r, sin, rest[0])
    others = _products([*cos[1:, : 2 * a + 1]], r)
    for into, weights in zip(rows[:even], r[:even], strict=True):
        _add_product(into["cosines"], cos[0, : 2 * a + 1] * weights, others)
        if not p:
            continue
        into["single"].add_((cos @ weights)[:, : 2 * p + 1])
        for own, wave, product in zip(into["mixed"], cos, rest, strict=True):
            _add_product(own, wave[: p + a + 1] * weights, product)
        for pair, (k, i) in zip(into["pairs"], combinations(range(d), 2), strict=True):
            _add_product(pair, sin[k, 1 : p + 1] * weights, sin[i, 1 : p + 1])


def _add_odd(
    f: Frequencies, rows: list[dict[str, Tensor]], r: Tensor, sin: Tensor, rest: Tensor
) -> None:
    """Add the odd products with weights ``r``, one row for each of ``rows``.

    Args:
        f: The frequencies.
        rows: The sums to add to.
        r: Weights of the points.
        sin: Sines of multiples of the angles.
        rest: Products of the sines of all inputs but the first.
    """
    first = r.unsqueeze(1) * sin[0, 1 : f.joint + 1]
    joint = (first.flatten(0, 1) @ rest.mT).split(f.joint)
    main = (sin.flatten(0, 1) @ r.mT).mT.unflatten(-1, sin.shape[:2])
    for into, weights, product, effects in zip(rows, r, joint, main, strict=True):
        into["one"].add_(weights.sum())
        into["main"].add_(effects[:, 1 : f.main + 1])
        into["joint"].view_as(product).add_(product)


def _cosines(angles: Tensor, most: int) -> Tensor:
    """Cosines of 0 to at least ``most`` times angles ``d x n``: ``d x m x n``."""
    high, low = _split(angles, most)
    return (high.cos() * low.cos()).addcmul_(high.sin(), low.sin(), value=-1.0).flatten(1, 2)


def _sines(angles: Tensor, most: int) -> Tensor:
    """Sines of 0 to at least ``most`` times angles ``d x n``: ``d x m x n``."""
    high, low = _split(angles, most)
    return (high.sin() * low.cos()).addcmul_(high.cos(), low.sin()).flatten(1, 2)


def _split(angles: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Few angles of which all multiples up to ``most`` are sums of two: ``d x h x 1 x n`` and
    ``d x 1 x l x n``.
    """
    side = math.isqrt(most) + 1
    low = torch.arange(side, dtype=angles.dtype, device=angles.device)[:, None] * angles[:, None]
    high = side * low[:, : most // side + 1]
    return high.unsqueeze(2), low.unsqueeze(1)


def _products(factors: list[Tensor], like: Tensor) -> Tensor:
    """Products of the rows of matrices with ``n`` columns; a row of ones for no matrices."""
    if not factors:
        return torch.ones_like(like[:1])
    rows = factors[0]
    for factor in factors[1:]:
        rows = (rows.unsqueeze(1) * factor).flatten(0, 1)
    return rows


def _add_product(into: Tensor, first: Tensor, rows: Tensor) -> None:
    """Add ``sum_i first_i x rows_i``: one matrix product."""
    into.view(len(first), -1).addmm_(first, rows.mT)
