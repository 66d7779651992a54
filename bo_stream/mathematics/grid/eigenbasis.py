"""A truncated eigenbasis of a product kernel on a grid [MATHS 2.7].

With ``K_k = U_k D_k U_k'`` in each dimension, ``K = os K_1 x .. x K_d`` has the eigenvalues ``os
prod_k D_k`` at multi-indices. The eigenvectors whose eigenvalue exceeds a share of the largest are
kept, as features ``os^(1/2) prod_k D_k^(1/2) U_k'w_k(x_k)`` of unit prior variance. The truncated
covariance is a valid prior, and `Eigenbasis.dropped` is the share of the prior variance that it
lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bo_stream.mathematics.grid.kronecker import kron_left
from bo_stream.mathematics.grid.nodes import Grid, interpolated_product
from bo_stream.mathematics.lasting import lasting_property
from bo_stream.mathematics.moments import Pullback, leaf, pullback

__all__ = ["Eigenbasis", "Features"]

SHARES = (1e-6, 1e-7, 1e-8, 1e-10, 1e-12)
"""Shares of the largest eigenvalue below which eigenvectors may be left out."""
USUAL = 1e-8
"""The share is at most this one, unless more features than `FEW` remain."""
FEW = 1500
LIMIT = 1e-3
"""Largest share of the prior variance that may be left out."""


@dataclass(frozen=True)
class Eigenbasis:
    """Eigenvectors of one output's prior covariance on the nodes.

    Attributes:
        grid: The nodes.
        amplitude: Of the kernel, 0-dim.
        vectors: Per dimension, eigenvectors times roots of eigenvalues, largest first: ``n_k x
            P_k``.
        values: Per dimension, the eigenvalues of the unit-diagonal factor, ``P_k``.
        index: Multi-indices that are kept, sorted: ``r x d``.
        place: The row of each multi-index in ``index``, ``P_1 x .. x P_d``; -1 if left out.
        share: Eigenvalues below this share of the largest are left out.
    """

    grid: Grid
    amplitude: Tensor
    vectors: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    index: Tensor
    place: Tensor
    share: float

    @classmethod
    def of(
        cls, grid: Grid, amplitude: Tensor, kernels: Sequence[Tensor], share: float
    ) -> Eigenbasis:
        """The eigenbasis of ``amplitude * K_1 x .. x K_d``: O(sum n_k^3).

        Args:
            grid: The nodes.
            amplitude: 0-dim.
            kernels: ``n_k x n_k``, unit diagonals.
            share: Eigenvalues below this share of the largest are left out.
        """
        spectra = [torch.linalg.eigh(K) for K in kernels]
        return cls._kept(grid, amplitude, spectra, share)

    @classmethod
    def chosen(
        cls, grid: Grid, amplitude: Tensor, kernels: Sequence[Tensor], tolerance: float, most: int
    ) -> Eigenbasis:
        """The smallest eigenbasis within a tolerance: O(sum n_k^3).

        Args:
            grid: The nodes.
            amplitude: 0-dim.
            kernels: ``n_k x n_k``, unit diagonals.
            tolerance: Share of the prior variance that may be left out at a node.
            most: Largest number of features, unless this would leave out more than `LIMIT` of the
                prior variance.
        """
        spectra, best = [torch.linalg.eigh(K) for K in kernels], None
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
        place = torch.full(relative.shape, -1, dtype=torch.long, device=index.device)
        place[tuple(index.T)] = torch.arange(len(index), device=index.device)
        return cls(grid, amplitude, tuple(vectors), tuple(values), index, place, share)

    @property
    def size(self) -> int:
        """Number of features ``r``."""
        return len(self.index)

    def gradients(self, Y: Tensor) -> list[Tensor]:
        """Gradients of ``1/2 tr(Y R^-1 dK R^-T)`` in the amplitude and in each factor (MATHS 2.4).

        The choice of eigenvectors is held fixed.
        """
        grads = [0.5 * Y.diagonal().sum() / self.amplitude]
        for V, D, T in zip(self.vectors, self.values, self.traces(Y), strict=True):
            half = V / D  # U D^-1/2
            grads.append(0.5 * half @ T @ half.mT)
        return grads

    def same_as(self, other: Eigenbasis) -> bool:
        """Whether the features are the same."""
        mine, theirs = ((basis.amplitude, *basis.vectors, basis.index) for basis in (self, other))
        return all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))

    def features(self, X: Tensor) -> Tensor:
        """At points ``batch x q x d``: ``batch x q x r``, differentiable. O(r d) per point."""
        values: Tensor = _Features.apply(self.grid.place(X), self)
        return values

    def sloped(self, X: Tensor) -> tuple[Tensor, Pullback]:
        """As `FeatureMap.sloped`."""
        with torch.enable_grad():
            points = leaf(X, True)
            places = self.grid.place(points)
        return self.rows_at(places.detach(), slopes=True), pullback(places, points)

    def rows_at(self, places: Tensor, *, slopes: bool) -> Tensor:
        """The features at places on the grid, with their derivatives or without.

        Args:
            places: ``batch x q x d``.
            slopes: Whether to return derivatives.

        Returns:
            ``batch x q x (1 + d) x r``, or ``batch x q x 1 x r``.
        """
        return interpolated_product(self.grid.axes_at(places, slopes=slopes), self._along)

    @lasting_property
    def _along(self) -> Tensor:
        """Values at the nodes of each feature's factor in each dimension: ``d x max(n_k) x r``."""
        most = max(self.grid.sizes)
        own = [V[:, i] for V, i in zip(self.vectors, self.index.unbind(-1), strict=True)]
        own[0] = own[0] * self.amplitude.sqrt()
        return torch.stack([F.pad(V, (0, 0, 0, most - len(V))) for V in own])

    def of_nodes(self, v: Tensor) -> Tensor:
        """``F'v`` for the features F of the nodes and ``m x p`` v: ``r x p``. O(m P p)."""
        box = kron_left([V.mT for V in self.vectors], v)
        return box[(self.place >= 0).flatten()] * self.amplitude.sqrt()

    def at_nodes(self, v: Tensor) -> Tensor:
        """``F v`` for ``r x p`` v: ``m x p``. O(m P p)."""
        box = v.new_zeros(self.place.numel(), v.shape[-1])
        box[(self.place >= 0).flatten()] = v * self.amplitude.sqrt()
        return kron_left(self.vectors, box)

    def traces(self, Y: Tensor) -> list[Tensor]:
        """Per dimension, Y (``r x r``) summed over pairs of multi-indices that agree in the others.

        These are the ``T_k`` of MATHS 2.4, ``P_k x P_k``.
        """
        traces = []
        for k in range(self.place.ndim):
            lines = self.place.movedim(k, -1).reshape(-1, self.place.shape[k])
            both = (lines >= 0).unsqueeze(-1) & (lines >= 0).unsqueeze(-2)
            picked = Y[lines.unsqueeze(-1), lines.unsqueeze(-2)]
            traces.append(torch.where(both, picked, 0.0).sum(0))
        return traces

    def dropped(self) -> Tensor:
        """Largest share of the prior variance at a node that is left out, 0-dim: O(m P)."""
        kept = (self.place >= 0).to(self.values[0]).reshape(-1, 1)
        variances = kron_left([V.square() for V in self.vectors], kept)
        return (1.0 - variances.amin()).clamp_min(0.0)


class _Features(torch.autograd.Function):
    """Features at places on the grid, whose derivatives are computed with the values."""

    @staticmethod
    def forward(ctx: Any, places: Tensor, basis: Eigenbasis) -> Tensor:
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


@dataclass(frozen=True)
class Features:
    """The features of all outputs, concatenated; one set if the outputs share it.

    Attributes:
        bases: One, or one for each output.
    """

    bases: tuple[Eigenbasis, ...]

    def features(self, X: Tensor) -> Tensor:
        """At points ``batch x q x d``: ``batch x q x f``."""
        parts = [basis.features(X) for basis in self.bases]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def sloped(self, X: Tensor) -> tuple[Tensor, Pullback]:
        """As `FeatureMap.sloped`."""
        parts, backs = zip(*(basis.sloped(X) for basis in self.bases), strict=True)
        return (parts[0] if len(parts) == 1 else torch.cat(parts, -1)), backs[0]
