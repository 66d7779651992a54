"""How fine a grid must be for a kernel, and what a coarse grid loses [MATHS 2.1]."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.grid.kernel import data_space_priors, kernel_along
from bo_stream.mathematics.grid.nodes import DEFAULT_SIZES, Grid
from bo_stream.mathematics.linalg import chol_psd

__all__ = ["coarseness_message", "fitting_sizes", "kernel_lengths", "misfit"]

FINE = 1.2
"""A grid is too coarse if a lengthscale is shorter than this many spacings."""
AIM = 1.5
"""Spacings to a lengthscale on a grid that is chosen: lengthscales may still become shorter."""
FEWEST = 6
"""Fewest nodes a dimension, if other dimensions need more."""
MOST = 4096
"""Most nodes in all."""
TOO_FINE = 2.0
"""A grid has too many nodes from this many times those that fit."""
NATS, LAST = 3.0, 300
"""A grid is too coarse if the last points lose more than this many nats of evidence."""
FALL = 1.0 - math.exp(-0.5)
"""Share by which an RBF kernel has decayed at its lengthscale."""


def kernel_lengths(kernel: Kernel, widths: Tensor, outputs: int) -> Tensor:
    """The lengthscale along each input, ``d``: shortest over outputs, infinite if constant.

    For any stationary kernel, it is the distance at which the kernel has decayed towards its lowest
    value as far as an RBF kernel has at its lengthscale.

    Args:
        kernel: The kernel, with or without one batch dimension of the outputs.
        widths: Widths of the box in which distances are considered, ``d``.
        outputs: Number of outputs.
    """
    t = torch.logspace(-4.0, 2.0, 601, dtype=widths.dtype, device=widths.device)
    t = torch.cat([t.new_zeros(1), t, t.new_tensor([1e6])])
    lengths = []
    for k, width in enumerate(widths):
        values = kernel_along(kernel, k, t * width, len(widths), outputs).detach()
        height, low = values[:, :1], values.amin(-1, keepdim=True)
        fallen = (height - values) / (height - low).clamp_min(1e-12 * height.abs())
        after = (fallen >= FALL).double().argmax(-1, keepdim=True)  # the first, or none: 0
        before = (after - 1).clamp_min(0)
        low_t, high_t = t[before], t[after]
        start, end = fallen.gather(-1, before), fallen.gather(-1, after)
        length = low_t + (high_t - low_t) * (FALL - start) / (end - start)
        length = torch.where((after > 0) & (high_t < 1e6), length * width, math.inf)
        lengths.append(length.amin())
    return torch.stack(lengths)


def fitting_sizes(lengths: Tensor, widths: Tensor) -> list[int]:
    """Nodes of each dimension that fit these lengthscales, at most `MOST` in all.

    No dimension has fewer than by default, unless short lengthscales of others need them.

    Args:
        lengths: Lengthscales, ``d``.
        widths: Widths of the bounds, ``d``.
    """
    cells = (AIM * widths / lengths).tolist()

    def sizes(share: float, fewest: int) -> list[int]:
        return [max(fewest, math.ceil(share * c) + 1) for c in cells]

    for fewest in (DEFAULT_SIZES[len(cells)], FEWEST):
        if math.prod(sizes(1.0, fewest)) <= MOST:
            return sizes(1.0, fewest)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        fits = math.prod(sizes(middle, FEWEST)) <= MOST
        low, high = (middle, high) if fits else (low, middle)
    return sizes(low, FEWEST)


def misfit(kernel: Kernel, grid: Grid, like: Tensor, outputs: int) -> bool:
    """Whether a folded grid is too coarse for a kernel, or has more than twice the nodes that
    fit it.
    """
    widths = grid.widths(like)
    lengths = kernel_lengths(kernel, widths, outputs)
    fitting = fitting_sizes(lengths, widths)
    coarse = bool((lengths < FINE * lengths.new_tensor(grid.step)).any())
    return fitting != list(grid.sizes) and (coarse or grid.m > TOO_FINE * math.prod(fitting))


def coarseness_message(
    kernel: Kernel, grid: Grid, points: tuple[Tensor, Tensor, Tensor], s2: Tensor, c: Tensor
) -> str | None:
    """What a grid loses if it is too coarse for a kernel, as a sentence; else None.

    Args:
        kernel: The kernel.
        grid: The nodes of the folded grid.
        points: Observations: inputs ``n x d``, targets ``o x n``, noise variances before s2, ``s x
            n``. The last few hundred are used; there may be none.
        s2: Noise scales, ``o``.
        c: Constant means, ``o``.
    """
    lengths = kernel_lengths(kernel, grid.widths(s2), len(s2))
    reasons = [
        f"the lengthscale of input {k} is {length:.2g}, and nodes are {step:.2g} apart"
        for k, (length, step) in enumerate(zip(lengths.tolist(), grid.step, strict=True))
        if length < FINE * step
    ]
    lost = _lost_evidence(kernel, grid, points, s2, c)
    if lost > NATS:
        reasons.append(f"an exact GP's evidence of the last points is {lost:.1f} nats higher")
    return "; ".join(reasons).capitalize() + "." if reasons else None


def _lost_evidence(
    kernel: Kernel, grid: Grid, points: tuple[Tensor, Tensor, Tensor], s2: Tensor, c: Tensor
) -> float:
    """Nats by which the kernel's evidence of the last points exceeds the grid's."""
    X, Y, R = points[0][-LAST:], points[1][:, -LAST:], points[2][:, -LAST:]
    outputs, lost = len(Y), 0.0
    if not len(X):
        return lost
    own = kernel(grid.place(X)).to_dense().double().expand(outputs, -1, -1)
    priors = data_space_priors(kernel, grid, X, outputs)
    for i, (K, prior) in enumerate(zip(own, priors, strict=True)):
        D, e = torch.diag(s2[i] * R[min(i, len(R) - 1)]), (Y[i] - c[i]).unsqueeze(-1)
        lost += _log_density(K + D, e) - _log_density(prior.covariance() + D, e)
    return lost


def _log_density(C: Tensor, e: Tensor) -> float:
    """Log density of residuals ``n x 1`` of covariance C, up to a constant."""
    L = chol_psd(C)
    z = torch.linalg.solve_triangular(L, e, upper=False)
    return float(-0.5 * z.square().sum() - L.diagonal().log().sum())
