"""Outcomes of a campaign as tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Observations"]

TOP, LATEST, BEST = 256, 64, 16


@dataclass(frozen=True)
class Observations:
    """Outcomes in the order they were told, in the surrogate's coordinates. Immutable.

    Attributes:
        X: ``n x d``.
        Y: ``n x 1``, to be maximised.
        Yvar: ``n x 1``, or None where noise is learned.
        batches: Number of batches.
    """

    X: Tensor
    Y: Tensor
    Yvar: Tensor | None = None
    batches: int = 0

    def extended(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> Observations:
        """The observations with one more batch."""
        noise = Yvar
        if self.Yvar is not None and Yvar is not None:
            noise = torch.cat([self.Yvar, Yvar])
        X, Y = torch.cat([self.X, X]), torch.cat([self.Y, Y])
        return Observations(X, Y, noise, self.batches + 1)

    def candidates(self) -> Tensor:
        """Points that may be the best one: those of the highest outcomes, and the latest.

        Their number is bounded whatever n is.
        """
        n = len(self.X)
        if n <= TOP + LATEST:
            return self.X
        top = self.Y[: n - LATEST, 0].topk(TOP).indices.sort().values
        return torch.cat([self.X[top], self.X[n - LATEST :]])

    def best(self) -> Tensor:
        """The points of the highest outcomes, best first, ``k x d``."""
        return self.X[self.Y[:, 0].topk(min(BEST, len(self.Y))).indices]
