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

An exact process has a product kernel at its observations, a `GridBasis`. For any other kernel, a
process has the posterior mean ``m_u`` and covariance S of the values at the nodes: whatever was
observed, a mean is ``w_x' m_u``, a covariance ``w_x' S w_z``, and a weighted sum over points of
products of covariances ``w_x' N w_z``, with ``N = S A S`` and ``A = sum_t w_t w_t'`` [MATHS 10].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, cast

import torch
import torch.nn.functional as F
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.mathematics.autograd import lasting_property, twice
from bo_stream.mathematics.evidence import OutputStatistics, root_gradient, under_root
from bo_stream.mathematics.expanded import Covariance, Expansion, ProductCovariance
from bo_stream.mathematics.grid import (
    REACH,
    Grid,
    Interpolation,
    ProductFeatures,
    column_pairs,
    interpolated,
    matrix_of,
)
from bo_stream.mathematics.joint import Factors, Integral, Joint
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
    "NodeKernel",
    "NodeProcess",
    "Root",
    "covariance_with_nodes",
    "feature_process",
    "features_of",
    "kernel_parts",
    "prior_covariance",
    "whole_roots",
]

JITTER = 1e-9
"""Share of the prior variance added to the nodes' covariance where it has no product form."""
MOST_ROOTS = 1500
"""Nodes up to which the covariance of their values is factorised for a search."""
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
    place = torch.zeros_like(W.start[:, 0])
    for k, g in enumerate(W.sizes):
        first, near = g - REACH - W.start[:, k], torch.arange(g + REACH - 1, device=table.device)
        window = first.reshape(-1, *[1] * (k + 1)) + near
        place = (2 * g - 1) * place.unsqueeze(-1) + window
    K = table[:, place]
    for k, g in enumerate(W.sizes):  # the last of the four nodes comes first
        weights = W.weights[:, k].flip(-1).reshape(-1, REACH, *[1] * len(W.sizes)).unbind(1)
        K = cast(Tensor, sum(weight * K.narrow(2 + k, a, g) for a, weight in enumerate(weights)))
    return K.flatten(2)


def prior_covariance(kernel: Kernel, grid: Grid, X: Tensor, outputs: int) -> Tensor:
    """The prior covariance ``W K W'`` at points ``n x d``, ``o x n x n``, differentiable twice.

    Costs O(d n^2) and products of one dimension each for a product kernel, else O(4 d n m + 4^d
    n^2).
    """
    parts = kernel_parts(kernel, grid, X, outputs)
    if len(parts) > 1:
        kernel = GridKernel(grid, parts)
        points = grid.axes_at(X).unsqueeze(-3)
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
    """The prior covariance ``w_x' K w_z`` of a product kernel on a grid, for o outputs, of points
    in place of which stand rows of `Grid.axes_at`.

    Args:
        grid: The nodes.
        parts: The kernel, as from `kernel_parts`.
    """

    def __init__(self, grid: Grid, parts: Sequence[Tensor]) -> None:
        one = len(parts[0]) == 1
        super().__init__(batch_shape=Size([] if one else [len(parts[0])]))
        self.grid = grid
        for k, part in enumerate(parts):  # buffers, since gpytorch indexes those of a batch
            self.register_buffer(f"part_{k}", flushed(part[0] if one else part))

    @property
    def parts(self) -> list[Tensor]:
        """As from `kernel_parts`, without the outputs' dimension for one output."""
        return list(self.buffers())

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Values at points ``batch x (1 x) q``, which are placed."""
        amplitude, *factors = self.parts
        total = amplitude[..., None] if diag else amplitude[..., None, None]
        left, right = (x.split(self.grid.sizes, -1) for x in (x1, x2))
        for a, K, b in zip(left, factors, right, strict=True):
            half = a @ K
            total = total * ((half * b).sum(-1) if diag else half @ b.mT)
        return total


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
        spectra, best = [torch.linalg.eigh(K.nan_to_num()) for K in factors], None
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
            spectra: ``torch.linalg.eigh(K_k)``, of unit diagonals ``n_k x n_k``; NaN counts as 0.
            share: Eigenvalues below this share of the largest are left out.
        """
        vectors, values = [], []
        for D, U in spectra:
            if not bool(D[-1] > 0.0):  # no number in it, at hyperparameters out of all range
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
    spectra = zip(*(map(torch.linalg.eigh, K.nan_to_num()) for K in factors), strict=True)
    return [Eigenbasis.of(grid, *own) for own in zip(amplitudes, spectra, strict=True)]


def features_of(grid: Grid, bases: Sequence[Eigenbasis]) -> ProductFeatures:
    """The functions interpolated from the columns of several outputs' bases, side by side."""
    long, wide, tables = max(grid.sizes), max(V.shape[1] for b in bases for V in b.vectors), []
    for basis in bases:
        first, *others = basis.vectors
        own = first * basis.amplitude.sqrt(), *others
        padded = [F.pad(V, (0, wide - V.shape[1], 0, long - len(V))) for V in own]
        tables.append(torch.stack(padded))
    index = [1 + basis.index.mT + wide * i for i, basis in enumerate(bases)]
    return ProductFeatures(grid, torch.cat(tables, -1), torch.cat(index, -1))


def feature_process(
    features: ProductFeatures, factors: Sequence[Tensor], h: Sequence[Tensor], mean: Tensor
) -> Process:
    """The process of several outputs with coefficients ``N(L^-T h, (L L')^-1)`` of features.

    Args:
        features: Those of all outputs, side by side.
        factors: Lower triangular ``L`` of each output.
        h: Likewise.
        mean: The constant prior means, ``o``.
    """
    L = torch.block_diag(*factors).expand(len(factors), -1, -1)
    u = torch.block_diag(*(part.unsqueeze(0) for part in h))
    scale = torch.block_diag(*(torch.ones_like(part).unsqueeze(0) for part in h))
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
        return self.kernel.grid.axes_at(self.Z)

    def covariance(self) -> Covariance | None:
        """The kernel of one output in numpy."""
        amplitude, *factors = self.kernel.parts
        each = [pivoted_root(K.numpy().reshape(K.shape[-2:])) for K in factors]
        roots = [self.kernel.grid.table(k, root) for k, root in enumerate(each)]
        return ProductCovariance(roots, float(amplitude))


@dataclass(frozen=True)
class DataProcess(Process):
    """The posterior of an exact process with a product kernel on a grid."""

    kernel: GridKernel
    basis: GridBasis

    def placed(self, X: Tensor) -> Tensor:
        """Interpolation rows at the points."""
        return self.kernel.grid.axes_at(X)

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
        few = len(self.u) == 1 and self._features.size < points
        return self._feature_form if few else self

    @lasting_property
    def _features(self) -> FeatureBasis:
        """The prior, but for `LEFT_OUT`, outputs side by side."""
        kernel, grid, noise = self.kernel, self.kernel.grid, cast(Tensor, self.basis.noise)
        parts = [part if kernel.batch_shape else part.unsqueeze(0) for part in kernel.parts]
        least = torch.cat([noise.flatten(), parts[0].flatten()]).min()
        bases = [
            Eigenbasis.chosen(grid, first, factors, float(LEFT_OUT * least / first), grid.m)
            for first, *factors in zip(*parts, strict=True)
        ]
        scale = torch.block_diag(*(self.u.new_ones(1, basis.size) for basis in bases))
        return FeatureBasis(features_of(grid, bases), scale)

    @lasting_property
    def _feature_form(self) -> Process:
        """The posterior on these features: O(r^3 + n r^2)."""
        basis, R = self._features, cast(Tensor, self.R)
        deviations = cast(Tensor, self.basis.noise).sqrt().unsqueeze(-1)
        phi, e = basis(self.basis.Z) / deviations, R @ self.u.unsqueeze(-1) / deviations
        L = chol_psd(phi.mT @ phi + torch.eye(basis.size).to(phi))
        h = torch.linalg.solve_triangular(L, phi.mT @ e, upper=False)
        return feature_process(cast(ProductFeatures, basis.features), [*L], [h[0, :, 0]], self.mean)


# -- values at the nodes --------------------------------------------------------------------------


def placed(x: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of nodes and their weights, ``batch x q x k`` each, of points that are placed."""
    index, weight = x.chunk(2, -1)
    return index.long(), weight


class NodeKernel(Kernel):
    """The covariance ``w_x' S w_z`` of values interpolated from the nodes of a grid, for o outputs.

    Points are placed, ``batch x (1 x) q x 2 k``: numbers of ``k = 4^d`` nodes, then their weights.
    O(k m) per point of the smaller set; O(k) per pair, also of memory.

    Args:
        S: Covariances of the values at the nodes, ``o x m x m``.
    """

    def __init__(self, S: Tensor) -> None:
        super().__init__(batch_shape=Size([] if len(S) == 1 else [len(S)]))
        self.of_outputs = torch.nn.Parameter(S, requires_grad=False)  # it says the dtype

    @property
    def S(self) -> Tensor:
        """``o x m x m``, also of one output that gpytorch took from several."""
        return self.of_outputs.view(-1, *self.of_outputs.shape[-2:])

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Values of all pairs, ``batch x (o x) q x q'``; with ``diag``, of a point and itself."""
        if self.batch_shape:
            return self._of_outputs(x1, x2, diag)
        one = x1.unsqueeze(-3)
        values = self._of_outputs(one, one if x1 is x2 else x2.unsqueeze(-3), diag)
        return values.squeeze(-2 if diag else -3)

    def _of_outputs(self, x1: Tensor, x2: Tensor, diag: bool = False) -> Tensor:
        """Values of points ``batch x 1 x q x 2 k``, ``batch x o x q (x q')``."""
        S, (index, weight), (others, weights) = self.S, placed(x1), placed(x2)
        if diag and index.shape[-1] ** 2 <= S.shape[-1]:  # O(16^d) a point
            near = S[:, index.unsqueeze(-1), index.unsqueeze(-2)].squeeze(-4).movedim(0, -4)
            return ((near @ weight.unsqueeze(-1)).squeeze(-1) * weight).sum(-1)
        if diag:
            alone = x1.transpose(-2, -3).unsqueeze(-3)
            return self._of_outputs(alone, alone)[..., 0, 0].mT
        if x1.numel() > x2.numel():
            return self._of_outputs(x2, x1).mT
        if x1 is not x2 or not weight.requires_grad:
            return self._between(index, weight, others, weights)

        def own(weight: Tensor) -> Tensor:  # S is symmetric: ``W S`` is the derivative of both
            near = self._near(index, weight.detach(), index)
            K = (near * weight.unsqueeze(-3)).sum(-1)
            return K + K.mT - K.detach()

        return twice(own, lambda weight: self._between(index, weight, index, weight), weight)

    def _between(self, index: Tensor, weight: Tensor, others: Tensor, weights: Tensor) -> Tensor:
        """Values of points and others."""
        return (self._near(index, weight, others) * weights.unsqueeze(-3)).sum(-1)

    def _near(self, index: Tensor, weight: Tensor, others: Tensor) -> Tensor:
        """``W S`` at the nodes of other points, ``batch x o x q x q' x k``."""
        half = interpolated(self.S.transpose(0, 1).flatten(1), index, weight)
        half = half.unflatten(-1, self.S.shape[::2]).squeeze(-4).transpose(-2, -3)
        place = others.flatten(-2).unsqueeze(-2)
        half = half[(None,) * (place.ndim - half.ndim)]
        near = half.take_along_dim(place[(None,) * (half.ndim - place.ndim)], -1)
        return near.unflatten(-1, others.shape[-2:])


@dataclass(frozen=True)
class NodeProcess(Process):
    """The posterior of the values at the nodes: u has their means less the constant one, the kernel
    their covariances.
    """

    kernel: NodeKernel
    basis: FeatureBasis

    @classmethod
    def of(cls, grid: Grid, u: Tensor, S: Tensor, mean: Tensor) -> NodeProcess:
        """From means ``o x m``, covariances ``o x m x m``, and constant prior means ``o``."""
        cardinal = torch.eye(max(grid.sizes)).to(u).expand(grid.dim, -1, -1)
        columns = 1 + torch.ones(grid.sizes, device=u.device).nonzero().mT
        basis = FeatureBasis(ProductFeatures(grid, cardinal, columns), torch.ones_like(u))
        return cls(NodeKernel(S), basis, None, None, u, mean)

    @property
    def _grid(self) -> Grid:
        return cast(ProductFeatures, self.basis.features).grid

    def placed(self, X: Tensor) -> Tensor:
        """Numbers of the nodes, then weights."""
        W = self._grid.interpolate(X)
        return torch.cat([W.index.to(X), W.weight], -1)

    def at(self, X: Tensor) -> Joint:
        """As for any process: O(4^d) per mean."""
        X = self.placed(X)
        index, weight = placed(X)
        mean = self.mean.unsqueeze(-1) + (self.u[:, index] * weight).sum(-1).movedim(0, -2)
        return Joint(mean, X, self.kernel, mean.new_zeros(*mean.shape, 0))

    def path(self, sample_shape: Size) -> Path:
        """Exact sample functions, from draws of the values at the nodes: O(m^3) once."""
        draws = [
            torch.randn(*sample_shape, root.shape[1]).to(root) @ root.mT for root in self._roots
        ]
        return FeaturePath(self.basis.features, self.mean, self.u + torch.stack(draws, -2))

    @lasting_property
    def _roots(self) -> list[Tensor]:
        """Of each output's covariances, ``m x r``."""
        each = self.kernel.S.numpy(force=True)
        return [torch.from_numpy(pivoted_root(S)).to(self.u) for S in each]

    @lasting_property
    def expansion(self) -> Expansion | None:
        """As for any process, if the nodes are not too many."""
        many = len(self.u) > 1 or self._grid.m > MOST_ROOTS
        functions = None if many or self.u.device.type != "cpu" else self.basis.features.functions()
        if functions is None:
            return None
        return Expansion(functions, self.u[0].numpy(), self.kernel.S[0].numpy(), float(self.mean))

    def sums(self, X: Tensor, w: Tensor) -> Integral:
        """As for any process: O(P 16^d + m^3)."""
        W, S = self._grid.interpolate(X), self.kernel.S
        N = NodeKernel(S @ matrix_of(W.outer_sums(w), W.sizes) @ S)
        return NodeSums(self.at(X), w, kernel=N)


@dataclass(frozen=True)
class NodeSums(Integral):
    """Sums over fixed points under the posterior of the values at the nodes, given data.

    Attributes:
        kernel: ``w_x' N w_z``, the sums without data.
        given: The sums without the last data, and the factors of these; None without data.
    """

    kernel: NodeKernel = field(kw_only=True)
    given: tuple[NodeSums, Factors] | None = None

    def gram(self, a: Joint, b: Joint) -> Tensor:
        """As `Integral`: O(16^d) a pair, and O(4^d m) a point of the data added."""
        if self.given is None:
            return cross_kernel(self.kernel, a.X, b.X)
        V, G = self._change(*self.given, a)
        W, H = (V, G) if a is b else self._change(*self.given, b)
        return self.given[0].gram(a, b) - V.mT @ H - G.mT @ W

    def gram_diagonal(self, a: Joint) -> Tensor:
        """As `gram`."""
        if self.given is None:
            return cast(Tensor, self.kernel(a.X.unsqueeze(-3), diag=True))
        W, H = self._change(*self.given, a)
        return self.given[0].gram_diagonal(a) - 2.0 * (W * H).sum(-2)

    def conditioned(self, factors: Factors) -> Integral:
        """As `Integral`."""
        return replace(self, t=self.t.conditioned(factors), given=(self, factors))

    @staticmethod
    def _change(before: NodeSums, factors: Factors, a: Joint) -> tuple[Tensor, Tensor]:
        """``W`` and H of the last data f, ``batch x o x p x q``, which take ``W_a'H_b + H_a'W_b``
        from the sums: ``H_a = L^-1 gram(f, a) - 1/2 L^-1 gram(f, f) L^-T W_a``.
        """
        f, L, _ = factors
        W, half = a.less[len(f.less)], partial(torch.linalg.solve_triangular, L, upper=False)
        M = half(half(before.gram(f, f)).mT)
        return W, half(before.gram(f, a)) - 0.5 * M @ W
