"""A stationary kernel on the nodes of a grid, interpolated from them, its roots, and exact
processes with it [MATHS 2.3].

A product kernel is evaluated along each axis, any other kernel at the distinct differences of
nodes. Negligible values are set to zero, because their products would be subnormal numbers, which
are slow.

A root ``K = F F'`` turns statistics over the nodes into those of features of unit prior variance. A
product kernel has a truncated eigenbasis [MATHS 2.7]: with ``K_k = U_k D_k U_k'`` in each
dimension, ``K = os K_1 x .. x K_d`` has the eigenvalues ``os prod_k D_k`` at multi-indices. The
eigenvectors whose eigenvalue exceeds a share of the largest are kept, as columns ``os^(1/2) prod_k
D_k^(1/2) U_k`` of F. The truncated covariance is a valid prior, and `Eigenbasis.dropped` is the
share of the prior variance that it lacks. Any other kernel has a Cholesky root.

An exact process has the interpolated kernel at its observations, a `GridBasis`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, cast

import torch
import torch.nn.functional as F
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.mathematics.autograd import lasting_property
from bo_stream.mathematics.evidence import OutputStatistics, root_gradient, under_root
from bo_stream.mathematics.expanded import Covariance, Expansion, ProductCovariance
from bo_stream.mathematics.grid import (
    REACH,
    Grid,
    GridFeatures,
    Interpolation,
    NodeFeatures,
    ProductFeatures,
    column_pairs,
    matrix_of,
    outer,
)
from bo_stream.mathematics.kernels import (
    cross_kernel,
    from_origin,
    is_product,
    product_factors,
)
from bo_stream.mathematics.linalg import chol_psd, flushed, pivoted_root
from bo_stream.mathematics.process import (
    FeatureBasis,
    FeaturePath,
    KernelBasis,
    Path,
    Process,
    noisy,
    solved,
    times,
)

__all__ = [
    "CholeskyRoot",
    "DataProcess",
    "Eigenbasis",
    "GridBasis",
    "GridKernel",
    "Root",
    "covariance_with_nodes",
    "feature_process",
    "features_of",
    "kernel_parts",
    "prior_covariance",
    "whole_roots",
]

WIDE = 2 * REACH - 1
"""Differences of the nodes that two points are interpolated from, in each dimension."""
JITTER = 1e-9
"""Share of the prior variance added to the nodes' covariance where it has no product form."""
MOST_ROOTS = 1500
"""Nodes up to which a kernel that is no product is factorised for a search."""
LEFT_OUT = 1e-6
"""Variance left out of sums over points, in units of the smallest noise variance."""


def kernel_parts(kernel: Kernel, grid: Grid, like: Tensor, outputs: int) -> list[Tensor]:
    """What determines a kernel on the nodes, for each output; differentiable.

    Returns:
        The amplitudes of a product kernel, ``o``, and its unit-diagonal factors, ``o x g_k x g_k``
        for each dimension. For any other kernel, its values at `Grid.differences` with a little
        jitter, ``o x prod(2 g_k - 1)``.
    """
    if is_product(kernel, grid.dim):
        amplitude, factors = product_factors(kernel, grid.axes(like), outputs)
        return [amplitude, *factors]
    values = flushed(from_origin(kernel, grid.differences(like), outputs))
    jitter = torch.zeros_like(values)
    jitter[:, values.shape[1] // 2] = JITTER  # no difference
    return [values * (1.0 + jitter)]


def covariance_with_nodes(table: Tensor, W: Interpolation) -> Tensor:
    """``W K`` for n points and a kernel given by its differences, ``o x n x m``, differentiable.

    Costs O(4 d n m): each point takes a window of the table, and is interpolated in it along one
    dimension after the other.
    """
    widths = [g + REACH - 1 for g in W.sizes]
    last = torch.tensor(W.sizes, device=table.device) - REACH
    first = ((last - W.start) * strides(W.sizes).to(last)).sum(-1, keepdim=True)
    near = differences_within([0] * len(widths), widths, W.sizes).to(last)
    K = table[:, first + near].unflatten(-1, widths)
    for k, g in enumerate(W.sizes):  # the last of the four nodes comes first
        weights = W.weights[:, k].flip(-1).reshape(-1, REACH, *[1] * len(W.sizes)).unbind(1)
        K = sum(weight * K.narrow(2 + k, a, g) for a, weight in enumerate(weights))
    return K.flatten(2)


def strides(sizes: Sequence[int]) -> Tensor:
    """Distances in a table of differences between those that are one node apart, ``d``."""
    return torch.tensor([math.prod(2 * g - 1 for g in sizes[k + 1 :]) for k in range(len(sizes))])


def differences_within(low: Sequence[int], widths: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Places in a table of differences of a box of them, ``prod(widths)``."""
    ranges = [torch.arange(a, a + width) for a, width in zip(low, widths, strict=True)]
    return torch.cartesian_prod(*ranges).reshape(-1, len(sizes)) @ strides(sizes)


def prior_covariance(kernel: Kernel, grid: Grid, X: Tensor, outputs: int) -> Tensor:
    """The prior covariance ``W K W'`` at points ``n x d``, ``o x n x n``, differentiable twice.

    Costs O(d n^2) and products of one dimension each for a product kernel, else O(4 d n m + 4^d
    n^2).
    """
    parts = kernel_parts(kernel, grid, X, outputs)
    if len(parts) > 1:
        kernel = GridKernel(grid, parts)
        points = kernel.placed(X).unsqueeze(-3)
        return flushed(kernel.forward(points, points))
    W = grid.interpolate(X)
    number = torch.arange(len(X), device=X.device).unsqueeze(-1).expand(W.index.shape)
    place, size = torch.stack([number.flatten(), W.index.flatten()]), (len(X), grid.m)
    rows = torch.sparse_coo_tensor(place, W.weight.flatten(), size, check_invariants=False)
    halves = covariance_with_nodes(parts[0], W)
    return torch.stack([torch.sparse.mm(rows, half.mT) for half in halves])


def kron_left(factors: Sequence[Tensor], M: Tensor) -> Tensor:
    """``(F_1 x .. x F_d) M`` for ``m x p`` M: O(m p sum n_k)."""
    p, before = M.shape[-1], 1
    for factor in factors:
        M = factor @ M.reshape(before, factor.shape[-1], -1)
        before *= factor.shape[-2]
    return M.reshape(-1, p)


class GridKernel(Kernel):
    """The prior covariance ``w_x' K w_z`` on a grid, for o outputs, of points that are `placed`.

    Args:
        grid: The nodes.
        parts: The kernel, as from `kernel_parts`.
    """

    def __init__(self, grid: Grid, parts: Sequence[Tensor]) -> None:
        one = len(parts[0]) == 1
        super().__init__(batch_shape=Size([] if one else [len(parts[0])]))
        self.grid, self.product = grid, len(parts) > 1
        for k, part in enumerate(parts):  # buffers, since gpytorch indexes those of a batch
            self.register_buffer(f"part_{k}", flushed(part[0] if one else part))
        if not self.product:
            sizes, i = grid.sizes, torch.arange(REACH)
            near = differences_within([g - REACH for g in sizes], [WIDE] * grid.dim, sizes)
            same = F.one_hot((i.unsqueeze(-1) - i + REACH - 1).flatten(), WIDE)
            device, self._same_difference = parts[0].device, same.to(parts[0])
            self._near, self._strides = near.to(device), strides(sizes).to(device)

    @property
    def parts(self) -> list[Tensor]:
        """As from `kernel_parts`, without the outputs' dimension for one output."""
        return list(self.buffers())

    def placed(self, X: Tensor) -> Tensor:
        """Interpolation rows, in place of the points: as from `Grid.axes_at` for a product; else
        first nodes, then weights.
        """
        if self.product:
            return self.grid.axes_at(X)
        near = self.grid.interpolate(X)
        return torch.cat([near.start.to(X), near.weights.flatten(-2)], -1)

    def rows(self, x: Tensor) -> Interpolation:
        """Interpolation rows of points placed for a kernel that is no product."""
        d = self.grid.dim
        weights = x[..., d:].unflatten(-1, (d, REACH))
        return Interpolation(self.grid.sizes, x[..., :d].long(), weights)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Values at points ``batch x (1 x) q``, which are placed."""
        if not self.product:
            values = self._pairs(self.rows(x1), self.rows(x2), diag=diag)
            return values.squeeze(-1) if diag else values
        amplitude, *factors = self.parts
        total = amplitude[..., None] if diag else amplitude[..., None, None]
        left, right = (x.split(self.grid.sizes, -1) for x in (x1, x2))
        for a, K, b in zip(left, factors, right, strict=True):
            half = a @ K
            total = total * ((half * b).sum(-1) if diag else half @ b.mT)
        return total

    def _pairs(self, rows: Interpolation, others: Interpolation, *, diag: bool) -> Tensor:
        """Values at pairs of points, ``batch x (o x) q x p``: O(7^d) each.

        In each dimension the nodes of two points have seven differences, whose weights are sums.
        With ``diag``, each point has one other, ``p = 1``.
        """
        less = 1 - diag
        weights, right = rows.weights.unsqueeze(-3), others.weights.unsqueeze(-3 - less)
        products = (weights.unsqueeze(-1) * right.unsqueeze(-2)).flatten(-2)
        (table,), of_differences = self.parts, outer(products @ self._same_difference)
        gaps = rows.start.unsqueeze(-2) - others.start.unsqueeze(-2 - less)
        index = (gaps * self._strides).sum(-1, keepdim=True) + self._near
        if self.batch_shape:
            output = torch.arange(len(table), device=index.device)
            index = index + table.shape[-1] * output.reshape(-1, 1, 1, 1)
        return (of_differences * table.take(index)).sum(-1)


# -- roots ---------------------------------------------------------------------------------------


SHARES = (1e-6, 1e-7, 1e-8, 1e-10, 1e-12)
"""Shares of the largest eigenvalue below which eigenvectors may be left out."""
USUAL = 1e-8
"""The share is at most this one, unless more features than `FEW` remain."""
FEW = 1500
LIMIT = 1e-3
"""Largest share of the prior variance that may be left out."""
ROUNDING = 1e-14
"""Share of the largest eigenvalue below which the others are rounding errors."""


@dataclass(frozen=True)
class CholeskyRoot:
    """The Cholesky factor of a kernel matrix ``R R'``, as a root F (``m x r``).

    Attributes:
        grid: The nodes.
        R: Lower triangular, ``m x m``.
    """

    grid: Grid
    R: Tensor

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.R)

    def under(self, stats: OutputStatistics) -> OutputStatistics:
        """The statistics of the features, from those over the nodes, A by pairs: O(m^3)."""
        return under_root(replace(stats, A=matrix_of(stats.A, self.grid.sizes)), self.R)

    def gradients(self, Y: Tensor) -> list[Tensor]:
        """Gradients of ``1/2 tr(Y F^-1 dK F^-T)``: in the kernel matrix."""
        return [root_gradient(self.R, Y)]


@dataclass(frozen=True)
class Eigenbasis:
    """Eigenvectors of a product kernel on the nodes, as a root F (``m x r``).

    Attributes:
        grid: The nodes.
        amplitude: Of the kernel, 0-dim.
        vectors: Per dimension, eigenvectors times roots of eigenvalues, largest first: ``n_k x
            P_k``.
        values: Per dimension, the eigenvalues of the unit-diagonal factor, ``P_k``.
        index: Multi-indices that are kept, sorted: ``r x d``.
    """

    grid: Grid
    amplitude: Tensor
    vectors: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    index: Tensor

    @classmethod
    def chosen(
        cls, grid: Grid, amplitude: Tensor, factors: Sequence[Tensor], tolerance: float, most: int
    ) -> Eigenbasis:
        """The smallest eigenbasis within a tolerance: O(sum n_k^3).

        Args:
            grid: The nodes.
            amplitude: 0-dim.
            factors: ``n_k x n_k``, unit diagonals.
            tolerance: Share of the prior variance that may be left out at a node.
            most: Largest number of features, unless this would leave out more than `LIMIT` of the
                prior variance.
        """
        spectra, best = [torch.linalg.eigh(K) for K in factors], None
        many = cls.of(grid, amplitude, spectra, USUAL).size > FEW
        for share in (share for share in SHARES if many or share <= USUAL):
            basis = cls.of(grid, amplitude, spectra, share)
            if basis.size > most:
                return basis if best is None else best
            dropped = float(basis.dropped())
            if dropped <= tolerance:
                return basis
            best = basis if dropped <= LIMIT else best
        return basis

    @classmethod
    def of(
        cls, grid: Grid, amplitude: Tensor, spectra: Sequence[Any], share: float = ROUNDING
    ) -> Eigenbasis:
        """The eigenbasis of ``amplitude * K_1 x .. x K_d``.

        Args:
            grid: The nodes.
            amplitude: 0-dim.
            spectra: ``torch.linalg.eigh(K_k)``, of unit diagonals ``n_k x n_k``.
            share: Eigenvalues below this share of the largest are left out.
        """
        vectors, values = [], []
        for D, U in spectra:
            if not bool(D[-1] > 0.0):  # NaN too, at hyperparameters out of all range
                raise torch.linalg.LinAlgError("A kernel matrix is singular.")  # type: ignore[attr-defined]
            kept = D.flip(0) > share * D[-1]
            D, U = D.flip(0)[kept], U.flip(1)[:, kept]
            vectors.append(U * D.sqrt())
            values.append(D)
        relative = reduce(lambda a, b: a.unsqueeze(-1) * b, (D / D[0] for D in values))
        index = (relative > share).nonzero()
        return cls(grid, amplitude, tuple(vectors), tuple(values), index)

    @property
    def size(self) -> int:
        """Number of features ``r``."""
        return len(self.index)

    def under(self, stats: OutputStatistics) -> OutputStatistics:
        """The statistics of the features, from those over the nodes, A by pairs."""
        box = kron_left([V.mT for V in self.vectors], torch.stack([stats.b, stats.w1], -1))
        kept = box.unflatten(0, self._shape)[tuple(self.index.T)] * self.amplitude.sqrt()
        return replace(stats, A=self.gram(stats.A), b=kept[:, 0], w1=kept[:, 1])

    def gram(self, A: Tensor) -> Tensor:
        """``F'A F`` for A by pairs of nodes.

        O(4^d m P^2) for P eigenvectors of a dimension, and O(r^2).
        """
        sums = A.reshape([REACH * n for n in self.grid.sizes])
        place = torch.zeros(self.size, self.size, dtype=torch.long, device=A.device)
        for V, i in zip(self.vectors, self.index.T, strict=True):
            pairs, most = column_pairs(V), torch.maximum(i.unsqueeze(-1), i)
            sums = torch.tensordot(sums, pairs, ([0], [1]))  # the first axis becomes the last
            place = place * len(pairs) + most * (most + 1) // 2 + torch.minimum(i.unsqueeze(-1), i)
        return sums.take(place).mul_(self.amplitude)

    @property
    def _shape(self) -> tuple[int, ...]:
        """Numbers of eigenvectors ``P_k``."""
        return tuple(len(D) for D in self.values)

    def gradients(self, Y: Tensor) -> list[Tensor]:
        """Gradients of ``1/2 tr(Y F^-1 dK F^-T)``: in the amplitude and in each factor, with the
        choice of eigenvectors fixed (MATHS 2.4).

        The factors' are ``1/2 U D^-1/2 T_k D^-1/2 U'``, where ``T_k`` is Y summed over pairs of
        multi-indices that agree in the other dimensions.
        """
        grads = [0.5 * Y.diagonal().sum() / self.amplitude]
        place = torch.full(self._shape, -1, device=Y.device)
        place[tuple(self.index.T)] = torch.arange(self.size, device=Y.device)
        for k, (V, D) in enumerate(zip(self.vectors, self.values, strict=True)):
            lines = place.movedim(k, -1).reshape(-1, len(D))
            both = (lines >= 0).unsqueeze(-1) & (lines >= 0).unsqueeze(-2)
            picked = Y[lines.unsqueeze(-1), lines.unsqueeze(-2)]
            half = V / D
            grads.append(0.5 * half @ torch.where(both, picked, 0.0).sum(0) @ half.mT)
        return grads

    def dropped(self) -> Tensor:
        """Largest share of the prior variance at a node that is left out, 0-dim: O(m P)."""
        kept = self.values[0].new_zeros(self._shape)
        kept[tuple(self.index.T)] = 1.0
        variances = kron_left([V.square() for V in self.vectors], kept.reshape(-1, 1))
        return (1.0 - variances.amin()).clamp_min(0.0)


Root = CholeskyRoot | Eigenbasis
"""A root of the prior covariance of one output's values at the nodes."""


def whole_roots(grid: Grid, parts: Sequence[Tensor]) -> list[Root]:
    """Roots of every output's kernel, from which nothing is left out; as from `kernel_parts`."""
    if len(parts) == 1:
        roots = flushed(torch.linalg.cholesky(grid.spread(parts[0])))
        return [CholeskyRoot(grid, R) for R in roots]
    amplitudes, *factors = parts
    spectra = zip(*(map(torch.linalg.eigh, K) for K in factors), strict=True)
    return [Eigenbasis.of(grid, *own) for own in zip(amplitudes, spectra, strict=True)]


def features_of(grid: Grid, roots: Sequence[Root]) -> GridFeatures:
    """The functions interpolated from the columns of several outputs' roots, side by side."""
    bases = [root for root in roots if isinstance(root, Eigenbasis)]
    if not bases:
        columns = [root.R for root in roots if isinstance(root, CholeskyRoot)]
        return NodeFeatures(grid, torch.cat(columns, -1))
    long, wide, tables = max(grid.sizes), max(V.shape[1] for b in bases for V in b.vectors), []
    for basis in bases:
        first, *others = basis.vectors
        own = first * basis.amplitude.sqrt(), *others
        padded = [F.pad(V, (0, wide - V.shape[1], 0, long - len(V))) for V in own]
        tables.append(torch.stack(padded))
    index = [1 + basis.index.mT + wide * i for i, basis in enumerate(bases)]
    return ProductFeatures(grid, torch.cat(tables, -1), torch.cat(index, -1))


def feature_process(
    features: GridFeatures, factors: Sequence[Tensor], h: Sequence[Tensor], mean: Tensor
) -> Process:
    """The process of several outputs with coefficients ``N(L^-T h, (L L')^-1)`` of features.

    Functions at the nodes are multiplied by ``L^-T`` there, so that they cost O(4^d) a point each.

    Args:
        features: Those of all outputs, side by side.
        factors: Lower triangular ``L`` of each output.
        h: Likewise.
        mean: The constant prior means, ``o``.
    """
    L = torch.block_diag(*factors).expand(len(factors), -1, -1)
    u = torch.block_diag(*(part.unsqueeze(0) for part in h))
    scale = torch.block_diag(*(torch.ones_like(part).unsqueeze(0) for part in h))
    if isinstance(features, NodeFeatures):
        F = torch.linalg.solve_triangular(L[0], features.values.mT, upper=False).mT
        whitened = FeatureBasis(replace(features, values=flushed(F)), scale)
        return Process(None, whitened, None, None, u, mean)
    u = torch.linalg.solve_triangular(L.mT, u.unsqueeze(-1), upper=True).squeeze(-1)
    return Process(None, FeatureBasis(features, scale), None, L, u, mean)


# -- exact processes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class GridBasis(KernelBasis):
    """A kernel on a grid at the observations; points are placed."""

    kernel: GridKernel

    def __call__(self, X: Tensor) -> Tensor:
        """O(n) kernel values per point."""
        return cross_kernel(self.kernel, X, self._seen)

    @lasting_property
    def _seen(self) -> Tensor:
        """The observations placed."""
        return self.kernel.placed(self.Z)

    def covariance(self) -> Covariance | None:
        """The kernel of one output in numpy, if it is a product; else None."""
        kernel = self.kernel
        if not kernel.product or kernel.batch_shape.numel() > 1:
            return None
        amplitude, *factors = kernel.parts
        each = [pivoted_root(K.numpy().reshape(K.shape[-2:])) for K in factors]
        roots = [kernel.grid.table(k, root) for k, root in enumerate(each)]
        return ProductCovariance(roots, float(amplitude))


@dataclass(frozen=True)
class DataProcess(Process):
    """The posterior of an exact process with a kernel on a grid."""

    kernel: GridKernel
    basis: GridBasis

    def placed(self, X: Tensor) -> Tensor:
        """Interpolation rows at the points."""
        return self.kernel.placed(X)

    def rows(self, X: Tensor) -> Tensor:
        """As for any process: O(4^d n) for a kernel that is no product, solved at the nodes."""
        if self.kernel.product:
            return super().rows(X)
        values = self._solved.interpolated(self.kernel.rows(X))
        return values.unflatten(-1, (len(self.u), -1)).movedim(-2, -3)

    @lasting_property
    def _solved(self) -> NodeFeatures:
        """``R^-1 b`` at the nodes for a kernel that is no product: O(m n^2)."""
        grid, table = self.kernel.grid, self.kernel.parts[0].reshape(len(self.u), -1)
        half = covariance_with_nodes(table, grid.interpolate(self.basis.Z))
        half = torch.linalg.solve_triangular(cast(Tensor, self.R), half, upper=False)
        return NodeFeatures(grid, half.flatten(0, 1).mT.contiguous())

    def path(self, sample_shape: Size) -> Path:
        """Sample functions by Matheron's rule, on features: O(n r) each, after O(n r + n^2)."""
        features, R, noise = self._features, cast(Tensor, self.R), cast(Tensor, self.basis.noise)
        prior = features.scale * torch.randn(*sample_shape, *features.scale.shape).to(self.u)
        phi = features(self.basis.Z)
        left = self.u - solved(R, noisy(times(phi, prior), noise), upper=False)
        change = (solved(R.mT, left, upper=True).unsqueeze(-2) @ phi).squeeze(-2)
        return FeaturePath(features.features, self.mean, prior + change)

    def for_sums(self, points: int) -> Process:
        """On features, if there are fewer than points; of one output."""
        few = len(self.u) == 1 and (self.kernel.product or self.kernel.grid.m < points)
        return self._feature_form if few and self._features.size < points else self

    @lasting_property
    def _features(self) -> FeatureBasis:
        """The prior, but for `LEFT_OUT`, outputs side by side: O(m^3) for a kernel that is no
        product.
        """
        kernel, grid, noise = self.kernel, self.kernel.grid, cast(Tensor, self.basis.noise)
        parts = [part if kernel.batch_shape else part.unsqueeze(0) for part in kernel.parts]
        least = torch.cat([noise.flatten(), parts[0].flatten()]).min()
        roots: Sequence[Root] = (
            [
                Eigenbasis.chosen(grid, first, factors, float(LEFT_OUT * least / first), grid.m)
                for first, *factors in zip(*parts, strict=True)
            ]
            if kernel.product
            else whole_roots(grid, parts)
        )
        scale = torch.block_diag(*(self.u.new_ones(1, root.size) for root in roots))
        return FeatureBasis(features_of(grid, roots), scale)

    @lasting_property
    def _feature_form(self) -> Process:
        """The posterior on these features: O(r^3 + n r^2)."""
        basis, R = self._features, cast(Tensor, self.R)
        deviations = cast(Tensor, self.basis.noise).sqrt().unsqueeze(-1)
        phi, e = basis(self.basis.Z) / deviations, R @ self.u.unsqueeze(-1) / deviations
        L = chol_psd(phi.mT @ phi + torch.eye(basis.size).to(phi))
        h = torch.linalg.solve_triangular(L, phi.mT @ e, upper=False)
        return feature_process(cast(GridFeatures, basis.features), [*L], [h[0, :, 0]], self.mean)

    @lasting_property
    def expansion(self) -> Expansion | None:
        """As for any process; on features for a kernel that is no product, and not too many."""
        form = self if self.kernel.product else self.for_sums(MOST_ROOTS)
        return super().expansion if form is self else form.expansion
