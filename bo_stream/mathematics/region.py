"""A trust region: its observations, its window, and how batches move it [MATHS 14.1, 14.2, 14.5].

Outcomes are maximised. Points are in transformed coordinates; sizes and steps of the region are
fractions of the box, stretched by the lengthscales. A batch is a fixed number of observations, in
whatever pieces they come. Moves are pure functions from state to state; a batch costs O(n d) in the
n observations of the region, and nothing else depends on n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bo_stream.mathematics.autograd import lasting_property
from bo_stream.mathematics.shapes import nested, shaped

__all__ = [
    "WINDOW",
    "Centre",
    "Evaluations",
    "Geometry",
    "TrustRegion",
    "TrustRegionState",
    "absorbed",
    "begun",
    "fit_due",
    "fitted",
    "recentred",
    "window_of",
]

FULL = 0.8
"""Side of a new region, as a fraction of the box."""
WINDOW = 512
"""Largest number of points in a window; the pending ones are in addition."""
GAIN, LONGEST, PATIENCE = 1e-3, 1.6, 2
"""A success gains more than ``GAIN`` sd of the window; so many failures halve the region."""
STEP, MIX = 3.0, 0.2
"""After a success log L moves by ``MIX`` towards the log of ``STEP`` times the step's extent."""
SMALL, SMALLEST = 2.0**-6, 2.0**-20
"""Sizes below which a region that stalls starts again, and a polished one ends."""
STALL, STALL_GAIN, CYCLES, CYCLE_GAIN = 8, 1e-3, 3, 1e-2
"""Batches and gain (in initial sd) of a stall; stalls in a row that gain less than ``CYCLE_GAIN``
end the search of a region."""
GROWTH = 1.15
"""Growth of the number of points after which hyperparameters are fitted again."""


# -- state ---------------------------------------------------------------------------------------


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
            size=number(FULL),
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

    def with_one(self, x: Tensor, half: Tensor, value: Tensor) -> ClosedRegions:
        """With one more region."""
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
        window: A choice from the archive with clipped outcomes.
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

    @lasting_property
    def rows(self) -> Evaluations:
        """What the local process is conditioned on: the window, then the pending observations."""
        return self.window.joined(self.pending)

    @property
    def seen(self) -> int:
        """Number of observations in the current region."""
        return len(self.archive) + len(self.pending)

    def results(self, means: Tensor | None) -> tuple[Tensor, Tensor]:
        """Points ``n x d`` and values ``n`` of all regions to recommend from.

        Args:
            means: Posterior means at the points of `rows`; None: the observations themselves.
        """
        rows = self.archive.joined(self.pending)
        X, Y = (rows.X, rows.Y) if means is None else (self.rows.X, means)
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


# -- window --------------------------------------------------------------------------------------


def window_of(
    archive: Evaluations, newest: int, centre: Tensor, geometry: Geometry, size: float
) -> Evaluations:
    """The window of a region, its outcomes clipped, in the order of the archive.

    Up to 512 points all are in it. If more than that lie within ``L shape`` of the centre: the best
    quarter, the newest quarter, the rest at random from a stream that the number of points decides.
    Otherwise the nearest, and always the newest batch.

    Args:
        archive: The points of the region.
        newest: Size of the newest batch.
        centre: ``d``.
        geometry: Lengths.
        size: The region's L.
    """
    n = len(archive)
    if n <= WINDOW:
        return clipped(archive.at(slice(None)))
    away = archive.X - centre
    fresh = torch.zeros(n, dtype=torch.bool, device=away.device)
    fresh[n - min(newest, WINDOW) :] = True
    inside = (away.abs() <= size * geometry.shape).all(-1) | fresh
    if int(inside.sum()) <= WINDOW:
        distance = (away / geometry.lengthscales).square().sum(-1).masked_fill(fresh, -1.0)
        chosen = distance.topk(WINDOW, largest=False).indices
    else:
        places, quarter = inside.nonzero().squeeze(-1), WINDOW // 4
        best = places[archive.Y[places].topk(quarter).indices]
        taken = torch.cat([best, places[-quarter:]]).unique()
        others = places[~torch.isin(places, taken)]
        generator = torch.Generator().manual_seed(n)
        some = torch.randperm(len(others), generator=generator)[: WINDOW - len(taken)]
        chosen = torch.cat([taken, others[some.to(others.device)]])
    return clipped(archive.at(chosen.sort().values))


def clipped(rows: Evaluations) -> Evaluations:
    """The rows with outcomes of at least ``median - 2 (max - median)``."""
    if not len(rows):
        return rows
    middle = rows.Y.median()
    return Evaluations(rows.X, rows.Y.clamp(min=float(3.0 * middle - 2.0 * rows.Y.max())), rows.R)


# -- moves ---------------------------------------------------------------------------------------


Centre = Callable[[Evaluations], tuple[int, float]]
"""The row of a window with the best posterior mean, and that mean."""


def absorbed(
    state: TrustRegionState,
    rows: Evaluations,
    batch_size: int,
    geometry: Callable[[TrustRegion], Geometry],
    centre_of: Centre | None,
) -> TrustRegionState:
    """The state after more observations: every batch that becomes complete moves the region.

    Args:
        state: The state before.
        rows: The observations.
        batch_size: Observations in a batch.
        geometry: Lengths in a region.
        centre_of: Under noise; None if evaluations are exact.
    """
    state = _late(state, rows, centre_of is None)
    if not state.region.begun and len(state.closed.value):
        rows = rows.at(~state.closed.holds(rows.X))
    pending = state.pending.joined(rows)
    while len(pending) >= batch_size:
        batch, pending = pending.at(slice(0, batch_size)), pending.at(slice(batch_size, None))
        state = _completed(state, batch, geometry(state.region), centre_of)
    return replace(state, pending=pending)


def _late(state: TrustRegionState, rows: Evaluations, exact: bool) -> TrustRegionState:
    """Credit better points of an earlier region that come after its end, if exact."""
    closed = state.closed
    if state.region.begun or not exact:
        return state
    for x, y in zip(rows.X, rows.Y, strict=True):
        inside = ((x - closed.X).abs() <= closed.half).all(-1)
        better = inside & (closed.value < y)
        if bool(better.any()):
            X = torch.where(better.unsqueeze(-1), x, closed.X)
            closed = replace(closed, X=X, value=torch.where(better, y, closed.value))
    return replace(state, closed=closed)


def _completed(
    state: TrustRegionState, batch: Evaluations, geometry: Geometry, centre_of: Centre | None
) -> TrustRegionState:
    """The state after a complete batch, whatever is pending."""
    archive, region = state.archive.joined(batch), state.region
    if not region.begun:
        region = _at_best(region, archive)
        window = state.window.joined(batch)
        if not len(state.closed.value):
            window = window_of(archive, len(batch), region.centre, geometry, float(region.size))
        return replace(state, archive=archive, region=region, window=_last(window))
    region = _cycled(_resized(region, batch, geometry))
    if centre_of is None:
        region = _at_best(region, archive)
    else:
        region = region.changed(best=max(float(region.best), float(batch.Y.max())))
    polished = centre_of is None and float(region.value) >= state.closed.best
    end = SMALLEST if polished else SMALL
    if float(region.size) < end and float(region.cycles) >= CYCLES:
        half = max(float(region.size), 2.0 * SMALL) * geometry.shape
        closed = state.closed.with_one(region.centre, half, region.value)
        empty = archive.at([])
        return TrustRegionState(
            empty, empty.at([]), state.window, TrustRegion.new(region.centre), closed
        )
    window = window_of(archive, len(batch), region.centre, geometry, float(region.size))
    state = replace(state, archive=archive, window=window, region=region)
    return recentred(state, centre_of)


def begun(state: TrustRegionState, geometry: Geometry) -> TrustRegionState:
    """The state once the initial design is complete; its hyperparameters are fitted next."""
    archive = state.archive.joined(state.pending)
    region = _at_best(state.region, archive)
    spread = min(_sd(archive.Y), float(region.best - archive.Y.median()))
    region = region.changed(spread=spread, fitted=float(len(archive)))
    window = window_of(archive, len(archive), region.centre, geometry, float(region.size))
    state = replace(state, archive=archive, pending=archive.at([]), window=window, region=region)
    return recentred(state, None)


def recentred(state: TrustRegionState, centre_of: Centre | None) -> TrustRegionState:
    """The state under the current hyperparameters: scale of the window and, under noise, centre."""
    region = state.region.changed(scale=_sd(state.window.Y))
    if centre_of is not None:
        row, mean = centre_of(state.window)
        region = replace(region, centre=state.window.X[row].clone()).changed(value=mean)
    return replace(state, region=region)


def fitted(state: TrustRegionState) -> TrustRegionState:
    """The state after a fit of the hyperparameters."""
    region, count = state.region, float(len(state.archive))
    size, fits = float(region.size), float(region.fits) + 1.0
    return replace(state, region=region.changed(fitted=count, fitted_size=size, fits=fits))


def fit_due(state: TrustRegionState, batch_size: int) -> bool:
    """Whether hyperparameters should be fitted: a new region, 1.15 times the points, L changed.

    The design of a new region is complete with a batch, and at least two points for each input.
    """
    region = state.region
    if not region.begun:
        return state.seen >= max(2 * state.archive.X.shape[-1], batch_size)
    size, fitted_size = float(region.size), float(region.fitted_size)
    grown = len(state.archive) >= GROWTH * float(region.fitted)
    return grown or size <= fitted_size / 2.0 or size >= 2.0 * fitted_size


def _resized(region: TrustRegion, batch: Evaluations, geometry: Geometry) -> TrustRegion:
    """The region's size after a success or a failure."""
    size, top = float(region.size), int(batch.Y.argmax())
    if float(batch.Y[top]) > float(region.best + GAIN * region.scale):
        extent = float(((batch.X[top] - region.centre) / geometry.shape).abs().max())
        target = math.log(max(2.0 * STEP * extent, 1e-12))
        size = min(LONGEST, math.exp((1.0 - MIX) * math.log(size) + MIX * target))
        failures = 0.0
    else:
        failures = float(region.failures) + 1.0
        if failures >= PATIENCE:
            size, failures = size / 2.0, 0.0
    best = max(float(region.best), float(batch.Y[top]))
    history = torch.cat([region.history, region.best.new_tensor([best])])[-STALL - 1 :]
    region = replace(region, history=history)
    return region.changed(best=best, size=size, failures=failures)


def _cycled(region: TrustRegion) -> TrustRegion:
    """The region after a check for a stall: at full size again, or about to end."""
    best, size, cycles = float(region.best), float(region.size), float(region.cycles)
    history, spread = region.history, float(region.spread)
    gained = best > float(region.cycle_best) + CYCLE_GAIN * spread
    stalled = len(history) > STALL and best - float(history[0]) < STALL_GAIN * spread
    if size < SMALL and stalled and cycles < CYCLES:
        cycles = 1.0 if gained else cycles + 1.0
        region = replace(region, history=history[:0].clone())
        region = region.changed(cycles=cycles, cycle_best=best)
        if cycles < CYCLES:
            region = region.changed(size=FULL, failures=0.0, fitted_size=math.inf)
    elif size > SMALL and cycles >= CYCLES and gained:
        region = region.changed(cycles=0.0)
    return region


def _at_best(region: TrustRegion, archive: Evaluations) -> TrustRegion:
    """The region centred at its best observation."""
    if not len(archive):
        return region
    top = int(archive.Y.argmax())
    y = archive.Y[top].clone()
    return replace(region, centre=archive.X[top].clone(), value=y, best=y)


def _last(rows: Evaluations) -> Evaluations:
    """The newest rows that fit in a window."""
    return clipped(rows.at(slice(max(0, len(rows) - WINDOW), None)))


def _sd(Y: Tensor) -> float:
    """Standard deviation of outcomes."""
    return float(Y.std(correction=0)) if len(Y) else 0.0
