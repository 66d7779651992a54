"""Local maxima from many points at once, inside a box or a feasible set, in numpy (MATHS 18.2).

Where a function takes tens of microseconds, the overheads of torch cost more than the algebra: all
starting points climb together, one call of the function for all of them. Each has an inverse
Hessian and a step length of its own, and none ever gets worse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from bo_stream.mathematics.exact import Array

__all__ = ["Bounded", "climb"]

FIRST, LONGEST = 0.25, 1.0
"""Largest coordinate of the first steps of a climb, and that of later ones at most, in units."""
SUFFICIENT = 1e-4
"""Share of the gain promised by the slope from which a step is accepted (Armijo)."""
LEAST, MOST = 0.1, 0.5
"""Least and largest factor by which a step that was not accepted is shortened."""
SHORTEST = 1e-4
"""A climb ends where a shorter step than this share of the proposed one would be needed."""
HOPE = 10.0
"""The gain that is expected at most, unless it is given."""
TINY = 1e-300


@dataclass(frozen=True)
class Bounded:
    """Where points may be, and the steps that stay inside; subclasses have other sets.

    Attributes:
        low, high: Bounds, ``D``.
    """

    low: Array
    high: Array

    def free(self, X: Array, G: Array) -> Array:
        """Gradients ``L x D`` at feasible points, 0 in coordinates that lead out of the bounds."""
        out = ((self.low >= X) & (G < 0.0)) | ((self.high <= X) & (G > 0.0))
        return np.where(out, 0.0, G)

    def along(self, X: Array, P: Array) -> Array:
        """Steps ``L x D`` from feasible points, without what leads outside."""
        return self.stepped(X, P) - X

    def stepped(self, X: Array, P: Array) -> Array:
        """The feasible points at the end of such steps, or of parts of them."""
        return np.minimum(np.maximum(X + P, self.low), self.high)


def climb(
    function: Callable[..., tuple[Array, Array]],
    starts: Array,
    bounds: Array | Bounded,
    unit: Array,
    evaluations: int,
    tolerance: float,
    hope: float = HOPE,
    of: np.ndarray | None = None,
) -> tuple[Array, Array]:
    """Local maxima from some starting points, by projected BFGS for all of them at once.

    A call of the function is accompanied by O(R D^2) operations, about .1 ms in all.

    Args:
        function: Values ``L`` and gradients ``L x D`` at ``L x D`` points.
        starts: ``R x D`` feasible points.
        bounds: ``2 x D``, or another feasible set.
        unit: ``D`` typical lengths of the function.
        evaluations: Largest number of calls of the function.
        tolerance: A climb ends where its model of the function promises a smaller gain.
        hope: The gain that is expected at most, in gains that the model of the function promises:
            climbs end that cannot be expected to lead to the highest value.
        of: The function that each start climbs, where there are several: ``R`` numbers. Those of
            the points are then passed to ``function``, too.

    Returns:
        ``R x D`` points and ``R`` values, at least as high as at the starts.
    """
    within = Bounded(*bounds) if isinstance(bounds, np.ndarray) else bounds
    rows, labels = np.arange(len(starts)), np.zeros(len(starts), np.int64) if of is None else of

    def evaluated(x: Array) -> tuple[Array, Array]:
        values, slopes = function(x) if of is None else function(x, labels[rows])
        return values, slopes * unit

    x, (f, g) = starts, evaluated(starts)
    found, reached, best = x.copy(), f.copy(), np.full(labels.max() + 1, -np.inf)
    H, share = np.tile(np.eye(x.shape[1]), (len(x), 1, 1)), np.ones(len(x))
    longest = np.full(len(x), FIRST)  # until H has a curvature
    step, gain = _steps(within, unit, H, g, x, longest)
    for _ in range(evaluations - 1):
        new = within.stepped(x, share[:, None] * step)
        f_new, g_new = evaluated(new)
        moved = (new - x) / unit
        along = _inner(g, moved)
        better = f_new >= f + SUFFICIENT * along
        _update(H, longest, moved, g - g_new)
        if better.all():
            x, f, g, share = new, f_new, g_new, np.ones(len(f))
        else:
            # where a step fails, the vertex of the parabola through the slope and both values
            vertex = 0.5 * along / np.maximum(along + f - f_new, TINY)
            share = np.where(better, 1.0, share * np.fmin(np.fmax(vertex, LEAST), MOST))
            f, x = np.where(better, f_new, f), np.where(better[:, None], new, x)
            g = np.where(better[:, None], g_new, g)
        found[rows], reached[rows] = x, f
        step, gain = _steps(within, unit, H, g, x, longest)
        live = (gain > tolerance) & (share > SHORTEST)
        np.maximum.at(best, labels[rows], f)
        live &= f + hope * gain >= best[labels[rows]]
        if not live.all():
            if not live.any():
                break
            rows, share, longest = rows[live], share[live], longest[live]
            x, f, g, H, step = x[live], f[live], g[live], H[live], step[live]
    return found, reached


def _inner(a: Array, b: Array) -> Array:
    return cast(Array, np.einsum("ij,ij->i", a, b))


def _times(H: Array, v: Array) -> Array:
    return (H @ v[:, :, None])[:, :, 0]


def _steps(
    within: Bounded, unit: Array, H: Array, g: Array, x: Array, longest: Array
) -> tuple[Array, Array]:
    """Quasi-Newton steps of limited length, and the gains that the models promise for them."""
    own = within.free(x, g)
    p = _times(H, own) * (own != 0.0)
    far = np.maximum(np.abs(p).max(1), TINY)
    cut = np.where(longest == FIRST, FIRST / far, np.minimum(1.0, longest / far))
    step = within.along(x, cut[:, None] * p * unit)
    slope = _inner(step / unit, own)
    lost = slope <= 0.0  # along a bound H may lead down: the gradient does not
    if lost.any():
        steepest = FIRST * own / np.maximum(np.abs(own).max(1, keepdims=True), TINY)
        step[lost] = within.along(x, steepest * unit)[lost]
        slope = _inner(step / unit, own)
    return step, slope * (1.0 - 0.5 * np.minimum(1.0, cut))


def _update(H: Array, longest: Array, s: Array, y: Array) -> None:
    """BFGS's update of the inverse Hessians of the negative functions, in place."""
    sy, size = _inner(s, y), _inner(y, y)
    curved = (sy > 1e-10 * size) & (sy > 0.0)
    young = curved & (longest == FIRST)
    if young.any():
        H[young] *= (sy[young] / size[young])[:, None, None]
        longest[young] = LONGEST
    rho = curved / np.where(curved, sy, 1.0)  # none where the function is not concave
    Hy = _times(H, y)
    share = rho[:, None] * s
    half = Hy - (0.5 * (1.0 + rho * _inner(y, Hy)))[:, None] * s
    cross = share[:, :, None] * half[:, None, :]
    H -= cross + cross.transpose(0, 2, 1)
