"""The state of a trust-region stream: all points of the region, its window, its progress.

Outcomes are maximised. Points are in transformed coordinates; sizes and steps of the region are
fractions of the box, stretched by the lengthscales.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bo_stream.mathematics.shapes import nested, shaped

__all__ = [
    "FIRST_SIZE",
    "ClosedRegions",
    "Geometry",
    "TrustRegion",
    "Evaluations",
    "TrustRegionState",
]

FIRST_SIZE = 0.8
"""Side of a new region, as a fraction of the box (MATHS 14.5)."""


@dataclass(frozen=True)
class Geometry:
    """What lengths mean: the box and the kernel's lengthscales, in transformed coordinates.

    Attributes:
        low: Lower corner of the box, ``d``.
        width: Its sides, ``d``.
        lengthscales: ``d``.
        shape: Sides of a region of size one, ``d``: proportional to the lengthscales, with the
            volume of the box.
    """

    low: Tensor
    width: Tensor
    lengthscales: Tensor
    shape: Tensor

    @classmethod
    def of(cls, box: Tensor, lengthscales: Tensor | None) -> Geometry:
        """In a box ``2 x d``; without lengthscales those of the box."""
        low, width = box[0], box[1] - box[0]
        if lengthscales is None:
            return cls(low, width, width, width)
        unit = (lengthscales / width).log().mean().exp()
        return cls(low, width, lengthscales, lengthscales / unit)


@dataclass(frozen=True)
class Evaluations:
    """Observations: points, outcomes, and noise variances before any learned scale."""

    X: Tensor = shaped("r d")
    Y: Tensor = shaped("r")
    R: Tensor = shaped("r", "positive")

    @classmethod
    def none(cls, like: Tensor, dim: int) -> Evaluations:
        """No observations, on the device of ``like``."""
        return cls(like.new_zeros(0, dim), like.new_zeros(0), like.new_zeros(0))

    def __len__(self) -> int:
        return self.X.shape[0]

    def at(self, rows: Any) -> Evaluations:
        """A copy of some of them, by a mask, indices or a slice."""
        return Evaluations(self.X[rows].clone(), self.Y[rows].clone(), self.R[rows].clone())

    def joined(self, other: Evaluations) -> Evaluations:
        """These, then others; the same object if there are no others."""
        if not len(other):
            return self
        pairs = (self.X, other.X), (self.Y, other.Y), (self.R, other.R)
        return Evaluations(*(torch.cat(pair) for pair in pairs))


@dataclass(frozen=True)
class TrustRegion:
    """The current region and its progress.

    Attributes:
        centre: ``d``.
        value: Outcome at the centre; under noise its posterior mean.
        best: Best outcome observed in the region.
        size: Its side L, as a fraction of the box.
        failures: Failed batches in a row.
        cycles: Stalls in a row that gained little (MATHS 14.5).
        cycle_best: Best outcome at the last stall.
        spread: Scale of the initial outcomes.
        scale: Standard deviation of the window's outcomes.
        fitted: Completed observations at the last fit of the hyperparameters; 0 before the first,
            while the region's initial design is incomplete.
        fitted_size: The size at that fit; infinite asks for another.
        fits: Number of fits.
        history: Best outcome after each of the last batches, ``h``.
    """

    centre: Tensor = shaped("d")
    value: Tensor = shaped("", "extended")
    best: Tensor = shaped("", "extended")
    size: Tensor = shaped("", "positive")
    failures: Tensor = shaped("", "not negative")
    cycles: Tensor = shaped("", "not negative")
    cycle_best: Tensor = shaped("", "extended")
    spread: Tensor = shaped("", "not negative")
    scale: Tensor = shaped("", "not negative")
    fitted: Tensor = shaped("", "not negative")
    fitted_size: Tensor = shaped("", "extended")
    fits: Tensor = shaped("", "not negative")
    history: Tensor = shaped("h", "extended")

    @classmethod
    def new(cls, centre: Tensor) -> TrustRegion:
        """A region without observations."""

        def number(value: float) -> Tensor:
            return centre.new_tensor(value)

        return cls(
            centre,
            value=number(-math.inf),
            best=number(-math.inf),
            size=number(FIRST_SIZE),
            failures=number(0.0),
            cycles=number(0.0),
            cycle_best=number(-math.inf),
            spread=number(0.0),
            scale=number(0.0),
            fitted=number(0.0),
            fitted_size=number(math.inf),
            fits=number(0.0),
            history=centre.new_zeros(0),
        )

    def changed(self, **numbers: float) -> TrustRegion:
        """The region with other numbers."""
        return replace(self, **{name: self.size.new_tensor(v) for name, v in numbers.items()})

    @property
    def begun(self) -> bool:
        """Whether its initial design is complete and its hyperparameters were fitted."""
        return bool(self.fitted > 0)


@dataclass(frozen=True)
class ClosedRegions:
    """Results of earlier regions: centres, half sides, and values there."""

    X: Tensor = shaped("k d")
    half: Tensor = shaped("k d", "positive")
    value: Tensor = shaped("k")

    def given(self, x: Tensor, half: Tensor, value: Tensor) -> ClosedRegions:
        """With one more."""
        pairs = (self.X, x), (self.half, half), (self.value, value)
        return ClosedRegions(*(torch.cat([old, new.unsqueeze(0)]) for old, new in pairs))

    @property
    def best(self) -> float:
        """The best of their values; -inf without any."""
        return float(self.value.max()) if len(self.value) else -math.inf

    def holds(self, X: Tensor) -> Tensor:
        """Which of the points ``n x d`` are inside one of them, ``n``."""
        inside = (X.unsqueeze(1) - self.X).abs() <= self.half
        return inside.all(-1).any(-1)


@dataclass(frozen=True)
class TrustRegionState:
    """All that a trust-region stream keeps.

    Attributes:
        archive: Completed observations of the current region.
        pending: Observations of the batch that is not complete yet.
        window: The local process's data: a choice from the archive with clipped outcomes, then the
            pending observations.
        region: The current region.
        closed: Earlier regions.
    """

    archive: Evaluations = nested()
    pending: Evaluations = nested()
    window: Evaluations = nested()
    region: TrustRegion = nested()
    closed: ClosedRegions = nested()

    @classmethod
    def empty(cls, dim: int, like: Tensor) -> TrustRegionState:
        """Before any data."""
        none, zeros = Evaluations.none(like, dim), like.new_zeros(0, dim)
        closed = ClosedRegions(zeros, zeros.clone(), like.new_zeros(0))
        return cls(none, none.at([]), none.at([]), TrustRegion.new(like.new_zeros(dim)), closed)

    @property
    def settled(self) -> Evaluations:
        """The window without the pending observations."""
        return self.window.at(slice(0, len(self.window) - len(self.pending)))

    @property
    def seen(self) -> int:
        """Number of observations in the current region."""
        return len(self.archive) + len(self.pending)

    def results(self, means: Tensor | None) -> tuple[Tensor, Tensor]:
        """Points ``n x d`` and values ``n`` of all regions to recommend from.

        Args:
            means: Posterior means at the window's points; None: the observations themselves.
        """
        rows = self.archive.joined(self.pending)
        X, Y = (rows.X, rows.Y) if means is None else (self.window.X, means)
        return torch.cat([self.closed.X, X]), torch.cat([self.closed.value, Y])

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> TrustRegionState:
        """The state for targets ``(y - shift) / factor``, with known noise scaled to match."""
        a, b = shift.reshape(()), factor.reshape(())

        def rows(old: Evaluations) -> Evaluations:
            return Evaluations(old.X, (old.Y - a) / b, old.R / b.square() if known_noise else old.R)

        r = self.region
        region = replace(
            r,
            value=(r.value - a) / b,
            best=(r.best - a) / b,
            cycle_best=(r.cycle_best - a) / b,
            spread=r.spread / b,
            scale=r.scale / b,
            history=(r.history - a) / b,
        )
        closed = replace(self.closed, value=(self.closed.value - a) / b)
        archive, pending, window = rows(self.archive), rows(self.pending), rows(self.window)
        return TrustRegionState(archive, pending, window, region, closed)
