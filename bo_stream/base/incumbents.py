"""The best points seen, for acquisition functions that use a baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bo_stream.errors import InputError
from bo_stream.mathematics.shapes import shaped

__all__ = ["Incumbents"]


@dataclass(frozen=True)
class Incumbents:
    """The ``limit`` points of highest outcome, best first, raw units, float64."""

    limit: int
    X: Tensor = shaped("k d")
    Y: Tensor = shaped("k")

    @classmethod
    def none(cls, limit: int, dim: int, outputs: int, like: Tensor) -> Incumbents:
        """An empty set on the device of ``like``.

        Raises:
            InputError: for several outputs or a limit below one.
        """
        if outputs != 1 or limit < 1:
            raise InputError(
                "one output and k >= 1", f"{outputs} outputs, k = {limit}", "Track points yourself."
            )
        return cls(limit, like.new_zeros(0, dim), like.new_zeros(0))

    def given(self, X: Tensor, Y: Tensor) -> Incumbents:
        """The set updated with points ``n x d`` and outcomes ``n``; ties keep the earlier."""
        points, values = torch.cat([self.X, X.double()]), torch.cat([self.Y, Y.double()])
        best = values.argsort(descending=True, stable=True)[: self.limit]
        return replace(self, X=points[best], Y=values[best])

    def merged(self, other: Incumbents | None) -> Incumbents:
        """The set updated with another stream's best points."""
        if other is None:
            return self
        return self.given(*(t.to(self.X.device) for t in (other.X, other.Y)))
