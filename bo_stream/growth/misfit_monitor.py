"""A monitor of the predictions of a growing model, which triggers a search for a better fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.base.fitting.surprise import Surprise, shortfall
from bo_stream.growth.starts import has_lengthscale, shorter
from bo_stream.mathematics.inducing.state import Batch, SGPRState, thinned
from bo_stream.mathematics.inducing.structure import hidden_structure, whitened_residuals
from bo_stream.mathematics.shapes import shaped

__all__ = ["MisfitMonitor"]

QUICK = (0.25, 0.125)
"""Lengthscales of structure that the model may miss, relative to the model's."""

ROWS = 256
"""Rows of a batch that are tested."""

SURE, LARGE = 4.0, 0.1
"""Thresholds of missed structure: standard deviations, and share of the noise."""

AGAIN = 2.0
"""Growth of the data between two searches."""


@dataclass(frozen=True)
class MisfitMonitor:
    """Scores of the batches of a stream, each predicted before the fit to it.

    Attributes:
        density: Log densities compared with their expectation.
        structure: Scores of shorter lengthscales in the residuals, since the last search.
        batches: Batches absorbed when the last one was scored, 0-dim.
        sought: Observations at the last search for shorter lengthscales, 0-dim; 0 before the first.
    """

    density: Surprise
    structure: Surprise
    batches: Tensor = shaped("", "not negative")
    sought: Tensor = shaped("", "not negative")

    @classmethod
    def none(cls, like: Tensor) -> Self:
        """Before any data, on the device of ``like``."""
        zero, nothing = like.new_zeros(()), Surprise.none(like)
        return cls(nothing, nothing, zero, zero)

    def seen(self, state: SGPRState, batch: Batch, kernel: Kernel) -> Self:
        """With one batch more; `ROWS` rows of it, O(ROWS^3 + ROWS M^2 + M^3).

        Args:
            state: State before the batch, under the hyperparameters in use at that point.
            batch: The data.
            kernel: The kernel of the state.
        """
        batch = thinned(batch, ROWS)
        w, L = whitened_residuals(state, batch, kernel)
        density = self.density.seen(*shortfall(w), batch.size)
        structure = self.structure
        if has_lengthscale(kernel):
            quick = shorter(kernel, QUICK[0]) + shorter(kernel, QUICK[1])
            structure = structure.seen(*hidden_structure(w, L, batch, quick), batch.size)
        at = self.batches.new_tensor(batch.index + 1.0)
        return replace(self, batches=at, density=density, structure=structure)

    @property
    def misses_structure(self) -> bool:
        """Whether the model attributes structure to noise."""
        return self.structure.sigmas > SURE and self.structure.size > LARGE

    @property
    def behind(self) -> bool:
        """Whether predictions are worse than expected, or miss structure."""
        return self.density.behind or self.misses_structure

    def due(self, n: int) -> bool:
        """Whether to search, after n observations."""
        return self.misses_structure and n >= AGAIN * float(self.sought)

    def searched(self, n: int) -> Self:
        """After a search."""
        sought = self.sought.new_tensor(float(n))
        return replace(self, sought=sought, structure=Surprise.none(self.sought))
