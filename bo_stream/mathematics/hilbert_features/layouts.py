"""Which features a process has, and which sums are kept for them: for few inputs and for many."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from torch import Tensor

from bo_stream.mathematics.evidence import OutputStatistics
from bo_stream.mathematics.hilbert_features.assembly import Assembly, assembly_for
from bo_stream.mathematics.hilbert_features.basis import Basis
from bo_stream.mathematics.hilbert_features.frequencies import HALF, PERIODS, Frequencies
from bo_stream.mathematics.hilbert_features.frequency_state import FrequencyState
from bo_stream.mathematics.hilbert_features.state import HilbertState

__all__ = ["FEW_INPUTS", "FeatureLayout", "FrequencyLayout", "Layout", "layout_for"]

FEW_INPUTS = 3
"""Number of inputs up to which sums over frequencies are kept."""
SIZES = ((3000, 400), (300, 256), (0, 128))
"""Observations and, from there on, functions of two or three inputs."""
ONE_INPUT, MANY_INPUTS = 128, 512
"""Functions of one input, and of more than three."""

Size = int | Literal["auto"]


class Layout(Protocol):
    """The features for given lengthscales, and the state that holds their sums."""

    def empty(self, lengthscales: Tensor, outputs: int, shared: bool) -> Any:
        """The state before any data, with features for these lengthscales (``d``)."""
        ...

    def suited(self, lengthscales: Tensor) -> Any:
        """What to choose features by: an argument of the state's `chosen`."""
        ...

    def started(self, state: Any, lengthscales: Tensor) -> Any:
        """The state before any data with features for other lengthscales."""
        ...

    def absorb(self, state: Any, X: Tensor, Y: Tensor, R: Tensor, n: int) -> Any:
        """The state after a batch, with n points before."""
        ...

    def basis(self, state: Any, n: int) -> Basis:
        """The features with n points seen."""
        ...

    def statistics(self, state: Any, n: int) -> list[OutputStatistics]:
        """The statistics of every output over the features."""
        ...

    def sizes(self) -> dict[str, int]:
        """Sizes that a saved state must share, by letter."""
        ...

    def least_lengthscales(self, basis: Basis) -> tuple[Tensor, Tensor] | None:
        """The shortest lengthscales that the features resolve, of functions of all inputs (``d``)
        and of main effects (0-dim), in units of the inputs; None for no limit.
        """
        ...


RESOLVED = 0.8 * 2.65
"""Radians of the highest frequency that a lengthscale must span (MATHS 12.1)."""


class FrequencyLayout:
    """Sums over frequencies: any features up to the highest ones (MATHS 12.2).

    Args:
        box: Lower bounds and widths, ``2 x d``.
        size: Number of functions of all inputs.
        main_effects: Whether there are main effects.
    """

    def __init__(self, box: Tensor, size: Size, main_effects: bool) -> None:
        self.low, self.width = box
        self.dim, self.size = box.shape[-1], size
        self.frequencies = Frequencies.for_features(
            self.dim, self._count(SIZES[0][0]), main_effects
        )

    def _count(self, n: int) -> int:
        """Number of functions of all inputs with n points seen."""
        if self.size != "auto":
            return self.size
        return ONE_INPUT if self.dim == 1 else next(m for least, m in SIZES if n >= least)

    def assembly(self, state: FrequencyState, n: int) -> Assembly:
        """The features, and where their sums are."""
        scales, low, width = (tuple(t.tolist()) for t in (state.lengthscales, self.low, self.width))
        device = state.lengthscales.device
        return assembly_for(self.frequencies, self._count(n), scales, low, width, device)

    def empty(self, lengthscales: Tensor, outputs: int, shared: bool) -> FrequencyState:
        """As in `Layout`."""
        return FrequencyState.on(self.frequencies, lengthscales, outputs, shared)

    def suited(self, lengthscales: Tensor) -> Tensor:
        """As in `Layout`."""
        return lengthscales

    def started(self, state: FrequencyState, lengthscales: Tensor) -> FrequencyState:
        """As in `Layout`."""
        return state.chosen(lengthscales, 0)

    def absorb(
        self, state: FrequencyState, X: Tensor, Y: Tensor, R: Tensor, n: int
    ) -> FrequencyState:
        """As in `Layout`: O((2 a)^d) a point for the highest index a."""
        phases = self.basis(state, n).phases(X)
        return state.absorb_at(self.frequencies, phases, Y, R, n)

    def basis(self, state: FrequencyState, n: int) -> Basis:
        """As in `Layout`."""
        return self.assembly(state, n).basis

    def statistics(self, state: FrequencyState, n: int) -> list[OutputStatistics]:
        """As in `Layout`: O(2^d f^2)."""
        return state.over(self.assembly(state, n))

    def sizes(self) -> dict[str, int]:
        """As in `Layout`."""
        return {"g": self.frequencies.total, "h": self.frequencies.odd}

    def least_lengthscales(self, basis: Basis) -> tuple[Tensor, Tensor]:
        """As in `Layout`."""
        joint = RESOLVED * HALF * basis.width / basis.joint.amax(0)
        return joint, RESOLVED * HALF * basis.width.amax() / max(basis.main, 1)


class FeatureLayout:
    """Sums over features, which can be chosen anew while all points are held.

    Args:
        box: Lower bounds and widths, ``2 x d``.
        size: Number of functions of all inputs.
        main_effects: Whether there are main effects.
        opening: Number of first points that are held.
    """

    def __init__(self, box: Tensor, size: Size, main_effects: bool, opening: int) -> None:
        self.low, self.width = box
        self.count = MANY_INPUTS if size == "auto" else size
        self.main = PERIODS if main_effects else 0
        self.opening = opening

    def empty(self, lengthscales: Tensor, outputs: int, shared: bool) -> HilbertState:
        """As in `Layout`."""
        return HilbertState.on(self.suited(lengthscales), outputs, shared, self.opening)

    def suited(self, lengthscales: Tensor) -> Basis:
        """As in `Layout`."""
        low, width = (t.to(lengthscales) for t in (self.low, self.width))
        return Basis.choose(lengthscales, low, width, self.count, self.main)

    def started(self, state: HilbertState, lengthscales: Tensor) -> HilbertState:
        """As in `Layout`."""
        return state.resummed(self.suited(lengthscales), 0)

    def absorb(self, state: HilbertState, X: Tensor, Y: Tensor, R: Tensor, n: int) -> HilbertState:
        """As in `Layout`: O(f^2) a point."""
        return state.absorb_at(X, Y, R, n)

    def basis(self, state: HilbertState, n: int) -> Basis:
        """As in `Layout`."""
        return state.basis

    def statistics(self, state: HilbertState, n: int) -> list[OutputStatistics]:
        """As in `Layout`."""
        return state.over_features()

    def sizes(self) -> dict[str, int]:
        """As in `Layout`."""
        f = self.count + self.main * len(self.low)
        return {"m": f + 1, "f": f, "w": self.opening}

    def least_lengthscales(self, basis: Basis) -> None:
        """As in `Layout`: none, for features of many inputs resolve little."""
        return None


def layout_for(box: Tensor, size: Size, main_effects: bool, opening: int) -> Layout:
    """The layout for a number of inputs.

    Args:
        box: Lower bounds and widths, ``2 x d``.
        size: Number of functions of all inputs.
        main_effects: Whether there are main effects.
        opening: Number of first points that are held, if any are.
    """
    if box.shape[-1] <= FEW_INPUTS:
        return FrequencyLayout(box, size, main_effects)
    return FeatureLayout(box, size, main_effects, opening)
