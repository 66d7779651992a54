"""How fine a grid must be for a kernel, and what a coarse grid loses [MATHS 2.1]."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.grid import DEFAULT_SIZES, Grid
from bo_stream.mathematics.grid_kernel import prior_covariance
from bo_stream.mathematics.kernels import kernel_along
from bo_stream.mathematics.linalg import chol_psd

__all__ = ["LAST", "NATS", "Resolution", "fitting_sizes", "kernel_lengths"]

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
GROWN, LONGEST = 1.5, 1000
"""Factor by which a dimension is refined at a time, and nodes up to which it is."""
NATS, LAST = 3.0, 300
"""A grid is too coarse if the last points lose more than this many nats of evidence."""
STRETCHES, SMALL = (1.0, 2.0, 4.0), 1e-4
"""Factors by which lengthscales are tried if the noise is below this share of the variance."""
AIMED = 0.3
"""Nats that a grid which is chosen may lose: the points may still become more."""
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
    fine = 10**12  # parts of the share of these cells that is found by bisection
    more = bisect_right(range(fine), MOST, key=lambda i: math.prod(sizes(i / fine, FEWEST)))
    return sizes((more - 1) / fine, FEWEST)


@dataclass(frozen=True)
class Resolution:
    """What grids resolve of a kernel, and of the evidence of some observations.

    Attributes:
        kernel: The kernel, with or without one batch dimension of the outputs.
        X: Coordinates of the observations on the grids, ``n x k``; there may be none.
        Y: Targets minus the constant means, ``o x n``.
        D: Noise variances, ``o x n``.
    """

    kernel: Kernel
    X: Tensor
    Y: Tensor
    D: Tensor

    @torch.no_grad()
    def lost(self, grid: Grid) -> float:
        """Nats by which the best evidence of an exact process exceeds the grid's.

        Noise far below the interpolation's errors shortens the lengthscales that are learned, until
        the grid explains the data. So if the noise is small, longer lengthscales are tried too.
        """
        if not len(self.X):
            return 0.0
        best = -math.inf
        for f in self._stretches:
            origin, step = (tuple(v / f for v in values) for values in (grid.origin, grid.step))
            nodes = Grid(origin, step, grid.sizes, grid.folded)
            K = prior_covariance(self.kernel, nodes, self.X / f, len(self.Y))
            best = max(best, self._density(K))
        return self._exact - best

    @cached_property
    def _exact(self) -> float:
        exact = [self.kernel(self.X / f).to_dense().double() for f in self._stretches]
        return max(self._density(K.expand(len(self.Y), -1, -1)) for K in exact)

    @cached_property
    def _stretches(self) -> tuple[float, ...]:
        """Factors by which lengthscales are tried."""
        variance = self.kernel(self.X[:1], diag=True).double().reshape(-1)
        return STRETCHES if bool((self.D.median(-1).values < SMALL * variance).any()) else (1.0,)

    def _density(self, covariances: Sequence[Tensor] | Tensor) -> float:
        """Log density of the targets, up to a constant, from the covariances of the values.

        If the noise is small, it is the highest over amplitudes of values and noise together.
        """
        total, n = 0.0, len(self.X)
        for K, y, noise in zip(covariances, self.Y, self.D, strict=True):
            L = chol_psd(K + torch.diag(noise))
            z = torch.linalg.solve_triangular(L, y.unsqueeze(-1), upper=False)
            square = float(z.square().sum())
            if len(self._stretches) > 1:
                square = min(square, n + n * math.log(max(square, 1e-300) / n))
            total -= 0.5 * square + float(L.diagonal().log().sum())
        return total

    def outdated(self, grid: Grid, suited: Grid) -> bool:
        """Whether a grid is too coarse, or has more than twice the nodes of one that suits."""
        too_fine = grid.m > TOO_FINE * suited.m
        return suited.sizes != grid.sizes and (too_fine or self.message(grid) is not None)

    def message(self, grid: Grid) -> str | None:
        """What a grid loses if it is too coarse, as a sentence; else None."""
        lengths = kernel_lengths(self.kernel, grid.widths(self.X), len(self.Y)).tolist()
        reasons = [
            f"the lengthscale of input {k} is {length:.2g}, and nodes are {step:.2g} apart"
            for k, (length, step) in enumerate(zip(lengths, grid.step, strict=True))
            if length < FINE * step
        ]
        lost = self.lost(grid)
        if lost > NATS:
            reasons.append(f"an exact GP's evidence of the last points is {lost:.1f} nats higher")
        text = "; ".join(reasons)
        return f"{text[0].upper()}{text[1:]}." if reasons else None

    def suited(self, widths: Tensor, covering: Callable[[list[int]], Grid]) -> Grid:
        """The smallest grid that fits the lengthscales and loses little of the evidence.

        While it loses too much, the dimension in which more nodes gain most gets half as many
        again, as far as `MOST` nodes in all allow.

        Args:
            widths: Widths of the bounds, ``k``.
            covering: The grid of some sizes over the bounds.
        """
        lengths = kernel_lengths(self.kernel, widths, len(self.Y))
        grid = covering(fitting_sizes(lengths, widths))
        lost = self.lost(grid)
        while lost > AIMED:
            finer = [covering(sizes) for sizes in _finer(grid.sizes)]
            if not finer:
                break
            losses = [self.lost(each) for each in finer]
            lost = min(losses)
            grid = finer[losses.index(lost)]
        return grid


def _finer(sizes: Sequence[int]) -> list[list[int]]:
    """Sizes with half as many nodes again in one dimension, as far as the limits allow."""
    finer, nodes = [], math.prod(sizes)
    for k, size in enumerate(sizes):
        more = min(math.ceil(GROWN * size), LONGEST, MOST // (nodes // size))
        if more > size:
            finer.append([*sizes[:k], more, *sizes[k + 1 :]])
    return finer
