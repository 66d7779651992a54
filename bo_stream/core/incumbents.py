"""The best points seen, for acquisition functions that want a baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bo_stream.errors import InputError
from bo_stream.shapes import shaped

__all__ = ["Incumbents"]


@dataclass(frozen=True)
class Incumbents:
    """The ``limit`` points of highest outcome, best first, raw units, float64."""

    limit: int
    incumbent_X: Tensor = shaped("k d")
    incumbent_Y: Tensor = shaped("k")

    @classmethod
    def none(cls, limit: int, dim: int, outputs: int) -> Incumbents:
        """Before any point.

        Raises:
            InputError: for several outputs or a limit below one.
        """
        if outputs != 1 or limit < 1:
            raise InputError(
                "one output and k >= 1", f"{outputs} outputs, k = {limit}", "Keep points yourself."
            )
        zero = torch.zeros(0, dtype=torch.float64)
        return cls(limit, zero.new_zeros(0, dim), zero)

    def given(self, X: Tensor, Y: Tensor) -> Incumbents:
        """With points ``n x d`` of outcomes ``n x 1`` considered too; ties to the earlier."""
        points = torch.cat([self.incumbent_X, X.double()])
        values = torch.cat([self.incumbent_Y, Y[:, 0].double()])
        best = values.argsort(descending=True, stable=True)[: self.limit]
        return replace(self, incumbent_X=points[best], incumbent_Y=values[best])
