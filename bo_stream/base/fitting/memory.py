"""The memory that a fit leaves for the next one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_stream.mathematics.shapes import shaped

__all__ = ["FitMemory"]


@dataclass(frozen=True)
class FitMemory:
    """The starting information of the next fit; empty before the first.

    Attributes:
        curvature: Inverse Hessian of the objective in the coordinates of a fit.
        explored: Number of data when distant starts were last tried, number of data at the last
            final check, then the coordinates at which the first fit started.
    """

    curvature: Tensor = shaped("c c")
    explored: Tensor = shaped("e")

    @classmethod
    def empty(cls) -> FitMemory:
        """Before the first fit."""
        none = torch.empty(0, dtype=torch.float64)
        return cls(none.reshape(0, 0), none)
