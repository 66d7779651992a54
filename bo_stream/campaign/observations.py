"""What was told, as tensors: all of it for a new surrogate, the best of it for an acquisition."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Observed"]

TOP, LATEST = 256, 64


@dataclass(frozen=True)
class Observed:
    """Observations in the order they were told, as the surrogate sees them.

    Attributes:
        X: ``n x d``.
        Y: ``n x 1``, to be maximised.
        Yvar: ``n x 1``, or None where noise is learned.
        batches: How many batches they came in.
    """

    X: Tensor
    Y: Tensor
    Yvar: Tensor | None = None
    batches: int = 0

    def after(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> Observed:
        """With one batch more."""
        noise = Yvar
        if self.Yvar is not None and Yvar is not None:
            noise = torch.cat([self.Yvar, Yvar])
        return Observed(torch.cat([self.X, X]), torch.cat([self.Y, Y]), noise, self.batches + 1)

    def candidates(self) -> Tensor:
        """Points among which the best is: those of the highest outcomes, and the latest.

        However many there are, it is a bounded number of them.
        """
        n = len(self.X)
        if n <= TOP + LATEST:
            return self.X
        top = self.Y[: n - LATEST, 0].topk(TOP).indices.sort().values
        return torch.cat([self.X[top], self.X[n - LATEST :]])
