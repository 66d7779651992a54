"""Outcomes of a campaign as tensors, and the least one that a surrogate learns."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

__all__ = ["SPREADS", "Observations", "least_learned"]

TOP, LATEST, BEST = 256, 64, 16
"""Number of the highest outcomes, in all, and of the latest ones that the best point is among, and
of points where a search for it begins."""

SPREADS = 20.0
"""Worse outcomes than so many spreads below the median are learned as if they were there."""

EARLY = 20
"""Number of first outcomes whose spread counts, too: later ones may all be near the optimum."""

FEWEST = 4


@dataclass(frozen=True)
class Observations:
    """Outcomes in the order they were told, in the surrogate's coordinates. Immutable.

    Attributes:
        X: ``n x d``.
        Y: ``n x 1``, to be maximised; of several outcomes ``n x m``, NaN where one is missing.
        Yvar: ``n x 1``, or None where noise is learned. Of counts: their trials or exposures.
        batches: Number of batches.
        counts: Whether the outcomes are counts.
        revision: That of the log of which they are; see `bo_stream.campaign.history.Log`.
    """

    X: Tensor
    Y: Tensor
    Yvar: Tensor | None = None
    batches: int = 0
    counts: bool = False
    revision: int = 0

    @classmethod
    def none(cls, bounds: Tensor, counts: bool, revision: int = 0) -> Self:
        """No observations yet, in a box ``2 x d``."""
        X = bounds[:0]
        return cls(X, X[:, :1], counts=counts, revision=revision)

    def extended(self, X: Tensor, Y: Tensor, Yvar: Tensor | None, batches: int = 1) -> Observations:
        """The observations with the outcomes of further batches."""
        noise = Yvar
        if self.Yvar is not None and Yvar is not None:
            noise = torch.cat([self.Yvar, Yvar])
        X, Y = torch.cat([self.X, X]), torch.cat([self.Y, Y])
        return replace(self, X=X, Y=Y, Yvar=noise, batches=self.batches + batches)

    def bounded(self, least: float) -> Observations:
        """The observations with outcomes below a limit in its place."""
        return replace(self, Y=self.Y.clamp_min(least))

    def part(self, rows: slice) -> tuple[Tensor, Tensor, Tensor | None]:
        """X, Y and Yvar of some of them."""
        return self.X[rows], self.Y[rows], None if self.Yvar is None else self.Yvar[rows]

    @property
    def _values(self) -> Tensor:
        """What orders the points, ``n x m``: outcomes, or the rates of counts."""
        return self.Y / self.Yvar if self.counts and self.Yvar is not None else self.Y

    @property
    def complete(self) -> tuple[Tensor, Tensor]:
        """Points ``k x d`` with all outcomes, and the first outcome there, ``k``."""
        rows = ~self.Y.isnan().any(-1)
        return self.X[rows], self.Y[rows, 0]

    @property
    def range(self) -> Tensor:
        """The highest minus the lowest outcome, or rate of counts, 0-dim."""
        return self._values.amax() - self._values.amin()

    @property
    def typical_size(self) -> float | None:
        """The median of the trials or exposures of counts; None for other outcomes."""
        return float(self.Yvar.median()) if self.counts and self.Yvar is not None else None

    def candidates(self) -> Tensor:
        """Points that may matter for the next trials: of the highest outcomes, and the latest.

        Their number is bounded whatever n is.
        """
        n, m = self.Y.shape
        if n <= TOP + LATEST:
            return self.X
        old = self._values[: n - LATEST].nan_to_num(-torch.inf)
        best = [values.topk(TOP // m).indices for values in old.unbind(-1)]
        return self.X[torch.cat([*best, torch.arange(n - LATEST, n)]).unique()]

    def best(self) -> Tensor:
        """The points of the highest outcomes, best first, ``k x d``; of several the latest ones."""
        if self.Y.shape[-1] > 1:
            return self.X[-LATEST:]
        return self.X[self._values[:, 0].topk(min(BEST, len(self.Y))).indices]


def least_learned(Y: Tensor) -> float:
    """The least outcome to learn, of those to be maximised, ``n x 1``: O(n log n).

    Penalties then do not hide what is worth knowing.
    The spread is twice the distance from the median to the upper quartile, so that less than half
    of the outcomes, the bad ones, do not move it: of the first 20 outcomes or of all, whichever is
    larger. The median is the lower of the two. Without a spread there is no limit.
    """
    if len(Y) < FEWEST:
        return -math.inf
    parts = [_centre_and_spread(part[:, 0]) for part in (Y[:EARLY], Y)]
    centre, spread = min(c for c, _ in parts), max(s for _, s in parts)
    limit = centre - SPREADS * spread
    return limit if spread > 0.0 and math.isfinite(limit) else -math.inf


def _centre_and_spread(values: Tensor) -> tuple[float, float]:
    ordered, last = values.sort().values, len(values) - 1
    centre = float(ordered[last // 2])
    return centre, 2.0 * (float(ordered[-(-3 * last // 4)]) - centre)
