"""Roots of the prior covariance of the nodes of a grid, and functions interpolated from them.

A root ``K = F F'`` turns statistics over the nodes into those of features of unit prior variance. A
product kernel has a truncated eigenbasis [MATHS 2.7]: with ``K_k = U_k D_k U_k'`` in each
dimension, ``K = os K_1 x .. x K_d`` has the eigenvalues ``os prod_k D_k`` at multi-indices. The
eigenvectors whose eigenvalue exceeds a share of the largest are kept, as columns ``os^(1/2) prod_k
D_k^(1/2) U_k`` of F. The truncated covariance is a valid prior, and `Eigenbasis.dropped` is the
share of the prior variance that it lacks. Any other kernel has a Cholesky root.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bo_stream.mathematics.autograd import Pullback, leaf, pullback
from bo_stream.mathematics.bands import column_pairs, matrix_of
from bo_stream.mathematics.evidence import OutputStatistics, root_gradient, under_root
from bo_stream.mathematics.grid import Grid, Interpolation, outer
from bo_stream.mathematics.grid_kernel import kron_left
from bo_stream.mathematics.joint import sloped_product
from bo_stream.mathematics.linalg import flushed

__all__ = ["CholeskyRoot", "Eigenbasis", "NodeFeatures", "ProductFeatures", "Root"]

SHARES = (1e-6, 1e-7, 1e-8, 1e-10, 1e-12)
"""Shares of the largest eigenvalue below which eigenvectors may be left out."""
USUAL = 1e-8
"""The share is at most this one, unless more features than `FEW` remain."""
FEW = 1500
LIMIT = 1e-3
"""Largest share of the prior variance that may be left out."""
ROUNDING = 1e-14
"""Share of the largest eigenvalue below which the others are rounding errors."""


class Root(ABC):
    """A root ``F`` (``m x r``) of the prior covariance of one output's values at the nodes."""

    grid: Grid

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of features ``r``."""

    @abstractmethod
    def under(self, stats: OutputStatistics) -> OutputStatistics:
        """The statistics of the features, from those over the nodes, A by pairs of nodes."""

    @abstractmethod
    def whitened(self, L: Tensor) -> Tensor:
        """``F L^-T`` for lower triangular L: ``m x r``."""

    @abstractmethod
    def gradients(self, Y: Tensor) -> list[Tensor]:
        """Gradients of ``1/2 tr(Y F^-1 dK F^-T)`` in the tensors that the root was made from."""


@dataclass(frozen=True)
class CholeskyRoot(Root):
    """The Cholesky factor of a kernel matrix ``R R'``.

    Attributes:
        grid: The nodes.
        R: Lower triangular, ``m x m``.
    """

    grid: Grid
    R: Tensor

    @classmethod
    def of(cls, grid: Grid, K: Tensor) -> CholeskyRoot:
        """The root of a kernel matrix: O(m^3)."""
        return cls(grid, flushed(torch.linalg.cholesky(K)))

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.R)

    def under(self, stats: OutputStatistics) -> OutputStatistics:
        """As in `Root`: O(m^3)."""
        return under_root(replace(stats, A=matrix_of(stats.A, self.grid.sizes)), self.R)

    def whitened(self, L: Tensor) -> Tensor:
        """As in `Root`: O(m^3)."""
        return torch.linalg.solve_triangular(L, self.R.mT, upper=False).mT

    def gradients(self, Y: Tensor) -> list[Tensor]:
        """In the kernel matrix."""
        return [root_gradient(self.R, Y)]


@dataclass(frozen=True)
class Eigenbasis(Root):
    """Eigenvectors of a product kernel on the nodes.

    Attributes:
        grid: The nodes.
        amplitude: Of the kernel, 0-dim.
        vectors: Per dimension, eigenvectors times roots of eigenvalues, largest first: ``n_k x
            P_k``.
        values: Per dimension, the eigenvalues of the unit-diagonal factor, ``P_k``.
        index: Multi-indices that are kept, sorted: ``r x d``.
        share: Eigenvalues below this share of the largest are left out.
    """

    grid: Grid
    amplitude: Tensor
    vectors: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    index: Tensor
    share: float

    @classmethod
    def of(
        cls, grid: Grid, amplitude: Tensor, factors: Sequence[Tensor], share: float = ROUNDING
    ) -> Eigenbasis:
        """The eigenbasis of ``amplitude * K_1 x .. x K_d``: O(sum n_k^3).

        Args:
            grid: The nodes.
            amplitude: 0-dim.
            factors: ``n_k x n_k``, unit diagonals.
            share: Eigenvalues below this share of the largest are left out.
        """
        return cls._kept(grid, amplitude, [torch.linalg.eigh(K) for K in factors], share)

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
        many = cls._kept(grid, amplitude, spectra, USUAL).size > FEW
        for share in (share for share in SHARES if many or share <= USUAL):
            basis = cls._kept(grid, amplitude, spectra, share)
            if basis.size > most:
                return basis if best is None else best
            dropped = float(basis.dropped())
            if dropped <= tolerance:
                return basis
            best = basis if dropped <= LIMIT else best
        return basis

    @classmethod
    def _kept(
        cls, grid: Grid, amplitude: Tensor, spectra: Sequence[Any], share: float
    ) -> Eigenbasis:
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
        return cls(grid, amplitude, tuple(vectors), tuple(values), index, share)

    @property
    def size(self) -> int:
        """Number of features ``r``."""
        return len(self.index)

    @property
    def tables(self) -> Tensor:
        """Values at the nodes of each feature's factor in each dimension: ``d x max(n_k) x r``."""
        most = max(self.grid.sizes)
        own = [V[:, i] for V, i in zip(self.vectors, self.index.unbind(-1), strict=True)]
        own[0] = own[0] * self.amplitude.sqrt()
        return torch.stack([F.pad(V, (0, 0, 0, most - len(V))) for V in own])

    def under(self, stats: OutputStatistics) -> OutputStatistics:
        """As in `Root`."""
        b, w1 = self.of_nodes(torch.stack([stats.b, stats.w1], -1)).unbind(-1)
        return replace(stats, A=self.gram(stats.A), b=b, w1=w1)

    def gram(self, A: Tensor) -> Tensor:
        """The lower triangle of ``F'A F`` for A by pairs of nodes.

        O(4^d m P^2) for P eigenvectors of a dimension, and O(r^2).
        """
        head, *tail = (
            (column_pairs(V), i) for V, i in zip(self.vectors, self.index.T, strict=True)
        )
        none = head[0].new_ones(1, 1), torch.zeros_like(head[1])
        pairs, columns = zip(head, *[none] * (3 - self.grid.dim), *tail, strict=True)
        first = pairs[0] @ A.reshape(pairs[0].shape[1], -1)
        first = first.unflatten(-1, (pairs[1].shape[1], -1)) @ pairs[2].mT
        G, low = A.new_zeros(self.size, self.size), 0
        for a, count in enumerate(columns[0].bincount().tolist()):
            high = low + count
            part = pairs[1] @ first[a * (a + 1) // 2 :][: a + 1]
            place = columns[0][:high] * part[0].numel()
            for column, size in zip(columns[1:], (part.shape[2], 1), strict=True):
                place = place + _pair_number(column[low:high, None], column[:high]) * size
            G[low:high, :high] = part.take(place)
            low = high
        return G.mul_(self.amplitude)

    def of_nodes(self, v: Tensor) -> Tensor:
        """``F'v`` for ``m x p`` v, ``r x p``: O(m P p)."""
        box = kron_left([V.mT for V in self.vectors], v)
        return box.unflatten(0, self._shape)[tuple(self.index.T)] * self.amplitude.sqrt()

    def whitened(self, L: Tensor) -> Tensor:
        """As in `Root`: O(r^3 + m P r)."""
        eye = torch.eye(self.size, dtype=L.dtype, device=L.device)
        box = L.new_zeros(*self._shape, self.size)
        box[tuple(self.index.T)] = torch.linalg.solve_triangular(L, eye, upper=False).mT
        return kron_left(self.vectors, box.flatten(0, -2)) * self.amplitude.sqrt()

    @property
    def _shape(self) -> tuple[int, ...]:
        """Numbers of eigenvectors ``P_k``."""
        return tuple(len(D) for D in self.values)

    def gradients(self, Y: Tensor) -> list[Tensor]:
        """In the amplitude and in each factor, with the choice of eigenvectors fixed (MATHS 2.4).

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


def _pair_number(i: Tensor, j: Tensor) -> Tensor:
    """Number of a pair of columns in `column_pairs`."""
    high = torch.maximum(i, j)
    return high * (high + 1) // 2 + torch.minimum(i, j)


@dataclass(frozen=True)
class GridFeatures(ABC):
    """Functions interpolated from the nodes of a grid, as a `FeatureMap`.

    Attributes:
        grid: The nodes.
        values: What they are at the nodes.
    """

    grid: Grid
    values: Tensor

    @abstractmethod
    def rows_at(self, places: Tensor, *, slopes: bool) -> Tensor:
        """Features with their derivatives or without, ``batch x q x (1 + d | 1) x f``.

        Args:
            places: Coordinates on the grid, ``batch x q x d``.
            slopes: Whether to return derivatives.
        """

    def features(self, X: Tensor) -> Tensor:
        """Features at points ``batch x q x d``: ``batch x q x f``, differentiable."""
        rows: Tensor = _Features.apply(self.grid.place(X), self)
        return rows

    def sloped(self, X: Tensor) -> tuple[Tensor, Pullback]:
        """As `FeatureMap.sloped`."""
        with torch.enable_grad():
            points = leaf(X, True)
            places = self.grid.place(points)
        return self.rows_at(places.detach(), slopes=True), pullback(places, points)


class ProductFeatures(GridFeatures):
    """Products over dimensions; ``values`` are their factors, ``d x max(n_k) x f``."""

    def rows_at(self, places: Tensor, *, slopes: bool) -> Tensor:
        """As in `GridFeatures`: O(n_k d) per point and feature."""
        axes = self.grid.axes_at(places, slopes=slopes)
        along = (axes.flatten(1, -2) @ self.values).unflatten(1, axes.shape[1:-1])
        return sloped_product(along.unbind(0))


class NodeFeatures(GridFeatures):
    """Any functions; ``values`` are those at the nodes, ``m x f``."""

    def rows_at(self, places: Tensor, *, slopes: bool) -> Tensor:
        """As in `GridFeatures`: O(4^d) per point and feature."""
        return self.interpolated(*self.grid.cubics(places, slopes=slopes))

    def interpolated(self, start: Tensor, weights: Tensor) -> Tensor:
        """As `rows_at`, from what `Grid.cubics` gives at the places."""
        index = Interpolation(self.grid.sizes, start, weights).index
        rows = outer(weights)
        if rows.requires_grad:
            return rows @ self.values[index]
        flat = index.unsqueeze(-2).expand(rows.shape).reshape(-1, rows.shape[-1])
        sums = F.embedding_bag(
            flat, self.values, per_sample_weights=rows.view(flat.shape), mode="sum"
        )
        return sums.view(*rows.shape[:-1], self.values.shape[-1])


class _Features(torch.autograd.Function):
    """Features at places on the grid, whose derivatives are computed with the values."""

    @staticmethod
    def forward(ctx: Any, places: Tensor, basis: GridFeatures) -> Tensor:
        rows = basis.rows_at(places, slopes=ctx.needs_input_grad[0])
        ctx.save_for_backward(rows[..., 1:, :], places)
        ctx.basis = basis
        return rows[..., 0, :].clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        slopes, places = ctx.saved_tensors
        if torch.is_grad_enabled():
            slopes = ctx.basis.rows_at(places, slopes=True)[..., 1:, :]
        return (slopes @ grad.unsqueeze(-1)).squeeze(-1), None
