"""Sums of products of cosines and sines, from which those over any sine features follow.

The product of two sines of one input is a difference of two cosines of it. So the sums over data of
all products of two features on one box are sums and differences of few numbers (MATHS 12.2): with
angles ``t_k`` they are weighted sums over the data of

    1,  sin(j t_k),  prod_k sin(j_k t_k),                                       (odd)
    prod_k cos(j_k t_k),  cos(j t_k) prod_{l /= k} sin(j_l t_l),  cos(j t_k),  sin(j t_k) sin(i t_l)

of which only the first row is needed for sums with outcomes and with a constant mean. For two
functions of all inputs, for example, with the sums ``G`` of products of cosines:

    A_ab = (2 L)^-d sum_{s in {0,1}^d} (-1)^|s| G[|a_k - b_k| if s_k = 0, else a_k + b_k]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import torch
from torch import Tensor

from bo_stream.mathematics.sines import Basis, least_indices

__all__ = ["HALF", "Assembly", "Frequencies"]

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
        effects = d if p else 0
        return {
            "one": (1,),
            "main": (d, p),
            "joint": (a,) * d,
            "cosines": (2 * a + 1,) * d,
            "mixed": (effects, p + a + 1, *(a,) * (d - 1)),
            "single": (effects, 2 * p + 1),
            "pairs": (effects * (d - 1) // 2, p, p),
        }

    @cached_property
    def starts(self) -> dict[str, int]:
        """Where the parts begin, and where the last one ends."""
        starts, total = {}, 0
        for name, shape in self.shapes.items():
            starts[name] = total
            total += math.prod(shape)
        return {**starts, "end": total}

    @property
    def odd(self) -> int:
        """Number of sums with outcomes: those of the first row above."""
        return self.starts["cosines"]

    @property
    def total(self) -> int:
        """Number of sums without outcomes."""
        return self.starts["end"]

    def sums(self, phases: Tensor, weights: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Sums over points: matrix products of few columns, O((2 a)^d) for each point.

        Args:
            phases: Angles of the points, ``n x d``, n >= 1.
            weights: ``s x n``.
            values: Weighted outcomes, ``o x n``.

        Returns:
            The sums weighted by ``weights``, ``s x total``, and the odd sums weighted by the
            values, ``o x odd``.
        """
        both, s = torch.cat([weights, values]), len(weights)
        odd = both.new_zeros(len(both), self.odd)
        even = both.new_zeros(s, self.total - self.odd)
        pieces = -(-len(phases) // CHUNK)
        split = (t.tensor_split(pieces, -1) for t in (both, phases.mT.contiguous()))
        for r, angles in zip(*split, strict=True):
            self._add_piece(odd, even, r, angles)
        return torch.cat([odd[:s], even], -1), odd[s:]

    def _add_piece(self, odd: Tensor, even: Tensor, r: Tensor, angles: Tensor) -> None:
        """Add the products at a few points, ``d x n``, with weights ``r`` for each row of ``odd``
        and the first rows for ``even``.
        """
        d, a, p = self.dim, self.joint, self.main
        cos, sin = _waves(angles, max(2 * a, p + a, 2 * p))
        few, main = sin[:, 1 : a + 1], sin[:, 1 : p + 1]
        rest = [_products([*few[:k], *few[k + 1 :]], r) for k in range(d if p else 1)]
        first = (r.unsqueeze(1) * few[0]).flatten(0, 1) @ rest[0].mT
        effects = (main.flatten(0, 1) @ r.mT).mT
        odd += torch.cat([r.sum(-1, keepdim=True), effects, first.view(len(r), -1)], -1)
        others = _products([*cos[1:, : 2 * a + 1]], r)
        for into, w in zip(even, r, strict=False):
            parts = [(cos[0, : 2 * a + 1] * w) @ others.mT]
            if p:
                waves = cos[:, : p + a + 1] * w
                parts += [wave @ product.mT for wave, product in zip(waves, rest, strict=True)]
                parts += [cos[:, : 2 * p + 1] @ w]
                parts += [(main[k] * w) @ main[i].mT for k, i in combinations(range(d), 2)]
            into += torch.cat([part.flatten() for part in parts])


class Assembly:
    """Where the sums over a basis are among those over frequencies; O(2^d f^2) integers.

    Args:
        frequencies: The frequencies stored.
        basis: Functions within them, on the box of half width `HALF`.
    """

    def __init__(self, frequencies: Frequencies, basis: Basis) -> None:
        self.frequencies, self.basis, alpha = frequencies, basis, basis.alpha
        f, d, p = *alpha.shape, basis.main
        m = d * p
        axis, index = alpha[:m].argmax(-1), alpha[:m].amax(-1)  # of main effects
        effects = self._terms("main", axis, index - 1)[0]
        joint = self._terms("joint", *(basis.joint.mT - 1))[0]
        self._odd = torch.cat([effects, joint], -1)[0]
        self._scale = HALF ** (-0.5 * (alpha > 0).sum(-1).double())
        self._blocks: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        i, j = m + torch.tril_indices(f - m, f - m, device=alpha.device)
        self._fill(i, j, "cosines", *(_cosines(each[i], each[j]) for each in alpha.mT))
        main, every = torch.arange(m, device=alpha.device), torch.arange(m, f, device=alpha.device)
        alone = main.split(p) if p else ()
        for k, block in enumerate(alone):
            i, j = torch.cartesian_prod(every, block).mT
            rest = [alpha[i, other] - 1 for other in range(d) if other != k]
            self._fill(i, j, "mixed", axis[j], _cosines(alpha[i, k], index[j]), *rest)
            i, j = torch.cartesian_prod(block, block).mT
            self._fill(i, j, "single", axis[j], _cosines(index[i], index[j]))
        for pair, (first, second) in enumerate(combinations(alone, 2)):
            j, i = torch.cartesian_prod(first, second).mT
            self._fill(i, j, "pairs", torch.full_like(i, pair), index[j] - 1, index[i] - 1)

    def vector(self, odd: Tensor) -> Tensor:
        """Sums of the features, ``o x f``, from odd sums ``o x odd``: O(f)."""
        return odd.index_select(-1, self._odd) * self._scale

    def matrix(self, sums: Tensor) -> Tensor:
        """Sums of products of two features from one row of sums: O(2^d f^2).

        Returns:
            ``f x f``, of which the lower triangle is filled.
        """
        A = sums.new_zeros(len(self._scale), len(self._scale))
        for i, j, places, factors in self._blocks:
            A[i, j] = factors @ sums.index_select(0, places.flatten()).view(places.shape)
        return A.mul_(self._scale).mul_(self._scale.unsqueeze(-1))

    def _fill(self, row: Tensor, column: Tensor, part: str, *axes: Tensor) -> None:
        """Make entries of the matrix combinations of sums; see `_terms`."""
        self._blocks.append((row, column, *self._terms(part, *axes)))

    def _terms(self, part: str, *axes: Tensor) -> tuple[Tensor, Tensor]:
        """Places, ``t x p``, and factors, ``t``, of the terms of ``p`` combinations of sums.

        Args:
            part: Name of the part of the sums.
            axes: For each of its axes the index, ``p``, or those of two cosines, ``2 x p``.
        """
        places = axes[-1].new_zeros(1, axes[-1].shape[-1])
        factors = places.new_ones(1, dtype=torch.float64)
        for size, index in zip(self.frequencies.shapes[part], axes, strict=True):
            choices = torch.atleast_2d(index)
            places = (places.unsqueeze(1) * size + choices).flatten(0, 1)
            halves = factors.new_tensor([0.5, -0.5] if len(choices) == 2 else [1.0])
            factors = torch.outer(factors, halves).flatten()
        return places + self.frequencies.starts[part], factors


def _cosines(first: Tensor, second: Tensor) -> Tensor:
    """Indices ``2 x p`` of the cosines whose difference is twice a product of sines."""
    return torch.stack([(first - second).abs(), first + second])


def _waves(angles: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of 0 to at least ``most`` times angles ``d x n``, each ``d x m x n``.

    All multiples are sums of two of few angles.
    """
    side = math.isqrt(most) + 1
    steps = torch.arange(side, dtype=angles.dtype, device=angles.device)[:, None]
    low = (steps * angles[:, None]).unsqueeze(1)
    high = (side * steps[: most // side + 1] * angles[:, None]).unsqueeze(2)
    cos, sin, c, s = high.cos(), high.sin(), low.cos(), low.sin()
    cosines, sines = (cos * c).addcmul_(sin, s, value=-1.0), (sin * c).addcmul_(cos, s)
    return cosines.flatten(1, 2), sines.flatten(1, 2)


def _products(factors: list[Tensor], like: Tensor) -> Tensor:
    """Products of the rows of matrices with ``n`` columns; a row of ones for no matrices."""
    if not factors:
        return torch.ones_like(like[:1])
    rows = factors[0]
    for factor in factors[1:]:
        rows = (rows.unsqueeze(1) * factor).flatten(0, 1)
    return rows
