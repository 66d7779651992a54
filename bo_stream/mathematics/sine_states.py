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

from bo_stream.mathematics.evidence import OutputStatistics
from bo_stream.mathematics.frequencies import HALF, PERIODS, Assembly, Frequencies
from bo_stream.mathematics.lasting import lasting
from bo_stream.mathematics.shapes import nested, shaped
from bo_stream.mathematics.sines import Basis
from bo_stream.mathematics.sums import BufferedStatistics, SufficientStatistics

__all__ = ["FEW_INPUTS", "FewInputs", "FrequencyState", "HilbertState", "ManyInputs"]

FEW_INPUTS = 3
"""Number of inputs up to which sums over frequencies are kept."""
SIZES = ((3000, 400), (300, 256), (0, 128))
"""Observations and, from there on, functions of two or three inputs."""
ONE_INPUT, MANY_INPUTS = 128, 512
"""Functions of one input, and of more than three."""
RESOLVED = 0.8 * 2.65
"""Radians of the highest frequency that a lengthscale must span (MATHS 12.1)."""

Size = int | Literal["auto"]


# -- few inputs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FrequencyState(SufficientStatistics):
    """Sums over frequencies in place of those over features, and what the features are chosen for.

    Attributes:
        A: Sums of products without outcomes, of which the odd ones come first.
        b: Odd sums with outcomes, less the origin.
        lengthscales: Of the inputs.
    """

    A: Tensor = shaped("s g")
    b: Tensor = shaped("o h")
    lengthscales: Tensor = shaped("d", "positive")

    chosen_at = 0.0
    """Number of points from which on features are worth choosing again: any."""

    def _summed(self, A: Tensor, rows: Any, weights: Tensor, weighted: Tensor) -> Tensor:
        frequencies, phases = rows
        sums, odd = cast(Frequencies, frequencies).sums(phases, weights, weighted)
        A += sums
        return odd

    def totals(self) -> tuple[Tensor, Tensor, Tensor]:
        """Odd sums without outcomes (``s x h``), ``1'R^-1 y`` (``o``) and ``1'R^-1 1`` (``s``)."""
        return self.A[:, : self.b.shape[-1]], self.b[:, 0], self.A[:, 0]

    def holds_all(self, n: int) -> bool:
        """Whether other features can be chosen: always."""
        return True

    def chosen(self, lengthscales: Tensor, n: int) -> Self:
        """The same sums, with features for other lengthscales."""
        return replace(self, lengthscales=lengthscales.clone())

    def along(self, other: SufficientStatistics, n: int) -> Self:
        """The same sums, with features for another state's lengthscales."""
        return self.chosen(cast(FrequencyState, other).lengthscales, n)

    def merged_at(self, other: Self, n: int, others: int) -> Self:
        """The sums of both streams, of n and ``others`` points, with the features of the longer."""
        merged = super().merged_at(other, n, others)
        return merged if n >= others else merged.along(other, others)


class FewInputs:
    """Features of up to three inputs.

    Args:
        low: Lower bounds, ``d``, on the CPU.
        width: Widths of the bounds, likewise.
        size: Number of functions of all inputs.
        main_effects: Whether there are main effects.
    """

    def __init__(self, low: Tensor, width: Tensor, size: Size, main_effects: bool) -> None:
        self.low, self.width, self.size = low, width, size
        self.frequencies = Frequencies.for_features(len(low), self.count(SIZES[0][0]), main_effects)

    def count(self, n: int) -> int:
        """Number of functions of all inputs with n points seen."""
        if self.size != "auto":
            return self.size
        return ONE_INPUT if len(self.low) == 1 else next(m for least, m in SIZES if n >= least)

    def assembly(self, state: FrequencyState, n: int) -> Assembly:
        """The features with n points seen, and where their sums are."""
        scales, low, width = (tuple(t.tolist()) for t in (state.lengthscales, self.low, self.width))
        device = state.lengthscales.device
        return assembly_for(self.frequencies, self.count(n), scales, low, width, device)

    def empty(self, lengthscales: Tensor, outputs: int, shared: bool) -> FrequencyState:
        """The state before any data, with features for these lengthscales (``d``)."""
        f = self.frequencies
        sums = SufficientStatistics.zeros(f.odd, outputs, shared, (f.total,))
        return FrequencyState(**vars(sums), lengthscales=lengthscales)

    def suited(self, lengthscales: Tensor) -> Tensor:
        """What a state's `chosen` takes to have features for these lengthscales."""
        return lengthscales

    def absorb(
        self, state: FrequencyState, X: Tensor, Y: Tensor, R: Tensor, n: int
    ) -> FrequencyState:
        """The state after a batch, with n points before: O((2 a)^d) a point for the highest index
        a.
        """
        phases = self.basis(state, n).phases(X)
        return state.absorb((self.frequencies, phases), Y, R, first=n == 0)

    def basis(self, state: FrequencyState, n: int) -> Basis:
        """The features with n points seen."""
        return self.assembly(state, n).basis

    def statistics(self, state: FrequencyState, n: int) -> list[OutputStatistics]:
        """The statistics of every output over the features: O(2^d f^2)."""
        assembly, totals = self.assembly(state, n), state.totals()
        matrices = [assembly.matrix(sums) for sums in state.A]
        outputs = [state.statistics(i, totals) for i in range(len(state.b))]
        return [
            replace(own, A=A, b=assembly.vector(own.b), w1=assembly.vector(own.w1))
            for own, A in zip(outputs, matrices * (len(outputs) // len(matrices)), strict=True)
        ]

    def sizes(self) -> dict[str, int]:
        """Sizes that a saved state must share, by letter."""
        return {"g": self.frequencies.total, "h": self.frequencies.odd}

    def least_lengthscales(self, basis: Basis) -> tuple[Tensor, ...]:
        """The shortest lengthscales that the features resolve, in units of the inputs: of main
        effects (0-dim), if there are any, and of functions of all inputs (``d``).
        """
        joint = RESOLVED * HALF * basis.width / basis.joint.amax(0)
        main = (RESOLVED * HALF * basis.width.amax() / basis.main,) if basis.main else ()
        return (*main, joint)


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


# -- many inputs -----------------------------------------------------------------------------------


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

    def rows_at(self, X: Tensor) -> HilbertRows:
        """The features and a one at points ``n x d``."""
        return HilbertRows(torch.nn.functional.pad(self.basis.features(X), (0, 1), value=1.0))

    def _unlike(self) -> tuple[str, str, str]:
        return (
            "two streams on the same features",
            "features chosen for other lengthscales, and points no longer held",
            "Build both with the same `lengthscales`.",
        )


class ManyInputs:
    """Features of more than three inputs; methods as those of `FewInputs`.

    Args:
        low: Lower bounds, ``d``.
        width: Widths of the bounds, ``d``.
        size: Number of functions of all inputs.
        main_effects: Whether there are main effects.
        opening: Number of first points that are held.
    """

    def __init__(
        self, low: Tensor, width: Tensor, size: Size, main_effects: bool, opening: int
    ) -> None:
        self.low, self.width, self.opening = low, width, opening
        self.count = MANY_INPUTS if size == "auto" else size
        self.main = PERIODS if main_effects else 0

    def empty(self, lengthscales: Tensor, outputs: int, shared: bool) -> HilbertState:
        """The state before any data."""
        basis, d = self.suited(lengthscales), len(self.low)
        size = len(basis.alpha) + 1
        return HilbertState.empty(size, d, outputs, shared, self.opening, basis=basis)

    def suited(self, lengthscales: Tensor) -> Basis:
        """Features for these lengthscales."""
        low, width = (t.to(lengthscales) for t in (self.low, self.width))
        return Basis.choose(lengthscales, low, width, self.count, self.main)

    def absorb(self, state: HilbertState, X: Tensor, Y: Tensor, R: Tensor, n: int) -> HilbertState:
        """The state after a batch: O(f^2) a point."""
        return state.absorb_at(X, Y, R, n)

    def basis(self, state: HilbertState, n: int) -> Basis:
        """The features."""
        return state.basis

    def statistics(self, state: HilbertState, n: int) -> list[OutputStatistics]:
        """The statistics of every output over the features, without the one."""
        outputs = [state.statistics(i) for i in range(len(state.b))]
        return [replace(o, A=o.A[:-1, :-1], b=o.b[:-1], w1=o.w1[:-1]) for o in outputs]

    def sizes(self) -> dict[str, int]:
        """Sizes that a saved state must share, by letter."""
        f = self.count + self.main * len(self.low)
        return {"m": f + 1, "f": f, "w": self.opening}

    def least_lengthscales(self, basis: Basis) -> tuple[Tensor, ...]:
        """No limits, for features of many inputs resolve little."""
        return ()
