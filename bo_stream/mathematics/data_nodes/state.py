"""The state of a Gaussian process on data nodes: the nodes and their statistics (MATHS 2.8).

The nodes are shared by all outputs. Each output has statistics of its own, because rows of W depend
on its hyperparameters at arrival.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from bo_stream.mathematics.shapes import shaped
from bo_stream.mathematics.sufficient_statistics.state import GeneralStatistics, far

__all__ = ["NodeState"]


@dataclass(frozen=True)
class NodeState(GeneralStatistics):
    """Statistics over nodes; never changed in place.

    Attributes:
        Z: The nodes, in transformed space.
    """

    Z: Tensor = shaped("m d")

    @classmethod
    def before_data(cls, dim: int, outputs: int) -> Self:
        """Without nodes."""
        o = torch.zeros(outputs, dtype=torch.float64)
        A, b, Z = o.new_zeros(outputs, 0, 0), o.new_zeros(outputs, 0), o.new_zeros(0, dim)
        weight = o.new_zeros(())
        return cls(A, b, o, o.clone(), o.clone(), weight, b.clone(), o.clone(), o.clone(), Z)

    @property
    def size(self) -> int:
        """The number of nodes."""
        return self.Z.shape[0]

    def counted_from(self, Y: Tensor) -> Self:
        """Before any data, with an origin that suits these outcomes."""
        return replace(self, origin=far(Y.mean(-1)))

    def joined_by(self, X: Tensor) -> Self:
        """With more nodes, ``q x d``, whose statistics are zero."""
        q = len(X)
        b, w1 = (F.pad(t, (0, q)) for t in (self.b, self.w1))
        Z = torch.cat([self.Z, X])
        return replace(self, A=F.pad(self.A, (0, q, 0, q)), b=b, w1=w1, Z=Z)

    def absorb(self, W: Tensor, Y: Tensor, R: Tensor) -> Self:  # type: ignore[override]
        """With more rows: W ``o x q x m``, Y and R ``o x q`` (MATHS 2.2). O(q m^2)."""
        y, weights = Y - self.origin.unsqueeze(-1), 1.0 / R
        weighted = (W * weights.unsqueeze(-1)).mT
        return replace(
            self,
            A=torch.baddbmm(self.A, weighted, W),
            b=self.b + (weighted @ y.unsqueeze(-1)).squeeze(-1),
            yy=self.yy + (weights * y * y).sum(-1),
            ld=self.ld + R.log().sum(-1),
            weight=self.weight + Y.shape[-1],
            w1=self.w1 + weighted.sum(-1),
            y1=self.y1 + (weights * y).sum(-1),
            one=self.one + weights.sum(-1),
        )
