"""Evidence and posterior of a process on a grid, summed over outputs [MATHS 2.3, 2.4, 2.7].

Two routes lead to them. While all observations are held and few, their ``n x n`` covariance is
factorised. Otherwise the statistics are put under a root of the prior covariance of the nodes: for
a product kernel the eigenvectors that matter given the data, else a Cholesky factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.errors import StateError, UnsupportedError
from bo_stream.mathematics.autograd import attach, lasting_property, leaf, pullback
from bo_stream.mathematics.evidence import Factorisation, covariance_evidence, factorise
from bo_stream.mathematics.grid import Grid, GridFeatures, GridState, NodeFeatures
from bo_stream.mathematics.grid_kernel import (
    CholeskyRoot,
    Eigenbasis,
    GridKernel,
    Root,
    covariance_with_nodes,
    features_of,
    kernel_parts,
    prior_covariance,
    whole_roots,
)
from bo_stream.mathematics.joint import Moments
from bo_stream.mathematics.kernels import is_product
from bo_stream.mathematics.linalg import chol_psd, flushed
from bo_stream.mathematics.process import FeatureBasis, FeaturePath, KernelBasis, Path, Process

__all__ = ["check_size", "dropped_share", "grid_evidence", "grid_process"]

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
SEPARABLE = 0.5
"""Features per node up to which products over dimensions cost less than values at the nodes."""
DENSE_NODES = 4096
"""Nodes up to which features may be given by their values there."""


@dataclass(frozen=True)
class GridPrior:
    """The current hyperparameters, differentiable.

    Attributes:
        kernel: The kernel, with or without one batch dimension of the outputs.
        s2: Noise scales, ``o``.
        mean: Constant prior means, ``o``.
    """

    kernel: Kernel
    s2: Tensor
    mean: Tensor


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
    state: GridState, prior: GridPrior, n: int, profile_mean: bool
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
        C, y = _data_covariance(state, prior, n)
        L = chol_psd(C.detach())
        value, best = covariance_evidence(C, L, y, None if profile_mean and n else c)
        return value + _forgotten(state, n, prior.s2), None if best is None else best + state.origin
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
def grid_process(state: GridState, prior: GridPrior, n: int, *, moves: bool = False) -> Process:
    """The posterior process.

    Args:
        state: The state.
        prior: The hyperparameters.
        n: Number of observations.
        moves: Whether points of the future may have other places on the grid, so that the process
            must be that of the values at the nodes.
    """
    prior = replace(prior, mean=prior.mean.clone())  # not a view of the parameter
    roots = _roots(state, prior, n)
    if roots is None and not moves:
        return _data_process(state, prior, n)
    grid, roots = state.grid, roots or whole_roots(state.grid, _parts(state, prior))
    made = [_factorised(state, prior, i, root, False) for i, root in enumerate(roots)]
    many = sum(root.size for root in roots) > SEPARABLE * grid.m and grid.m <= DENSE_NODES
    if many or isinstance(roots[0], CholeskyRoot):
        F = [root.whitened(part.L) for root, part in zip(roots, made, strict=True)]
        features: GridFeatures = NodeFeatures(grid, flushed(torch.cat(F, -1)))
        return _on_features(features, None, [part.h for part in made], prior.mean)
    L = torch.block_diag(*(part.L for part in made)).expand(len(made), -1, -1)
    return _on_features(features_of(roots), L, [part.q for part in made], prior.mean)


def _on_features(
    features: GridFeatures, L: Tensor | None, u: Sequence[Tensor], mean: Tensor
) -> Process:
    """The posterior on each output's features, side by side; u are their coefficients' means."""
    scale = torch.block_diag(*(torch.ones_like(part).unsqueeze(0) for part in u))
    coefficients = torch.block_diag(*(part.unsqueeze(0) for part in u))
    return Process(None, FeatureBasis(features, scale), None, L, coefficients, mean)


@torch.no_grad()
def dropped_share(state: GridState, prior: GridPrior, n: int) -> float:
    """Largest share of the prior variance at a node that an eigenbasis leaves out; else 0."""
    roots = _roots(state, prior, n) or []
    bases = [root for root in roots if isinstance(root, Eigenbasis)]
    return max((float(basis.dropped()) for basis in bases), default=0.0)


# -- roots ---------------------------------------------------------------------------------------


def _parts(state: GridState, prior: GridPrior) -> list[Tensor]:
    """The kernel on the nodes, as from `kernel_parts`."""
    return kernel_parts(prior.kernel, state.grid, state.b, len(state.b))


def _roots(state: GridState, prior: GridPrior, n: int) -> Sequence[Root] | None:
    """A root of each output's prior covariance, or None for the observations' covariance."""
    grid, held, product = state.grid, state.holds_all(n), is_product(prior.kernel, state.grid.dim)
    few = held and n <= CHEAPER * grid.m
    if few and (n <= FEW_DATA or not product):
        return None
    parts = _parts(state, prior)
    if not product or grid.m < TRUNCATED_FROM:
        return whole_roots(grid, parts)
    ones, bases = state.totals()[2].expand(len(prior.s2)), []
    for s2, one, amplitude, *factors in zip(prior.s2, ones, *parts, strict=True):
        tolerance = float(TOLERATED * s2 / (amplitude * one))
        bases.append(Eigenbasis.chosen(grid, amplitude, factors, tolerance, MOST_EIGENVECTORS))
    r = max(basis.size for basis in bases)
    if (few and n < r) or (held and r > MOST_EIGENVECTORS):
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
    state: GridState, prior: GridPrior, output: int, root: Root, profile_mean: bool
) -> Factorisation:
    """The factorisation of one output's statistics under a root."""
    c = prior.mean[output] - state.origin[output]
    return factorise(root.under(state.statistics(output)), prior.s2[output], c, profile_mean)


# -- few observations ----------------------------------------------------------------------------


def _data_covariance(state: GridState, prior: GridPrior, n: int) -> tuple[Tensor, Tensor]:
    """``W K W' + s2 R``, ``o x n x n``, and targets counted from the origin, ``o x n``."""
    X, Y, R = state.buffer.first(n)
    K = prior_covariance(prior.kernel, state.grid, X, len(Y))
    noise = (prior.s2.unsqueeze(-1) * R).expand(Y.shape)
    return K + torch.diag_embed(noise), Y - state.origin.unsqueeze(-1)


def _forgotten(state: GridState, n: int, s2: Tensor) -> Tensor:
    """Correction for forgetting, in which the density of each observation has its weight as power
    (MATHS 2.2); the buffer has noise variances divided by weights.
    """
    if float(state.weight) == n:
        return s2.new_zeros(())
    logs = state.buffer.first(n)[2].log().sum(-1) - state.ld
    whole = (n - state.weight) * (2.0 * torch.pi * s2).log() + logs
    return 0.5 * whole.sum()


def _data_process(state: GridState, prior: GridPrior, n: int) -> Process:
    """The posterior of an exact process with the interpolated kernel."""
    (C, y), (X, _, R) = _data_covariance(state, prior, n), state.buffer.first(n)
    kernel, L = GridKernel(state.grid, _parts(state, prior)), chol_psd(C)
    e = y - (prior.mean - state.origin).unsqueeze(-1)
    u = torch.linalg.solve_triangular(L, e.unsqueeze(-1), upper=False).squeeze(-1)
    basis = GridBasis(kernel, X.clone(), (prior.s2.unsqueeze(-1) * R).expand(y.shape))
    return DataProcess(kernel, basis, L, None, u, prior.mean)


@dataclass(frozen=True)
class GridBasis(KernelBasis):
    """A kernel on a grid at the observations."""

    kernel: GridKernel

    def __call__(self, X: Tensor) -> Tensor:
        """O(n) kernel values per point, or O(4^d n) for a kernel that is no product."""
        if self.kernel.product:
            return super().__call__(X)
        sizes = self.kernel.batch_shape.numel(), len(self.Z)
        return self._seen.features(X).unflatten(-1, sizes).movedim(-2, -3)

    def sloped(self, rows: Any) -> Tensor:
        """Values of one output with their derivatives or without, ``batch x q x (1 + d | 1) x n``,
        from the kernel's rows at the points.
        """
        if self.kernel.product:
            return self.kernel.sloped(rows, self._seen)
        return self._seen.interpolated(*rows)

    @lasting_property
    def _seen(self) -> Any:
        """Rows at the observations; for a kernel that is no product, covariances with the nodes."""
        kernel, grid = self.kernel, self.kernel.grid
        if kernel.product:
            return kernel.rows(grid.place(self.Z), slopes=False)
        table = kernel.parts[0].reshape(kernel.batch_shape.numel(), -1)
        half = covariance_with_nodes(table, grid.interpolate(self.Z))
        return NodeFeatures(grid, half.flatten(0, 1).mT.contiguous())

    def prior(self, outputs: int, sample_shape: Size) -> Path:
        """Exact sample functions: O(m^3) for a kernel that is no product."""
        kernel = self.kernel
        parts = [part if kernel.batch_shape else part.unsqueeze(0) for part in kernel.parts]
        roots = whole_roots(kernel.grid, parts)
        scale = torch.block_diag(*(self.Z.new_ones(1, root.size) for root in roots))
        weights = scale * torch.randn(*sample_shape, *scale.shape).to(scale)
        return FeaturePath(features_of(roots), scale.new_zeros(outputs), weights)


@dataclass(frozen=True)
class DataProcess(Process):
    """The posterior of an exact process with a kernel on a grid."""

    kernel: GridKernel
    basis: GridBasis

    @property
    def has_moments(self) -> bool:
        """Of one output."""
        return len(self.u) == 1

    def moments(self, X: Tensor, *, slopes: bool, across: Any | None = None) -> Moments | None:
        """O(n^2) per point."""
        if not self.has_moments:
            return None
        kernel = self.kernel
        with torch.set_grad_enabled(slopes):
            points = leaf(X, slopes)
            places = kernel.grid.place(points)
        rows = kernel.rows(places.detach(), slopes=slopes)
        a, prior = self.basis.sloped(rows), kernel.sloped(rows, rows)
        R = cast(Tensor, self.R)[0]
        flat = torch.linalg.solve_triangular(R, a.flatten(0, -2).mT, upper=False)
        a = flat.mT.reshape(a.shape)
        means, cov = a @ self.u[0], a.flatten(-3, -2) @ a[..., 0, :].mT
        means[..., 0] += self.mean[0]
        cov = prior - cov.unflatten(-2, a.shape[-3:-1])
        others = None
        if across is not None:
            at = kernel.rows(kernel.grid.place(across.X), slopes=False)
            others = kernel.sloped(rows, at) - a @ across.rows[0].mT
        if not slopes:
            return Moments(means[..., 0], cov[..., 0, :], across=others)
        return Moments.of(means, cov, pullback(places, points), others)
