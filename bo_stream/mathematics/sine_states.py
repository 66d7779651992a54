"""The sums that a Gaussian process on sine features keeps, of few inputs and of many.

Of few inputs they are sums over frequencies, from which the sums over any features up to the
highest frequency follow, without any point (MATHS 12.2). Of many they are sums over the features,
and other features can be chosen while all points are buffered.

A row of W is the features at a point and a one. The one has prior variance zero: its column in A
holds the statistics that a constant mean needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor

from bo_stream.mathematics.autograd import lasting
from bo_stream.mathematics.evidence import OutputStatistics
from bo_stream.mathematics.frequencies import HALF, PERIODS, Assembly, Frequencies
from bo_stream.mathematics.shapes import nested, shaped
from bo_stream.mathematics.sines import Basis
from bo_stream.mathematics.sums import BufferedStatistics, SufficientStatistics

__all__ = ["FEW_INPUTS", "FrequencyState", "HilbertState"]

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
class FrequencyState(SufficientStatistics):
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

    chosen_at = 0.0
    """Number of points from which on features are worth choosing again: any."""

    @classmethod
    def on(
        cls, lengthscales: Tensor, box: Tensor, size: Size, main: bool, outputs: int, shared: bool
    ) -> Self:
        """Before any data; ``box`` is lower bounds and widths, ``2 x d``."""
        low, width = map(tuple, box.tolist())
        f = Frequencies.for_features(len(low), _functions(size, len(low), SIZES[0][0]), main)
        sums = SufficientStatistics.zeros(f.odd, outputs, shared, (f.total,))
        return cls(
            **vars(sums), lengthscales=lengthscales, frequencies=f, low=low, width=width, size=size
        )

    def absorb_at(self, X: Tensor, Y: Tensor, R: Tensor, n: int) -> Self:
        """The state after a batch, with n points before: O((2 a)^d) a point for indices up to a."""
        return self.absorb(self.basis_at(n).phases(X), Y, R, first=n == 0)

    def _summed(self, A: Tensor, rows: Any, weights: Tensor, weighted: Tensor) -> Tensor:
        sums, odd = self.frequencies.sums(rows, weights, weighted)
        A += sums
        return odd

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
        assembly, totals = self.assembly_at(n), self.totals()
        matrices = [assembly.matrix(sums) for sums in self.A]
        outputs = [self.statistics(i, totals) for i in range(len(self.b))]
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

    def holds_all(self, n: int) -> bool:
        """Whether other features can be chosen: always."""
        return True

    def suited(self, lengthscales: Tensor) -> Tensor:
        """What `chosen` takes for these lengthscales."""
        return lengthscales.clone()

    def chosen(self, lengthscales: Tensor, n: int) -> Self:
        """The same sums, with features for other lengthscales."""
        return replace(self, lengthscales=lengthscales)

    def along(self, other: SufficientStatistics, n: int) -> Self:
        """The same sums, with features for another state's lengthscales."""
        return self.chosen(cast(FrequencyState, other).lengthscales, n)

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
class HilbertRows:
    """Rows of W, ``n x (f + 1)``."""

    W: Tensor

    def add_outer(self, A: Tensor, weights: Tensor) -> None:
        """``A += W' diag(weights) W`` in place: O(n f^2)."""
        half = self.W * weights.sqrt().unsqueeze(-1)
        A.addmm_(half.mT, half)

    def transpose_times(self, values: Tensor, m: int) -> Tensor:
        """``W' values`` for ``o x n`` values: ``o x m``."""
        return values @ self.W


@dataclass(frozen=True)
class HilbertState(BufferedStatistics):
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
        return cls.empty(f + 1, d, outputs, shared, opening, basis=basis)

    def totals(self) -> tuple[Tensor, Tensor, Tensor]:
        """``W'R^-1 1`` (``s x m``), ``1'R^-1 y`` (``o``) and ``1'R^-1 1`` (``s``)."""
        return self.A[..., -1], self.b[..., -1], self.A[..., -1, -1]

    @property
    def features(self) -> Basis:
        """The features."""
        return self.basis

    def over(self, features: Basis) -> Self:
        """A state over other features, before any data."""
        return replace(self, A=torch.zeros_like(self.A), b=torch.zeros_like(self.b), basis=features)

    def basis_at(self, n: int) -> Basis:
        """The features."""
        return self.basis

    def suited(self, lengthscales: Tensor) -> Basis:
        """As many features for these lengthscales."""
        basis = self.basis
        return Basis.choose(lengthscales, basis.low, basis.width, len(basis.joint), basis.main)

    def over_features(self, n: int) -> list[OutputStatistics]:
        """The statistics of every output over the features, without the one."""
        outputs = [self.statistics(i) for i in range(len(self.b))]
        return [replace(o, A=o.A[:-1, :-1], b=o.b[:-1], w1=o.w1[:-1]) for o in outputs]

    def least_lengthscales(self, basis: Basis) -> tuple[Tensor, ...]:
        """No limits, for features of many inputs resolve little."""
        return ()

    def sizes(self) -> dict[str, int]:
        """Sizes that a saved state must share, by letter."""
        f = len(self.basis.alpha)
        return {"m": f + 1, "f": f, "w": len(self.buffer.X)}

    def rows_at(self, X: Tensor) -> HilbertRows:
        """The features and a one at points ``n x d``."""
        return HilbertRows(torch.nn.functional.pad(self.basis.features(X), (0, 1), value=1.0))

    def _unlike(self) -> tuple[str, str, str]:
        return (
            "two streams on the same features",
            "features chosen for other lengthscales, and points no longer held",
            "Build both with the same `lengthscales`.",
        )
