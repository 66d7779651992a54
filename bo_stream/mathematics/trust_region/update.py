"""How batches move, resize, close and open a trust region (MATHS 14.5).

A batch is a fixed number of observations, in whatever pieces they are told. Pure functions from
state to state; numbers are those of MATHS 14.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from bo_stream.mathematics.trust_region.state import (
    Evaluations,
    Geometry,
    TrustRegion,
    TrustRegionState,
)
from bo_stream.mathematics.trust_region.window import WINDOW, clipped, window_of

__all__ = ["absorbed", "begun", "fit_due", "fitted", "recentred"]

Centre = Callable[[Evaluations], tuple[int, float]]
"""The row of a window with the best posterior mean, and that mean."""

GAIN, LONGEST, PATIENCE = 1e-3, 1.6, 2
"""A success gains more than ``GAIN`` sd of the window; so many failures halve the region."""
STEP, MIX = 3.0, 0.2
"""After a success log L moves by ``MIX`` towards the log of ``STEP`` times the step's extent."""
SMALL, SMALLEST = 2.0**-6, 2.0**-20
"""Sizes below which a region that stalls starts again, and a polished one ends."""
STALL, STALL_GAIN, CYCLES, CYCLE_GAIN = 8, 1e-3, 3, 1e-2
"""Batches and gain (in initial sd) of a stall; stalls in a row that gain less than ``CYCLE_GAIN``
end the search of a region.
"""
GROWTH = 1.15
"""Growth of the number of points after which hyperparameters are fitted again."""


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
    settled = state.settled
    state = _late(state, rows, centre_of is None)
    if not state.region.begun and len(state.closed.value):
        rows = rows.at(~state.closed.holds(rows.X))
    pending = state.pending.joined(rows)
    state = replace(state, window=settled, pending=pending.at([]))
    while len(pending) >= batch_size:
        batch, pending = pending.at(slice(0, batch_size)), pending.at(slice(batch_size, None))
        state = _completed(state, batch, geometry(state.region), centre_of)
    return replace(state, pending=pending, window=state.window.joined(pending))


def _late(state: TrustRegionState, rows: Evaluations, exact: bool) -> TrustRegionState:
    """Credit better points of an earlier region that are told after its end, if exact."""
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
    """The state, with nothing pending, after a complete batch."""
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
        closed = state.closed.given(region.centre, half, region.value)
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
            region = region.changed(size=0.8, failures=0.0, fitted_size=math.inf)
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
