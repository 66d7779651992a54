"""What a fit leaves behind for the next one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_stream.mathematics.shapes import shaped

__all__ = ["FitMemory"]


@dataclass(frozen=True)
class FitMemory:
    """What the next fit goes on from; empty before the first one.

    Attributes:
        curvature: Inverse Hessian of the objective, in the coordinates of a fit.
        explored: Number of data when far starts were last tried, and when the end of a climb was
            last checked; then where the first fit started.
    """

    curvature: Tensor = shaped("c c")
    explored: Tensor = shaped("e")

    @classmethod
    def empty(cls) -> FitMemory:
        """Before the first fit."""
        none = torch.empty(0, dtype=torch.float64)
        return cls(none.reshape(0, 0), none)
