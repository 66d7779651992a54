"""Maximising functions of moments over a box: cheap starts, few joint steps [MATHS 18.2].

For q points in d inputs:

1. *Overview.* Shifted Sobol points by the value of one point.
2. *Peaks.* The best that are apart from each other, and those of the best means, climb a few steps.
3. *Greedy.* Among peaks and good points sets of q points are built point by point, by the function
   itself, which needs the joint moments of these points once. The best sets that differ go on.
4. *Joint ascent.* The best sets climb together in q d dimensions. A set is given up when it is not
   expected to become the best.

Points that are held fixed, known or pending ones, are part of every set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
import torch
from torch.quasirandom import SobolEngine

from acquisitions.climb import climb
from acquisitions.moments import Criterion
from bo_stream.mathematics.exact import Array
from bo_stream.mathematics.expanded import ExpandedProcess, Sums

__all__ = ["Search", "Target", "apart", "shifted"]

OVERVIEW = 256
"""Number of points of the overview."""
PEAKS, BY_MEAN, STEPS = 12, 2, 5
"""Number of peaks, how many of them start from the best means, and evaluations of their climb."""
POOL, SETS = 64, 8
"""Number of points that sets are built of, and of sets that climb."""
JOINT = 20
"""Evaluations of their climb."""
EVERY, HOPE = 1e9, 3.0
"""Gains that peaks and sets are expected to have at most, in those that their models promise."""
MANY = 12
"""Number of variables beyond which there are twice as many sets: many are local maxima."""
APART = 0.4
"""Distance of peaks in units of the process."""
GAIN = 1e-3
"""A climb ends where less is to be gained, in standard deviations or in logarithms."""
SMALLEST = 1e-12
"""Smallest variance of a point, in squared units of the model's outcome."""


@dataclass(frozen=True)
class Target:
    """What is maximised.

    Attributes:
        criterion: A function of moments; of samples with base samples for all points.
        before: Fixed points in front of those that are searched for, ``r x d``.
        after: Fixed points behind, ``n' x d``.
        sums: Sums over test points, if the criterion takes some.
    """

    criterion: Criterion
    before: Array
    after: Array
    sums: Sums | None = None

    @property
    def held(self) -> Array:
        """All fixed points."""
        return np.concatenate([self.before, self.after])

    @property
    def is_marginal(self) -> bool:
        """Whether a single point has a value in closed form, by its mean and variance."""
        return self.sums is None and not len(self.before) + len(self.after)


@dataclass(frozen=True)
class Search:
    """A search over a box.

    Attributes:
        process: The posterior.
        target: What is maximised.
        bounds: ``2 x d`` raw bounds; only `best` needs them.
        q: Number of points.
    """

    process: ExpandedProcess
    target: Target
    bounds: Array
    q: int

    def best(self) -> tuple[Array, float]:
        """The best points found, ``q x d``, and their value."""
        criterion, d = self.target.criterion, self.bounds.shape[1]
        X = shifted(self.bounds, OVERVIEW, torch.rand(d, dtype=torch.float64).numpy())
        score, mean, variance = self.scored(X)
        gain = GAIN * (1.0 if criterion.logarithmic else math.sqrt(np.median(variance)))
        if self.target.sums is not None:
            gain = GAIN * float(np.ptp(score))
        spread = apart(X / self._unit, score, POOL)
        first = spread[: PEAKS - BY_MEAN]
        first += [i for i in np.argsort(-mean)[:BY_MEAN].tolist() if i not in first]
        peaks, heights = self._climbed(self.of_one, X[first], STEPS, gain, EVERY)
        pool = np.concatenate([peaks, X[spread[: POOL - len(peaks)]]])
        sets = pool[self._greedy(pool, heights)].reshape(-1, self.q * d)
        found, reached = self._climbed(self.of_all, sets, JOINT, gain, HOPE)
        return found[reached.argmax()].reshape(self.q, -1), float(reached.max())

    def scored(self, X: Array) -> tuple[Array, Array, Array]:
        """About the values of `of_one` at ``p x d`` points; their means and variances."""
        mean, variance = self.process.marginals(X)
        variance = np.maximum(variance, self._smallest)
        if self.target.is_marginal:
            return self.target.criterion.marginal(mean, variance)[0], mean, variance
        held = len(self.target.held)
        value = self.target.criterion.few.extended(np.arange(held)[None], *self._moments(X))
        return value[0, held:], mean, variance

    @property
    def _unit(self) -> Array:
        return np.minimum(self.process.unit, self.bounds[1] - self.bounds[0])

    @property
    def _smallest(self) -> float:
        return SMALLEST * self.process.scale**2

    def _climbed(
        self, function: Any, starts: Array, evaluations: int, tolerance: float, hope: float
    ) -> tuple[Array, Array]:
        times = starts.shape[1] // self.bounds.shape[1]
        bounds, unit = np.tile(self.bounds, times), np.tile(self._unit, times)
        return climb(function, starts, bounds, unit, evaluations, tolerance, hope)

    # -- values ----------------------------------------------------------------------------------

    def of_one(self, X: Array) -> tuple[Array, Array]:
        """Values and gradients of single points, ``L x d``, beside the fixed ones."""
        if not self.target.is_marginal:
            none = self.bounds[:0]
            return self._of_sets(self.target.criterion.few, X[:, None], self.target.held, none)
        moments = self.process.moments(X[:, None])
        variance = np.maximum(moments.covariance[:, 0, 0], self._smallest)
        value, by_mean, by_variance = self.target.criterion.marginal(moments.mean[:, 0], variance)
        return value, moments.pull(by_mean[:, None], by_variance[:, None, None])[:, 0]

    def of_all(self, X: Array) -> tuple[Array, Array]:
        """Values and gradients of sets, ``L x q d``."""
        sets = X.reshape(len(X), self.q, -1)
        return self._of_sets(self.target.criterion, sets, self.target.before, self.target.after)

    def _of_sets(
        self, criterion: Criterion, X: Array, before: Array, after: Array
    ) -> tuple[Array, Array]:
        sets = X
        if len(before) + len(after):
            fixed = [np.broadcast_to(points, (len(X), *points.shape)) for points in (before, after)]
            sets = np.concatenate([fixed[0], X, fixed[1]], 1)
        moments = self.process.moments(sets, self.target.sums)
        value, slopes = criterion.value(moments.mean, moments.covariance, moments.sums)
        pulled = moments.pull(*slopes)[:, len(before) : len(before) + X.shape[1]]
        return value, pulled.reshape(len(X), -1)

    def _moments(self, X: Array) -> tuple[Array, Array, Array | None]:
        """Joint moments of the fixed points and others, each of them once."""
        X = np.concatenate([self.target.held, X])
        moments = self.process.moments(X[None], self.target.sums)
        sums = None if moments.sums is None else moments.sums[0]
        return moments.mean[0], moments.covariance[0], sums

    # -- starts ----------------------------------------------------------------------------------

    def _greedy(self, pool: Array, heights: Array) -> np.ndarray:
        """Good sets of q points of a pool, ``R x q`` rows of it.

        Args:
            pool: The points, ``M x d``.
            heights: Values of the first ones, one of which begins each set.
        """
        more = 2 if pool.shape[1] * self.q > MANY else 1
        held, first = len(self.target.held), np.argsort(-heights)[: more * SETS, None]
        moments = self._moments(pool)
        chosen = np.hstack([np.tile(np.arange(held), (len(first), 1)), held + first])
        for _ in range(self.q - 1):
            value = self.target.criterion.few.extended(chosen, *moments)
            value[:, :held] = -np.inf
            np.put_along_axis(value, chosen, -np.inf, 1)
            chosen = _branches(value, chosen, more * SETS)
        return chosen[:, held:] - held


def shifted(bounds: Array, count: int, shift: Array) -> Array:
    """The first points of a Sobol sequence in a box, ``count x d``, shifted by ``d`` widths."""
    low, high = bounds
    return low + (high - low) * ((_sobol(len(low), count) + shift) % 1.0)


@cache
def _sobol(d: int, count: int) -> Array:
    return SobolEngine(d, scramble=True, seed=0).draw(count, dtype=torch.float64).numpy()


def apart(Z: Array, score: Array, count: int) -> list[int]:
    """Rows of the best scores, none close to a better one while there are such."""
    order = np.argsort(-score)
    Z = Z[order]
    squares = np.einsum("nd,nd->n", Z, Z)
    far = squares[:, None] + squares - 2.0 * (Z @ Z.T) >= APART**2
    free, rest, chosen = np.ones(len(Z), bool), np.ones(len(Z), bool), list[int]()
    for i in range(len(Z)):
        if free[i] and len(chosen) < count:
            chosen.append(i)
            free &= far[i]
    rest[chosen] = False
    chosen += np.flatnonzero(rest)[: count - len(chosen)].tolist()
    return cast(list[int], order[chosen].tolist())


def _branches(value: Array, chosen: np.ndarray, count: int) -> np.ndarray:
    """The best different sets with a point more, from the two best ones of each."""
    two = np.argpartition(-value, 1, 1)[:, :2]
    order = np.argsort(-np.take_along_axis(value, two, 1), None)
    grown = np.hstack([np.repeat(chosen, 2, 0), two.reshape(-1, 1)])[order]
    different = dict[frozenset[int], list[int]]()
    for row in grown.tolist():
        different.setdefault(frozenset(row), row)
    return np.array([*different.values()][:count])
