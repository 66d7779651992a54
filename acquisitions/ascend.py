"""A batched quasi-Newton search in numpy, for functions whose values and gradients are cheap.

Overheads of torch cost more than the algebra where a function takes tens of microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from bo_stream.mathematics.exact import Array

__all__ = ["ascend"]

FIRST, LONGEST = 0.3, 2.0
"""Longest first step of a search, and later steps, in lengthscales."""
SUFFICIENT = 1e-4
"""Share of the predicted gain that a step must reach (Armijo)."""
LEAST_GAIN = 1e-5
"""A search stops where a step gains less."""
SHORTEST = 1e-4
"""A search stops where a shorter step than this share of the proposed one would be needed."""


def ascend(
    function: Callable[[Array], tuple[Array, Array]],
    starts: Array,
    box: Array,
    unit: Array,
    evaluations: int,
) -> tuple[Array, Array]:
    """Local maxima from some starting points, by projected BFGS for all of them at once.

    Args:
        function: Values and gradients at ``L x d`` points.
        starts: ``R x d`` points inside the bounds.
        box: ``2 x d`` bounds.
        unit: ``d`` typical lengths of the function.
        evaluations: Largest number of calls of the function.

    Returns:
        ``R x d`` points and ``R`` values, at least as high as at the starts.
    """

    def falling(z: Array) -> tuple[Array, Array]:
        values, slopes = function(np.minimum(np.maximum(z * unit, box[0]), box[1]))
        return -values, slopes * -unit

    low, high = box / unit
    z = starts / unit
    f, g = falling(z)
    R, d = z.shape
    found, reached, rows = z.copy(), f.copy(), np.arange(R)
    H, fresh = np.tile(np.eye(d), (R, 1, 1)), np.ones(R, bool)  # fresh: H has no curvature yet
    share, longest = np.ones(R), np.full(R, FIRST)
    step, slope = _steps(H, g, z, low, high, longest)
    for _ in range(evaluations - 1):
        new = np.minimum(np.maximum(z + share[:, None] * step, low), high)
        moved = new - z
        f_new, g_new = falling(new)
        fine = f_new <= f + SUFFICIENT * _inner(slope, moved)
        _update(H, fresh, moved, g_new - g, fine)
        gain = np.where(fine, f - f_new, np.inf)
        f, g = np.where(fine, f_new, f), np.where(fine[:, None], g_new, g)
        z = np.where(fine[:, None], new, z)
        share, longest = np.where(fine, 1.0, 0.25 * share), np.where(fine, LONGEST, longest)
        step, slope = _steps(H, g, z, low, high, longest)
        live = (gain >= LEAST_GAIN) & (share >= SHORTEST)
        if not live.all():
            found[rows], reached[rows] = z, f
            rows, z, f, g, H = rows[live], z[live], f[live], g[live], H[live]
            fresh, share, longest, step, slope = (
                part[live] for part in (fresh, share, longest, step, slope)
            )
            if not len(rows):
                break
    found[rows], reached[rows] = z, f
    return np.minimum(np.maximum(found * unit, box[0]), box[1]), -reached


def _inner(a: Array, b: Array) -> Array:
    return cast(Array, np.einsum("ij,ij->i", a, b))


def _times(H: Array, v: Array) -> Array:
    return (H @ v[:, :, None])[:, :, 0]


def _steps(
    H: Array, g: Array, z: Array, low: Array, high: Array, longest: Array
) -> tuple[Array, Array]:
    """Quasi-Newton steps of limited length in the free coordinates, and the gradients there."""
    blocked = ((z <= low) & (g > 0.0)) | ((z >= high) & (g < 0.0))
    slope = np.where(blocked, 0.0, g)
    step = np.where(blocked, 0.0, -_times(H, slope))
    uphill = _inner(step, slope) >= 0.0
    if uphill.any():
        step[uphill] = -slope[uphill]
    length = np.sqrt(_inner(step, step))
    step *= np.minimum(1.0, longest / np.maximum(length, 1e-300))[:, None]
    return step, slope


def _update(H: Array, fresh: np.ndarray, s: Array, y: Array, fine: np.ndarray) -> None:
    """BFGS's update of the inverse Hessians of the rows whose steps were fine, in place."""
    curved = _inner(s, y)
    good = fine & (curved > 1e-12)
    y = np.where(good[:, None], y, 0.0)  # maybe not finite where a step was not fine
    first = fresh & good
    if first.any():
        size = curved[first] / _inner(y[first], y[first])
        H[first] = size[:, None, None] * np.eye(s.shape[1])
        fresh[first] = False
    rho = np.zeros_like(curved)
    np.divide(1.0, curved, out=rho, where=good)
    Hy = _times(H, y)
    share = rho[:, None] * s
    half = Hy - (0.5 * (1.0 + rho * _inner(y, Hy)))[:, None] * s
    cross = share[:, :, None] * half[:, None, :]
    H -= cross
    H -= cross.transpose(0, 2, 1)
