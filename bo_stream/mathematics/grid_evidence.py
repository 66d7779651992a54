"""Evidence and posterior of a process on a grid, summed over outputs [MATHS 2.3, 2.4, 2.7].

Two routes lead to them. While all observations are held and few, their ``n x n`` covariance is
factorised. Otherwise the statistics are put under a root of the prior covariance of the nodes: for
a product kernel the eigenvectors that matter given the data, else a Cholesky factor.

A `Resolution` says how fine a grid must be, and what a coarse grid loses [MATHS 2.1].
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.errors import StateError, UnsupportedError
from bo_stream.mathematics.autograd import attach
from bo_stream.mathematics.evidence import Factorisation, covariance_evidence, factorise
from bo_stream.mathematics.grid import DEFAULT_SIZES, Grid, GridState, at_points
from bo_stream.mathematics.grid_kernel import (
    CholeskyRoot,
    DataProcess,
    Eigenbasis,
    GridBasis,
    GridKernel,
    NodeProcess,
    Root,
    feature_process,
    features_of,
    kernel_parts,
    prior_covariance,
    whole_roots,
)
from bo_stream.mathematics.kernels import Prior, from_origin, is_product
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.process import Process

__all__ = [
    "LAST",
    "NATS",
    "Resolution",
    "check_size",
    "fitting_sizes",
    "grid_evidence",
    "grid_process",
    "kernel_lengths",
    "takes_data",
]

MOST_NODES = 10_000
"""Nodes of a kernel that is no product over inputs, which needs their matrix."""
MOST_A_SIDE = 1000
"""Nodes of one dimension up to which a larger grid of a product kernel is possible."""
CHEAPER = 0.8
"""Observations per node up to which their covariance costs less than the nodes'."""
FEW_DATA = 300
"""Observations up to which their covariance costs less than choosing eigenvectors. From there on it
costs less while there are fewer observations than eigenvectors."""
MOST_EIGENVECTORS = 4000
TRUNCATED_FROM = 500
"""Nodes from which eigenvectors are left out; on fewer nodes this saves little."""
TOLERATED = 1.5
"""Variance left out, in units of the noise variance of all observations pooled. The evidence is
off by less than a hundredth of this."""


def check_size(grid: Grid, product: bool) -> None:
    """Refuse grids that are too large.

    Raises:
        UnsupportedError: for many nodes and a kernel that is not a product, or many nodes a side.
    """
    if grid.m <= MOST_NODES or (product and max(grid.sizes) <= MOST_A_SIDE):
        return
    raise UnsupportedError(
        f"at most {MOST_NODES} nodes, or a product of one-dimensional kernels on at most "
        f"{MOST_A_SIDE} nodes a side",
        f"{' x '.join(map(str, grid.sizes))} nodes, whose matrices would take "
        f"{8 * grid.m**2 / 2**30:.1f} GiB",
        "Take an RBF kernel, or a ProductKernel of Matern kernels with one active dimension each, "
        "or fewer nodes.",
    )


def grid_evidence(
    state: GridState, prior: Prior, n: int, profile_mean: bool
) -> tuple[Tensor, Tensor | None]:
    """Log evidence, 0-dim, differentiable (once).

    Args:
        state: The state.
        prior: The hyperparameters.
        n: Number of observations.
        profile_mean: Take the optimal constant means instead.

    Returns:
        The evidence, and the optimal constant means (``o``) if they were taken.

    Raises:
        StateError: if too many eigenvectors matter, and not all observations are held.
    """
    c = prior.mean - state.origin
    with torch.no_grad():
        roots = _roots(state, prior, n)
    if roots is None:
        K = prior_covariance(prior.kernel, state.grid, state.buffer.X[:n], len(state.b))
        C, y, _ = _noisy(state, prior, n, K)
        L = chol_psd(C.detach())
        value, best = covariance_evidence(C, L, y, None if profile_mean and n else c)
        # After forgetting, densities have weights as powers (MATHS 2.2), and R is over these.
        logs = state.buffer.R[:, :n].log().sum(-1) - state.ld
        value = value + 0.5 * ((n - state.weight) * (2.0 * math.pi * prior.s2).log() + logs).sum()
        return value, None if best is None else best + state.origin
    sources = _parts(state, prior)
    if len(sources) == 1:
        sources = [state.grid.spread(sources[0])]
    values, means = list[Tensor](), list[Tensor]()
    for i, root in enumerate(roots):
        with torch.no_grad():
            made = _factorised(state, prior, i, root, profile_mean)
            d_s2, d_c, Y = made.gradients()
            gradients = [d_s2, d_c, *root.gradients(Y)]
        tensors = [prior.s2[i], c[i], *(source[i] for source in sources)]
        values.append(attach(made.value(), tensors, gradients))
        means.append(made.mean)
    return torch.stack(values).sum(), torch.stack(means) + state.origin if profile_mean else None


@torch.no_grad()
def grid_process(state: GridState, prior: Prior, n: int, *, moves: bool = False) -> Process:
    """The posterior process.

    Args:
        state: The state.
        prior: The hyperparameters.
        n: Number of observations.
        moves: Whether points of the future may have other places on the grid, so that the process
            must be that of the values at the nodes.
    """
    prior = replace(prior, mean=prior.mean.clone())  # not a view of the parameter
    grid, roots = state.grid, _roots(state, prior, n)
    product = is_product(prior.kernel, grid.dim)
    if roots is None and not (moves and product):
        return _data_process(state, prior, n)
    roots = roots or whole_roots(grid, _parts(state, prior))
    made = [_factorised(state, prior, i, root, False) for i, root in enumerate(roots)]
    factors, h = [part.L for part in made], [part.h for part in made]
    if product:
        features = features_of(grid, cast(Sequence[Eigenbasis], roots))
        return feature_process(features, factors, h, prior.mean)
    R = torch.stack([root.R for root in cast(Sequence[CholeskyRoot], roots)])
    V = torch.linalg.solve_triangular(torch.stack(factors), R.mT, upper=False).mT
    u = (V @ torch.stack(h).unsqueeze(-1)).squeeze(-1)
    return NodeProcess.of(grid, u, V @ V.mT, prior.mean)


# -- roots ---------------------------------------------------------------------------------------


def _parts(state: GridState, prior: Prior) -> list[Tensor]:
    """The kernel on the nodes, as from `kernel_parts`."""
    return kernel_parts(prior.kernel, state.grid, state.b, len(state.b))


def takes_data(state: GridState, n: int, product: bool) -> bool:
    """Whether the covariance of all observations is factorised, which are few and held."""
    few = state.holds_all(n) and n <= CHEAPER * state.grid.m
    return few and (n <= FEW_DATA or not product)


def _roots(state: GridState, prior: Prior, n: int) -> Sequence[Root] | None:
    """A root of each output's prior covariance, or None for the observations' covariance."""
    grid, held, product = state.grid, state.holds_all(n), is_product(prior.kernel, state.grid.dim)
    if takes_data(state, n, product):
        return None
    parts = _parts(state, prior)
    if not product or grid.m < TRUNCATED_FROM:
        return whole_roots(grid, parts)
    ones, bases = state.totals()[2].expand(len(prior.s2)), []
    for s2, one, amplitude, *factors in zip(prior.s2, ones, *parts, strict=True):
        tolerance = float(TOLERATED * s2 / (amplitude * one))
        bases.append(Eigenbasis.chosen(grid, amplitude, factors, tolerance, MOST_EIGENVECTORS))
    r = max(basis.size for basis in bases)
    if (held and n <= CHEAPER * grid.m and n < r) or (held and r > MOST_EIGENVECTORS):
        return None
    if r > MOST_EIGENVECTORS:
        raise StateError(
            f"lengthscales for which at most {MOST_EIGENVECTORS} eigenvectors of the kernel on "
            f"{grid.m} nodes matter, or observations that are all held",
            f"{r} eigenvectors, some {24 * r * r / 2**30:.1f} GiB an evaluation, and {n} "
            "observations, not all held",
            "Bound the lengthscales from below (at about two steps of the grid), take a coarser "
            "grid, or use NodeWISKI.",
        )
    return bases


def _factorised(
    state: GridState, prior: Prior, output: int, root: Root, profile_mean: bool
) -> Factorisation:
    """The factorisation of one output's statistics under a root."""
    c = prior.mean[output] - state.origin[output]
    return factorise(root.under(state.statistics()[output]), prior.s2[output], c, profile_mean)


# -- few observations ----------------------------------------------------------------------------


def _noisy(state: GridState, prior: Prior, n: int, K: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``K + s2 R``, ``o x n x n``; targets counted from the origin and noise, ``o x n``."""
    rows = state.buffer[:n]
    noise = (prior.s2.unsqueeze(-1) * rows.R).expand(rows.Y.shape)
    return K + torch.diag_embed(noise), rows.Y - state.origin.unsqueeze(-1), noise


def _data_process(state: GridState, prior: Prior, n: int) -> Process:
    """The posterior of an exact process with the interpolated kernel; of the values at the nodes
    for a kernel that is no product: O(n m^2).
    """
    grid, parts, X = state.grid, _parts(state, prior), state.buffer.X[:n].clone()
    product = len(parts) > 1
    if product:
        K = prior_covariance(prior.kernel, grid, X, len(state.b))
    else:
        S, W = grid.spread(parts[0]), grid.interpolate(X)
        halves = at_points(S, W)
        K = at_points(halves.mT, W)
    C, y, noise = _noisy(state, prior, n, K)
    L, e = chol_psd(C), y - (prior.mean - state.origin).unsqueeze(-1)
    u = torch.linalg.solve_triangular(L, e.unsqueeze(-1), upper=False)
    if product:
        kernel = GridKernel(grid, parts)
        return DataProcess(kernel, GridBasis(kernel, X, noise), L, None, u.squeeze(-1), prior.mean)
    H = torch.linalg.solve_triangular(L, halves, upper=False).mT
    return NodeProcess.of(grid, (H @ u).squeeze(-1), S - H @ H.mT, prior.mean)


# -- how fine a grid must be ---------------------------------------------------------------------

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
    known, lengths = t[:-1].numpy(force=True), []
    for width, along in zip(widths, torch.diag(widths), strict=True):
        values = from_origin(kernel, t.unsqueeze(-1) * along, outputs).detach()
        height, low = values[:, :1], values.amin(-1, keepdim=True)
        fallen = (height - values) / (height - low).clamp_min(1e-12 * height.abs())
        lowest = fallen.cummax(-1).values.amax(0).numpy(force=True)  # so far, of any output
        lengths.append(width * float(np.interp(FALL, lowest[:-1], known, right=math.inf)))
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
