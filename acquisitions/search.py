"""Maximising an analytic acquisition function by one batched quasi-Newton search (MATHS 13.2).

All starting points advance together: an evaluation is one call for all of them, so that the cost
of a call, not of a point, decides.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from bo_stream.errors import ShapeError

__all__ = ["WithSlopes", "by_autograd", "maximise"]

WithSlopes = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Values ``R`` and their gradients ``R x d`` at points ``R x d``."""

FIRST, LONGEST = 0.3, 2.0
"""Longest first step, and later steps, in units of the scales."""
SUFFICIENT = 1e-4
"""Share of the predicted gain that a step must reach (Armijo)."""
DONE = 1e-5
"""A search stops where a step gains less."""
SHORTEST = 1e-4
"""A search stops where a shorter step than this share of the proposed one would be needed."""


def maximise(
    function: WithSlopes,
    starts: Tensor,
    bounds: Tensor,
    scales: Tensor | None = None,
    evaluations: int = 25,
) -> tuple[Tensor, Tensor]:
    """Local maxima from some starting points, by projected BFGS for all of them at once.

    Args:
        function: Values and gradients; `by_autograd` makes one of BoTorch's acquisition functions.
        starts: ``R x d`` points inside the bounds.
        bounds: ``2 x d``.
        scales: ``d`` typical lengths of the function; the bounds' widths by default.
        evaluations: Largest number of calls of the function.

    Returns:
        ``R x d`` points and ``R`` values, at least as high as at the starts.

    Raises:
        ShapeError: if starts and bounds differ in dimension.
    """
    if starts.ndim != 2 or bounds.shape != (2, starts.shape[-1]):
        raise ShapeError(
            "starts `R x d` and bounds `2 x d`",
            f"{tuple(starts.shape)} and {tuple(bounds.shape)}",
            "Give one row per starting point.",
        )
    low, high = bounds.detach().double().numpy(force=True)
    unit = high - low if scales is None else scales.detach().double().numpy(force=True)
    at = starts.detach().double().numpy(force=True)

    def falling(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        X = np.clip(z * unit, low, high)
        values, slopes = function(torch.from_numpy(X).to(starts))
        return (
            -values.detach().double().numpy(force=True),
            -slopes.detach().double().numpy(force=True) * unit,
        )

    z, f = _descend(falling, at / unit, low / unit, high / unit, evaluations)
    return torch.from_numpy(np.clip(z * unit, low, high)).to(starts), torch.from_numpy(-f).to(
        starts
    )


def by_autograd(acquisition: Callable[[Tensor], Tensor]) -> WithSlopes:
    """Values and gradients of an acquisition function of BoTorch, at one candidate at a time.

    Args:
        acquisition: From ``R x 1 x d`` to ``R``.
    """

    def function(X: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            points = X.detach().clone().requires_grad_()
            values = acquisition(points.unsqueeze(-2))
            (slopes,) = torch.autograd.grad(values.sum(), points)
        return values.detach(), slopes

    return function


def _descend(
    function: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    z: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    evaluations: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise from every row of ``z``; rows that are done are not evaluated again."""
    z, (f, g) = z.copy(), function(z)
    R, d = z.shape
    H = np.broadcast_to(np.eye(d), (R, d, d)).copy()
    fresh, share = np.ones(R, bool), np.ones(R)
    step, slope = _steps(H, g, z, low, high, np.full(R, FIRST))
    live = np.arange(R)
    for _ in range(evaluations - 1):
        new = np.clip(z[live] + share[live, None] * step[live], low, high)
        moved = new - z[live]
        f_new, g_new = function(new)
        fine = f_new <= f[live] + SUFFICIENT * np.einsum("ij,ij->i", slope[live], moved)
        rows = live[fine]
        if len(rows):
            moved, change, gain = moved[fine], g_new[fine] - g[rows], f[rows] - f_new[fine]
            _update(H, fresh, rows, moved, change)
            z[rows], f[rows], g[rows], share[rows] = new[fine], f_new[fine], g_new[fine], 1.0
            longest = np.full(len(rows), LONGEST)
            step[rows], slope[rows] = _steps(H[rows], g[rows], z[rows], low, high, longest)
            share[rows[gain < DONE]] = 0.0
        share[live[~fine]] *= 0.25
        live = live[share[live] >= SHORTEST]
        if not len(live):
            break
    return z, f


def _steps(
    H: np.ndarray,
    g: np.ndarray,
    z: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    longest: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Quasi-Newton steps of limited length in the free coordinates, and the gradients there."""
    held = ((z <= low) & (g > 0.0)) | ((z >= high) & (g < 0.0))
    slope = np.where(held, 0.0, g)
    step = np.where(held, 0.0, -np.einsum("rij,rj->ri", H, slope))
    uphill = np.einsum("ij,ij->i", step, slope) >= 0.0
    step[uphill] = -slope[uphill]
    length = np.maximum(np.sqrt(np.einsum("ij,ij->i", step, step)), 1e-300)
    return step * np.minimum(1.0, longest / length)[:, None], slope


def _update(
    H: np.ndarray, fresh: np.ndarray, rows: np.ndarray, s: np.ndarray, y: np.ndarray
) -> None:
    """BFGS's update of the inverse Hessians of some rows, in place."""
    curved = np.einsum("ij,ij->i", s, y)
    good = curved > 1e-12
    rows, s, y, curved = rows[good], s[good], y[good], curved[good, None, None]
    if not len(rows):
        return
    first = fresh[rows]
    if first.any():
        size = curved[first] / np.einsum("ij,ij->i", y[first], y[first])[:, None, None]
        H[rows[first]] = size * np.eye(s.shape[1])
        fresh[rows] = False
    Hy = np.einsum("rij,rj->ri", H[rows], y)
    inner = np.einsum("ij,ij->i", y, Hy)[:, None, None]
    outer, cross = s[:, :, None] * s[:, None, :], Hy[:, :, None] * s[:, None, :]
    H[rows] += (1.0 + inner / curved) * outer / curved - (cross + cross.transpose(0, 2, 1)) / curved
