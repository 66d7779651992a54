"""Outcomes of a campaign as tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        Yvar: ``n x 1``, or None where noise is learned. Of counts: their trials or exposures.
        batches: Number of batches.
        counts: Whether the outcomes are counts.
    """

    X: Tensor
    Y: Tensor
    Yvar: Tensor | None = None
    batches: int = 0
    counts: bool = False

    def extended(self, X: Tensor, Y: Tensor, Yvar: Tensor | None, batches: int = 1) -> Observations:
        """The observations with the outcomes of further batches."""
        noise = Yvar
        if self.Yvar is not None and Yvar is not None:
            noise = torch.cat([self.Yvar, Yvar])
        X, Y = torch.cat([self.X, X]), torch.cat([self.Y, Y])
        return Observations(X, Y, noise, self.batches + batches, self.counts)

    def bounded(self, least: float) -> Observations:
        """The observations with outcomes below a limit in its place."""
        return replace(self, Y=self.Y.clamp_min(least))

    def part(self, rows: slice) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y and Yvar of some of them."""
        return self.X[rows], self.Y[rows], None if self.Yvar is None else self.Yvar[rows]

    @property
    def _values(self) -> Tensor:
        """What orders the points, ``n``: outcomes, or the rates of counts."""
        return (self.Y / self.Yvar if self.counts and self.Yvar is not None else self.Y)[:, 0]

    @property
    def range(self) -> Tensor:
        """The highest minus the lowest outcome, or rate of counts, 0-dim."""
        return self._values.amax() - self._values.amin()

    @property
    def typical_size(self) -> float | None:
        """The median of the trials or exposures of counts; None for other outcomes."""
        return float(self.Yvar.median()) if self.counts and self.Yvar is not None else None

    def candidates(self) -> Tensor:
        """Points that may be the best one: those of the highest outcomes, and the latest.

        Their number is bounded whatever n is.
        """
        n = len(self.X)
        if n <= TOP + LATEST:
            return self.X
        top = self._values[: n - LATEST].topk(TOP).indices.sort().values
        return torch.cat([self.X[top], self.X[n - LATEST :]])

    def best(self) -> Tensor:
        """The points of the highest outcomes, best first, ``k x d``."""
        return self.X[self._values.topk(min(BEST, len(self.Y))).indices]
