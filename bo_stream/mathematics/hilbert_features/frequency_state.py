"""The state of a Gaussian process on sine features of few inputs: sums over frequencies.

Every feature within the frequencies stored is at hand at any time, without any point (MATHS 12.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, cast

from torch import Tensor

from bo_stream.mathematics.evidence import OutputStatistics
from bo_stream.mathematics.hilbert_features.assembly import Assembly
from bo_stream.mathematics.hilbert_features.frequencies import Frequencies, add_sums
from bo_stream.mathematics.shapes import shaped
from bo_stream.mathematics.sums import SufficientStatistics

__all__ = ["FrequencyState"]


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

    @classmethod
    def on(cls, frequencies: Frequencies, lengthscales: Tensor, outputs: int, shared: bool) -> Self:
        """Before any data."""
        sums = SufficientStatistics.zeros(frequencies.odd, outputs, shared, (frequencies.total,))
        like = partial(Tensor.to, device=lengthscales.device)
        return cls(
            **{name: like(value) for name, value in vars(sums).items()}, lengthscales=lengthscales
        )

    def absorb_at(
        self, frequencies: Frequencies, phases: Tensor, Y: Tensor, R: Tensor, n: int
    ) -> Self:
        """The state after a batch at points of these angles, ``n x d``, with n points before."""
        return self.absorb((frequencies, phases), Y, R, first=n == 0)

    def _summed(self, A: Tensor, rows: Any, weights: Tensor, weighted: Tensor) -> Tensor:
        frequencies, phases = rows
        return add_sums(frequencies, phases, A, weights, weighted)

    def totals(self) -> tuple[Tensor, Tensor, Tensor]:
        """Odd sums without outcomes (``s x h``), ``1'R^-1 y`` (``o``) and ``1'R^-1 1`` (``s``)."""
        return self.A[:, : self.b.shape[-1]], self.b[:, 0], self.A[:, 0]

    def over(self, assembly: Assembly) -> list[OutputStatistics]:
        """The statistics of every output over features: O(2^d f^2)."""
        w1, y1, one = self.totals()
        matrices = [assembly.matrix(sums) for sums in self.A]
        b, w = assembly.vector(self.b), assembly.vector(w1)
        made = []
        for output in range(len(self.b)):
            shared = min(output, len(self.A) - 1)
            own = (
                self.yy[output],
                self.ld[shared],
                self.weight,
                w[shared],
                y1[output],
                one[shared],
            )
            made.append(OutputStatistics(matrices[shared], b[output], *own))
        return made

    @property
    def chosen_at(self) -> float:
        """Number of points from which on features are worth choosing again: any."""
        return 0.0

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
