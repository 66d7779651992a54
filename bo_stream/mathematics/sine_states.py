"""The sums that a Gaussian process on sine features keeps, of few inputs and of many.

Of many inputs they are sums over the features, and other features can be chosen while all points
are buffered. A row of W is the features at a point and a one. The one has prior variance zero: its
column in A holds the statistics that a constant mean needs.

Of few inputs they are sums over frequencies, from which the sums over any features up to the
highest frequency follow, without any point. The product of two sines of one input is a difference
of two cosines of it. So the sums over data of all products of two features on one box are sums and
differences of few numbers (MATHS 12.2): with angles ``t_k`` they are weighted sums over the data of

    1,  sin(j t_k),  prod_k sin(j_k t_k),                                       (odd)
    prod_k cos(j_k t_k),  cos(j t_k) prod_{l /= k} sin(j_l t_l),  cos(j t_k),  sin(j t_k) sin(i t_l)

of which only the first row is needed for sums with outcomes and with a constant mean. For two
functions of all inputs, for example, with the sums ``G`` of products of cosines:

    A_ab = (2 L)^-d sum_{s in {0,1}^d} (-1)^|s| G[|a_k - b_k| if s_k = 0, else a_k + b_k]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Literal, NamedTuple, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from bo_stream.mathematics.autograd import lasting
from bo_stream.mathematics.evidence import OutputStatistics
from bo_stream.mathematics.shapes import nested, shaped
from bo_stream.mathematics.sines import Basis, least_indices
from bo_stream.mathematics.sums import BufferedStatistics, FeatureStatistics, SufficientStatistics

__all__ = ["FEW_INPUTS", "FrequencyState", "Frequencies", "HilbertState"]

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


class WaveSums(NamedTuple):
    """Sums of some products of one wave of each of some inputs.

    Attributes:
        axes: These inputs, and the multiples of their angles: those of cosines are from 0 on, those
            of sines from 1 on.
        place: Where the sums are stored.
    """

    axes: tuple[tuple[int, range], ...]
    place: slice


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
    def parts(self) -> dict[tuple[int, int], WaveSums]:
        """The sums of products of functions of two groups, in the order in which they are stored.

        The groups are the one, the main effects of each input, if there are any, and the functions
        of all inputs. An input of both groups has cosines, an input of one of them has sines.
        """
        effects = [((k,), self.main) for k in range(self.dim)] if self.main else []
        groups = [((), 0), *effects, (tuple(range(self.dim)), self.joint)]
        alone, last = range(1, len(groups) - 1), len(groups) - 1
        pairs = [(0, group) for group in range(len(groups))] + [(last, last)]
        pairs += [*((k, last) for k in alone), *((k, k) for k in alone), *combinations(alone, 2)]
        found, start = dict[tuple[int, int], WaveSums](), 0
        for pair in pairs:
            (one, m), (other, n) = (groups[group] for group in pair)
            axes = [(k, range(m + n + 1)) for k in one if k in other]
            axes += [(k, range(1, 1 + (m if k in one else n))) for k in sorted({*one} ^ {*other})]
            stop = start + math.prod(len(multiples) for _, multiples in axes)
            found[pair], start = WaveSums(tuple(axes), slice(start, stop)), stop
        return found

    @property
    def odd(self) -> int:
        """Number of sums with outcomes: those of the first row above."""
        return max(part.place.stop for (group, _), part in self.parts.items() if not group)

    @property
    def total(self) -> int:
        """Number of sums without outcomes."""
        return max(part.place.stop for part in self.parts.values())

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
        both, s, odd = torch.cat([weights, values]), len(weights), self.odd
        found = both.new_zeros(len(both), self.total)
        most = max(multiples[-1] for part in self.parts.values() for _, multiples in part.axes)
        pieces = -(-len(phases) // CHUNK)
        split = (t.tensor_split(pieces, -1) for t in (both, phases.mT.contiguous()))
        for r, angles in zip(*split, strict=True):
            cos, sin = _waves(angles, most)
            for (group, _), (axes, place) in self.parts.items():
                waves = [(sin if m.start else cos)[k, m.start : m.stop] for k, m in axes]
                rows = slice(s if group else None)
                found[rows, place].add_(_summed_products(waves, r[rows]))
        return found[:s], found[s:, :odd]


class Assembly:
    """Where the sums over a basis are among those over frequencies; O(2^d f^2) integers.

    Args:
        frequencies: The frequencies stored.
        basis: Functions within them, on the box of half width `HALF`.
    """

    def __init__(self, frequencies: Frequencies, basis: Basis) -> None:
        self.frequencies, self.basis, f = frequencies, basis, len(basis.alpha)
        self._scale = HALF ** (-0.5 * (basis.alpha > 0).sum(-1).double())
        alpha = F.pad(basis.alpha, (0, 0, 1, 0))  # of the one, then of the others
        p, d = frequencies.main, frequencies.dim
        groups = torch.arange(f + 1, device=alpha.device).split([1, *[p] * d * bool(p), f - d * p])
        odd, self._blocks = list[Tensor](), list[tuple[Tensor, Tensor, Tensor, Tensor]]()
        for (first, second), part in frequencies.parts.items():
            i, j = torch.cartesian_prod(groups[second], groups[first]).mT
            i, j = i[i >= j], j[i >= j]
            places, factors = _terms(part, alpha[i], alpha[j])
            if first:
                self._blocks.append((i - 1, j - 1, places, factors))
            else:
                odd.append(places[0])
        self._odd = torch.cat(odd)[1:]

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


def _terms(part: WaveSums, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The sums that are the terms of products of two functions each.

    Args:
        part: Of the groups of the functions.
        first: Multi-indices of the first functions, ``p x d``.
        second: Those of the second ones.

    Returns:
        Their places, ``t x p``, and factors, ``t``.
    """
    places, factors = first.new_zeros(1, len(first)), torch.ones(1, dtype=torch.float64)
    for k, multiples in part.axes:
        a, b = first[:, k], second[:, k]
        if multiples.start:  # a sine of one of them, times the constant of the other
            choices, halves = (a + b - 1).unsqueeze(0), [1.0]
        else:
            choices, halves = torch.stack([(a - b).abs(), a + b]), [0.5, -0.5]
        places = (places.unsqueeze(1) * len(multiples) + choices).flatten(0, 1)
        factors = torch.outer(factors, factors.new_tensor(halves)).flatten()
    return places + part.place.start, factors.to(places.device)


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


def _summed_products(factors: list[Tensor], weights: Tensor) -> Tensor:
    """Weighted sums of all products of one row of each matrix with ``n`` columns.

    Args:
        factors: The matrices; without any the products are ones.
        weights: ``R x n``.

    Returns:
        ``R x p``, the last matrix's rows vary fastest.
    """
    first, *others = factors or [torch.ones_like(weights[:1])]
    rows = weights
    for other in others:
        rows = (rows.unsqueeze(1) * other).flatten(0, 1)
    return (first @ rows.mT).view(len(first), len(weights), -1).transpose(0, 1).flatten(1)


# -- states --------------------------------------------------------------------------------------

FEW_INPUTS = 3
"""Number of inputs up to which sums over frequencies are kept."""
SIZES = ((3000, 400), (300, 256), (0, 128))
"""Observations and, from there on, functions of two or three inputs."""
ONE_INPUT, MANY_INPUTS = 128, 512
"""Functions of one input, and of more than three."""
RESOLVED = 0.8 * 2.65
"""Radians of the highest frequency that a lengthscale must span (MATHS 12.1)."""

Size = int | Literal["auto"]


@dataclass(frozen=True)
class FrequencyState(FeatureStatistics):
    """Sums over frequencies in place of those over features, and what the features are chosen for.

    Attributes:
        A: Sums of products without outcomes, of which the odd ones come first.
        b: Odd sums with outcomes, less the origin.
        lengthscales: Of the inputs.
        frequencies: The frequencies.
        low, width: Lower bounds, and widths of the bounds.
        size: Number of functions of all inputs.
    """

    A: Tensor = shaped("s g")
    b: Tensor = shaped("o h")
    lengthscales: Tensor = shaped("d", "positive")
    frequencies: Frequencies = nested()
    low: tuple[float, ...] = nested()
    width: tuple[float, ...] = nested()
    size: Size = nested()

    @classmethod
    def on(
        cls, lengthscales: Tensor, box: Tensor, size: Size, main: bool, outputs: int, shared: bool
    ) -> Self:
        """Before any data; ``box`` is lower bounds and widths, ``2 x d``."""
        low, width = map(tuple, box.tolist())
        f = Frequencies.for_features(len(low), _functions(size, len(low), SIZES[0][0]), main)
        chosen = {"lengthscales": lengthscales, "low": low, "width": width, "size": size}
        return cls.zeros((f.total,), f.odd, outputs, shared, frequencies=f, **chosen)

    def _summed(
        self, X: Tensor, n: int, weights: Tensor, weighted: Tensor
    ) -> tuple[Tensor, Tensor]:
        """O((2 a)^d) a point for indices up to a."""
        return self.frequencies.sums(self.basis_at(n).phases(X), weights, weighted)

    def totals(self) -> tuple[Tensor, Tensor, Tensor]:
        """Odd sums without outcomes (``s x h``), ``1'R^-1 y`` (``o``) and ``1'R^-1 1`` (``s``)."""
        return self.A[:, : self.b.shape[-1]], self.b[:, 0], self.A[:, 0]

    def assembly_at(self, n: int) -> Assembly:
        """The features with n points seen, and where their sums are."""
        count, scales = _functions(self.size, len(self.low), n), tuple(self.lengthscales.tolist())
        device = self.lengthscales.device
        return assembly_for(self.frequencies, count, scales, self.low, self.width, device)

    def basis_at(self, n: int) -> Basis:
        """The features with n points seen."""
        return self.assembly_at(n).basis

    def over_features(self, n: int) -> list[OutputStatistics]:
        """The statistics of every output over the features with n points seen: O(2^d f^2)."""
        assembly, outputs = self.assembly_at(n), self.statistics()
        matrices = [assembly.matrix(sums) for sums in self.A]
        return [
            replace(sums, A=A, b=assembly.vector(sums.b), w1=assembly.vector(sums.w1))
            for sums, A in zip(outputs, matrices * (len(outputs) // len(matrices)), strict=True)
        ]

    def least_lengthscales(self, basis: Basis) -> tuple[Tensor, ...]:
        """The shortest lengthscales that features resolve, in units of the inputs: of main effects
        (0-dim), if there are any, and of functions of all inputs (``d``).
        """
        joint = RESOLVED * HALF * basis.width / basis.joint.amax(0)
        main = (RESOLVED * HALF * basis.width.amax() / basis.main,) if basis.main else ()
        return (*main, joint)

    def suited_to(self, lengthscales: Tensor, n: int) -> Self:
        """The same sums, with features for other lengthscales."""
        return replace(self, lengthscales=lengthscales.clone())

    def along(self, other: SufficientStatistics, n: int) -> Self:
        """The same sums, with features for another state's lengthscales."""
        return self.suited_to(cast(FrequencyState, other).lengthscales, n)

    def merged_at(self, other: Self, n: int, others: int) -> Self:
        """The sums of both streams, of n and ``others`` points, with the features of the longer."""
        merged = super().merged_at(other, n, others)
        return merged if n >= others else merged.along(other, others)

    def sizes(self) -> dict[str, int]:
        """Sizes that a saved state must share, by letter."""
        return {"g": self.frequencies.total, "h": self.frequencies.odd}


def _functions(size: Size, dim: int, n: int) -> int:
    """Number of functions of all of a few inputs with n points seen."""
    if size != "auto":
        return size
    return ONE_INPUT if dim == 1 else next(count for least, count in SIZES if n >= least)


@lru_cache(maxsize=16)
@lasting
def assembly_for(
    frequencies: Frequencies,
    count: int,
    lengthscales: tuple[float, ...],
    low: tuple[float, ...],
    width: tuple[float, ...],
    device: torch.device,
) -> Assembly:
    """The ``count`` best functions for these lengthscales within the frequencies stored, and where
    their sums are. The last few are remembered.
    """
    like = torch.empty(0, dtype=torch.float64, device=device)
    lengths, start, widths = (like.new_tensor(t) for t in (lengthscales, low, width))
    main, highest = frequencies.main, frequencies.joint
    basis = Basis.choose(lengths, start, widths, count, main, half=HALF, highest=highest)
    return Assembly(frequencies, basis)


@dataclass(frozen=True)
class HilbertState(BufferedStatistics[Basis]):
    """Statistics over sine features, and the first points.

    Attributes:
        basis: The features.
    """

    basis: Basis = nested()

    @classmethod
    def on(
        cls,
        lengthscales: Tensor,
        box: Tensor,
        size: Size,
        main: bool,
        outputs: int,
        shared: bool,
        opening: int,
    ) -> Self:
        """Before any data, as `FrequencyState.on`, with room for ``opening`` points."""
        count, periods = MANY_INPUTS if size == "auto" else size, PERIODS if main else 0
        low, width = box.to(lengthscales)
        basis = Basis.choose(lengthscales, low, width, count, periods)
        f, d = basis.alpha.shape
        return cls.empty((f + 1, f + 1), f + 1, d, outputs, shared, opening, basis=basis)

    def totals(self) -> tuple[Tensor, Tensor, Tensor]:
        """``W'R^-1 1`` (``s x m``), ``1'R^-1 y`` (``o``) and ``1'R^-1 1`` (``s``)."""
        return self.A[..., -1], self.b[..., -1], self.A[..., -1, -1]

    @property
    def features(self) -> Basis:
        """The features."""
        return self.basis

    def over(self, features: Basis) -> Self:
        """The state with other features, whose sums are to be replaced."""
        return replace(self, basis=features)

    def basis_at(self, n: int) -> Basis:
        """The features."""
        return self.basis

    def suited_to(self, lengthscales: Tensor, n: int) -> Self:
        """The same n points, all held, over as many features for other lengthscales."""
        old = self.basis
        basis = Basis.choose(lengthscales, old.low, old.width, len(old.joint), old.main)
        return self.chosen(basis, n)

    def over_features(self, n: int) -> list[OutputStatistics]:
        """The statistics of every output over the features, without the one."""
        outputs = self.statistics()
        return [replace(o, A=o.A[:-1, :-1], b=o.b[:-1], w1=o.w1[:-1]) for o in outputs]

    def sizes(self) -> dict[str, int]:
        """Sizes that a saved state must share, by letter."""
        f = len(self.basis.alpha)
        return {"m": f + 1, "f": f, "w": len(self.buffer)}

    def _summed(
        self, X: Tensor, n: int, weights: Tensor, weighted: Tensor
    ) -> tuple[Tensor, Tensor]:
        """O(q f^2) for q points."""
        W = F.pad(self.basis.features(X), (0, 1), value=1.0)
        halves = W * weights.sqrt().unsqueeze(-1)
        return halves.mT @ halves, weighted @ W
