"""A trust region: its observations, its window, how batches move it, and samples in it [MATHS 14].

Outcomes are maximised. Points are in transformed coordinates; sizes and steps of the region are
fractions of the box, stretched by the lengthscales. A batch is a fixed number of observations, in
whatever pieces they come. Moves are pure functions from state to state; a batch costs O(n d) in the
n observations of the region, and nothing else depends on n. Candidates and samples of the local
process are float32; the factor is float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from bo_stream.mathematics.autograd import lasting_property
from bo_stream.mathematics.exact import Solved
from bo_stream.mathematics.radial import FARTHEST
from bo_stream.mathematics.shapes import Rows, nested, shaped

__all__ = [
    "WINDOW",
    "ClosedRegions",
    "Geometry",
    "Means",
    "RegionDraws",
    "TrustRegion",
    "TrustRegionState",
    "absorbed",
    "candidates",
    "design_completed",
    "fit_due",
    "fitted",
    "refined",
    "window_of",
    "worth_refining",
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
    """

    low: Tensor
    width: Tensor
    lengthscales: Tensor

    @property
    def shape(self) -> Tensor:
        """Sides of a region of size one, ``d``: proportional to the lengthscales, with the volume
        of the box.
        """
        return self.lengthscales / (self.lengthscales / self.width).log().mean().exp()


@dataclass(frozen=True)
class TrustRegion:
    """The current region and its progress.

    Attributes:
        centre: The best observation; under noise the point of the window with the largest
            posterior mean, ``d``.
        size: Its side L, as a fraction of the box.
        failures: Failed batches in a row.
        cycles: Stalls in a row that gained little (MATHS 14.5).
        cycle_best: Best outcome at the last stall.
        spread: Scale of the initial outcomes.
        fitted: Completed observations at the last fit of the hyperparameters; 0 before the first,
            while the region's initial design is incomplete.
        fitted_size: The size at that fit; infinite asks for another.
        fits: Number of fits.
        history: Best outcome after each of the last batches, ``h``.
    """

    centre: Tensor = shaped("d")
    size: Tensor = shaped("", "positive")
    failures: Tensor = shaped("", "not negative")
    cycles: Tensor = shaped("", "not negative")
    cycle_best: Tensor = shaped("", "extended")
    spread: Tensor = shaped("", "not negative")
    fitted: Tensor = shaped("", "not negative")
    fitted_size: Tensor = shaped("", "extended")
    fits: Tensor = shaped("", "not negative")
    history: Tensor = shaped("h", "extended")

    @classmethod
    def new(cls, centre: Tensor) -> TrustRegion:
        """A region without observations."""
        numbers = FULL, 0.0, 0.0, -math.inf, 0.0, 0.0, math.inf, 0.0
        return cls(*[centre, *map(centre.new_tensor, numbers), centre.new_zeros(0)])

    def changed(self, **values: float | Tensor) -> TrustRegion:
        """The region with other values."""
        t = self.size
        changes = {k: torch.as_tensor(v, dtype=t.dtype, device=t.device) for k, v in values.items()}
        return replace(self, **changes)

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

    archive: Rows = nested(n="a")
    pending: Rows = nested(n="q")
    window: Rows = nested(n="w")
    region: TrustRegion = nested()
    closed: ClosedRegions = nested()

    @classmethod
    def empty(cls, dim: int) -> TrustRegionState:
        """Before any data."""
        zeros = torch.zeros(0, dim, dtype=torch.float64)
        closed = ClosedRegions(zeros, zeros.clone(), zeros.new_zeros(0))
        archive, pending, window = (Rows.empty(dim) for _ in range(3))
        return cls(archive, pending, window, TrustRegion.new(zeros.new_zeros(dim)), closed)

    @lasting_property
    def rows(self) -> Rows:
        """What the local process is conditioned on: the window, then the pending observations."""
        return self.window.joined(self.pending) if len(self.pending) else self.window

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> TrustRegionState:
        """The state for targets ``(y - shift) / factor``, with known noise scaled to match."""
        a, b, r = shift.reshape(()), factor.reshape(()), self.region
        best, history = (r.cycle_best - a) / b, (r.history - a) / b
        region = replace(r, spread=r.spread / b, cycle_best=best, history=history)
        closed = replace(self.closed, value=(self.closed.value - a) / b)
        every = self.archive, self.pending, self.window
        archive, pending, window = (t.rescaled(shift, factor, known_noise) for t in every)
        return TrustRegionState(archive, pending, window, region, closed)


# -- window --------------------------------------------------------------------------------------


def window_of(archive: Rows, newest: int, centre: Tensor, geometry: Geometry, size: float) -> Rows:
    """The window of a region, in the order of the archive, its outcomes clipped from below.

    Up to 512 points all are in it. If more than that lie within ``L shape`` of the centre: the best
    quarter, the newest quarter, the rest at random from a stream that the number of points decides.
    Otherwise the nearest, and always the newest batch. The least outcome is
    ``median - 2 (max - median)``.

    Args:
        archive: The points of the region, at least one.
        newest: Size of the newest batch.
        centre: ``d``.
        geometry: Lengths.
        size: The region's L.
    """
    n, away = len(archive), archive.X - centre
    fresh = torch.arange(n, device=away.device) >= n - min(newest, WINDOW)
    inside = (away.abs() <= size * geometry.shape).all(-1) | fresh
    if int(inside.sum()) <= WINDOW:
        distance = (away / geometry.lengthscales).square().sum(-1).masked_fill(fresh, -1.0)
        chosen = distance.topk(min(n, WINDOW), largest=False).indices
    else:
        places, quarter = inside.nonzero().squeeze(-1), WINDOW // 4
        best = places[archive.y[places].topk(quarter).indices]
        taken = torch.cat([best, places[-quarter:]]).unique()
        others = places[~torch.isin(places, taken)]
        generator = torch.Generator().manual_seed(n)
        some = torch.randperm(len(others), generator=generator)[: WINDOW - len(taken)]
        chosen = torch.cat([taken, others[some.to(others.device)]])
    rows = archive[chosen.sort().values]
    least = 3.0 * rows.y.median() - 2.0 * rows.y.max()
    return replace(rows, Y=rows.Y.clamp(min=float(least)))


# -- moves ---------------------------------------------------------------------------------------


Means = Callable[[Rows], Tensor]
"""Posterior means at the points of a window, ``n``."""


def absorbed(
    state: TrustRegionState, rows: Rows, batch_size: int, geometry: Geometry, means: Means | None
) -> TrustRegionState:
    """The state after more observations: every batch that becomes complete moves the region.

    Args:
        state: The state before.
        rows: The observations.
        batch_size: Observations in a batch.
        geometry: Lengths.
        means: Under noise; None if evaluations are exact.
    """
    if not state.region.begun:  # rows inside of earlier regions may only better their results
        closed = state.closed
        inside = ((rows.X.unsqueeze(1) - closed.X).abs() <= closed.half).all(-1)
        if means is None:
            best, row = rows.y.unsqueeze(-1).where(inside, -math.inf).max(0)
            X = torch.where((best > closed.value).unsqueeze(-1), rows.X[row], closed.X)
            value = torch.maximum(best, closed.value)
            state = replace(state, closed=replace(closed, X=X, value=value))
        rows = rows[~inside.any(-1)]
    rows = state.pending.joined(rows)
    complete = len(rows) // batch_size * batch_size
    for start in range(0, complete, batch_size):
        state = _completed(state, rows[start : start + batch_size], geometry, means)
    return replace(state, pending=rows[torch.arange(len(rows)) >= complete])


def _completed(
    state: TrustRegionState, batch: Rows, geometry: Geometry, means: Means | None
) -> TrustRegionState:
    """The state after a complete batch, whatever is pending."""
    begun = state.region.begun
    region = _cycled(_resized(state, batch, geometry)) if begun else state.region
    state = replace(state, archive=state.archive.joined(batch), region=region)
    if means is None or not begun:
        state = _recentred(state, None)
    archive, region = state.archive, state.region
    best, size = archive.y.max(), float(region.size)
    polished = means is None and bool((best >= state.closed.value).all())
    if size < (SMALLEST if polished else SMALL) and float(region.cycles) >= CYCLES:
        value = best if means is None else means(state.window).max()
        result = region.centre, max(size, 2.0 * SMALL) * geometry.shape, value
        old = state.closed.X, state.closed.half, state.closed.value
        pairs = zip(old, result, strict=True)
        closed = ClosedRegions(*(torch.cat([a, b.unsqueeze(0)]) for a, b in pairs))
        new = TrustRegion.new(region.centre)
        return TrustRegionState(archive[[]], archive[[]], state.window, new, closed)
    window = window_of(archive, len(batch), region.centre, geometry, size)
    return _recentred(replace(state, window=window), means)


def design_completed(state: TrustRegionState, geometry: Geometry) -> TrustRegionState:
    """The state once the initial design is complete; its hyperparameters are fitted next."""
    archive = state.archive.joined(state.pending)
    state = _recentred(replace(state, archive=archive, pending=archive[[]]), None)
    spread = min(float(archive.y.std(correction=0)), float(archive.y.max() - archive.y.median()))
    region = state.region.changed(spread=spread, fitted=float(len(archive)))
    window = window_of(archive, len(archive), region.centre, geometry, float(region.size))
    return replace(state, window=window, region=region)


def _recentred(state: TrustRegionState, means: Means | None) -> TrustRegionState:
    """The state with the region at its best observation or, with `Means` and once it has begun, at
    the best of the window's.
    """
    if means is None or not state.region.begun:
        centre = state.archive.X[state.archive.y.argmax()]
    else:
        centre = state.window.X[means(state.window).argmax()]
    return replace(state, region=replace(state.region, centre=centre.clone()))


def fitted(state: TrustRegionState, means: Means | None) -> TrustRegionState:
    """The state after a fit of the hyperparameters."""
    region, count = state.region, float(len(state.archive))
    size, fits = float(region.size), float(region.fits) + 1.0
    region = region.changed(fitted=count, fitted_size=size, fits=fits)
    return _recentred(replace(state, region=region), means)


def fit_due(state: TrustRegionState, batch_size: int) -> bool:
    """Whether hyperparameters should be fitted: a new region, 1.15 times the points, L changed.

    The design of a new region is complete with a batch, and at least two points for each input.
    """
    region, n = state.region, len(state.archive)
    if not region.begun:
        return n + len(state.pending) >= max(2 * state.archive.X.shape[-1], batch_size)
    size, fitted_size = float(region.size), float(region.fitted_size)
    changed = size <= fitted_size / 2.0 or size >= 2.0 * fitted_size
    return changed or n >= GROWTH * float(region.fitted)


def _resized(state: TrustRegionState, batch: Rows, geometry: Geometry) -> TrustRegion:
    """The region after a success or a failure."""
    region, best, top = state.region, float(state.archive.y.max()), int(batch.y.argmax())
    size, failures = float(region.size), float(region.failures) + 1.0
    reached, scale = float(batch.y[top]), float(state.window.y.std(correction=0))
    if reached > best + GAIN * scale:
        extent = float(((batch.X[top] - region.centre) / geometry.shape).abs().max())
        target = math.log(max(2.0 * STEP * extent, 1e-12))
        size = min(LONGEST, math.exp((1.0 - MIX) * math.log(size) + MIX * target))
        failures = 0.0
    elif failures >= PATIENCE:
        size, failures = size / 2.0, 0.0
    now = region.history.new_tensor([max(best, reached)])
    history = torch.cat([region.history, now])[-STALL - 1 :]
    return region.changed(size=size, failures=failures, history=history)


def _cycled(region: TrustRegion) -> TrustRegion:
    """The region after a check for a stall: at full size again, or about to end."""
    history, spread = region.history, float(region.spread)
    best, size, cycles = float(history[-1]), float(region.size), float(region.cycles)
    gained = best > float(region.cycle_best) + CYCLE_GAIN * spread
    stalled = len(history) > STALL and best - float(history[0]) < STALL_GAIN * spread
    if size < SMALL and stalled and cycles < CYCLES:
        cycles = 1.0 if gained else cycles + 1.0
        region = region.changed(history=history[:0], cycles=cycles, cycle_best=best)
        if cycles < CYCLES:
            region = region.changed(size=FULL, failures=0.0, fitted_size=math.inf)
    elif size > SMALL and cycles >= CYCLES and gained:
        region = region.changed(cycles=0.0)
    return region


# -- samples -------------------------------------------------------------------------------------

MOVED = (1.0, 3.0, 8.0, 20.0)
"""Expected numbers of moved coordinates, one for each candidate at random."""
FEATURES = 512
"""Random features of a sample of the prior."""
ROUNDS, TRIES, MOVED_AGAIN = 2, 20, 3.0
"""Rounds of a refinement, points tried in each, and the coordinates that these move."""
WIDEST, HALVINGS = 0.1, 4.0
"""The largest standard deviation of such a move, in sides of the region; most halvings of it."""
ROUGH = 0.01
"""Ratio of noise to amplitude above which samples are not refined."""
FEW_INPUTS = 30
"""Number of inputs above which they are not either."""
BLOCK = 256
"""Rows of a kernel matrix that are formed at once: they stay in the processor's cache."""


def candidates(centre: Tensor, geometry: Geometry, size: float, count: int) -> Tensor:
    """Steps from the centre to candidates, ``count x d``: uniform in the region, masked.

    Each coordinate of a candidate moves with the candidate's own probability, at least one does.

    Args:
        centre: ``d``.
        geometry: Lengths.
        size: The region's L.
        count: Number of candidates.
    """
    d, (low, high) = len(centre), _limits(centre, geometry, size)
    steps = low + torch.rand(count, d, dtype=torch.float64).to(centre) * (high - low)
    kinds = torch.tensor([min(1.0, k / d) for k in MOVED])
    moved = torch.rand(count, d) < kinds[torch.randint(len(MOVED), (count, 1))]
    moved[torch.arange(count), torch.randint(d, (count,))] = True
    return steps * moved.to(centre.device)


def _limits(centre: Tensor, geometry: Geometry, size: float) -> tuple[Tensor, Tensor]:
    """The least and largest steps within the region and the box, ``d`` each."""
    half = 0.5 * size * geometry.shape
    low = torch.maximum(-half, geometry.low - centre)
    return low, torch.minimum(half, geometry.low + geometry.width - centre)


@dataclass(frozen=True)
class RegionDraws:
    """Samples of the local process, in units of the square root of the amplitude, without the mean.

    A sample is one of the prior on 512 random features plus the correction of Matheron's rule,
    ``k(., X) C^-1 (y - m - f(X) - noise)``, for Matern-5/2. float32.

    Attributes:
        lengthscales: ``d``.
        points: The window's points over the lengthscales, ``n x d``.
        frequencies: ``d x 512``.
        phases: 512.
        weights: Of the features and of the window's points, ``(512 + n) x q``.
    """

    lengthscales: Tensor
    points: Tensor
    frequencies: Tensor
    phases: Tensor
    weights: Tensor

    @classmethod
    def of(cls, factor: Solved, y: Tensor, points: Tensor, lengthscales: Tensor, q: int) -> Self:
        """Draw q samples: O(n^2 q).

        Args:
            factor: Of the window's covariance.
            y: The window's outcomes, ``n``.
            points: The window's points relative to the centre, ``n x d``.
            lengthscales: ``d``.
            q: Number of samples.
        """
        f32, unit = torch.float32, factor.variance**0.5
        Z = (points / lengthscales).to(f32)
        # the spectral density of Matern-5/2 is a multivariate t of five degrees of freedom
        chi = torch.randn(5, FEATURES).square().mean(0).to(Z)
        omega = torch.randn(Z.shape[1], FEATURES).to(Z) * chi.rsqrt()
        phases = 2.0 * math.pi * torch.rand(FEATURES).to(Z)
        weights = torch.randn(FEATURES, q).to(Z) * math.sqrt(2.0 / FEATURES)
        prior = torch.addmm(phases, Z, omega).cos_() @ weights
        sd = torch.as_tensor(factor.noise).sqrt().to(Z).unsqueeze(-1)
        noise = torch.randn(len(y), q).to(Z) * sd
        gap = ((y - factor.mean) / unit).unsqueeze(-1) - (prior + noise).double()
        correction = torch.cholesky_solve(gap, torch.from_numpy(factor.L).to(gap)).to(f32)
        return cls(lengthscales, Z, omega, phases, torch.cat([weights, correction]))

    def at(self, steps: Tensor) -> Tensor:
        """All samples at steps from the centre ``count x d``, ``count x q``.

        O(count (n + 512) (d + q)).
        """
        W = (steps / self.lengthscales).to(torch.float32)
        return torch.cat([self._rows(part) @ self.weights for part in W.split(BLOCK)])

    def each_at(self, steps: Tensor) -> Tensor:
        """Every sample at steps of its own ``q x k x d``, ``q x k``: O(q k (n + 512) d)."""
        W = (steps / self.lengthscales).to(torch.float32)
        some, values = max(1, BLOCK // W.shape[1]), []
        for part, weights in zip(W.split(some), self.weights.mT.split(some), strict=True):
            rows = self._rows(part.flatten(0, 1)).unflatten(0, part.shape[:2])
            values.append((rows @ weights.unsqueeze(-1)).squeeze(-1))
        return torch.cat(values)

    def _rows(self, W: Tensor) -> Tensor:
        """Features, and Matern-5/2 with the window's points, of points over the lengthscales:
        ``p x (512 + n)``.

        Distances by one matrix product are accurate to rounding times the squared norms.
        """
        features = torch.addmm(self.phases, W, self.frequencies).cos_()
        squares = torch.addmm(self.points.square().sum(-1), W, self.points.mT, alpha=-2.0)
        squares.add_(W.square().sum(-1, keepdim=True))
        r = squares.mul_(5.0).clamp_(0.0, FARTHEST).sqrt_()
        e = r.neg().exp_()
        return torch.cat([features, e.addcmul_(r.addcmul_(r, r, value=1.0 / 3.0), e)], -1)


def worth_refining(factor: Solved, d: int) -> bool:
    """Whether samples of the local process are known well enough in their details."""
    return d <= FEW_INPUTS and float(np.max(factor.noise)) <= ROUGH


def refined(
    draws: RegionDraws,
    steps: Tensor,
    values: Tensor,
    centre: Tensor,
    geometry: Geometry,
    size: float,
) -> Tensor:
    """Better steps for every sample, near those given, ``q x d``: the best of a few small moves.

    Args:
        draws: The samples.
        steps: One for each sample, ``q x d``.
        values: The samples there, ``q``.
        centre: ``d``.
        geometry: Lengths.
        size: The region's L.
    """
    (q, d), (low, high) = steps.shape, _limits(centre, geometry, size)
    rows, longest = torch.arange(q), WIDEST * size * geometry.shape
    for _ in range(ROUNDS):
        moves = torch.randn(q, TRIES, d, dtype=torch.float64)
        moves *= torch.exp2(-HALVINGS * torch.rand(q, TRIES, 1, dtype=torch.float64))
        moves *= torch.rand(q, TRIES, d) < MOVED_AGAIN / d
        tried = steps.unsqueeze(1) + moves.to(centre) * longest
        tried = torch.minimum(torch.maximum(tried, low), high)
        found, best = draws.each_at(tried).max(1)
        better = found > values
        steps = torch.where(better.unsqueeze(-1), tried[rows, best], steps)
        values = torch.where(better, found, values)
    return steps
