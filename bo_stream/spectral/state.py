"""The state of a Gaussian process on sine features: sums, the features, and the first points.

A row of W is the features at a point and a one; the one has prior variance zero, so that it says
nothing about the function, and its column of the sums is what a constant mean needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Self, cast

import torch
from torch import Tensor

from bo_stream.errors import StateError
from bo_stream.shapes import shaped
from bo_stream.spectral.basis import Basis
from bo_stream.sums.state import Sums, Undo, noisier

__all__ = ["SpectralRows", "SpectralState"]


@dataclass(frozen=True)
class SpectralRows:
    """Rows of W, ``n x (f + 1)``."""

    W: Tensor

    @classmethod
    def at(cls, basis: Basis, X: Tensor) -> SpectralRows:
        """The rows at points ``n x d``."""
        phi = basis.features(X)
        return cls(torch.cat([phi, phi.new_ones(len(phi), 1)], -1))

    def add_outer(self, A: Tensor, weights: Tensor, undo: Undo) -> None:
        """``A += W' diag(weights) W`` in place: O(n f^2)."""
        undo.append(partial(A.copy_, A.clone()))
        half = self.W * weights.sqrt().unsqueeze(-1)
        A.addmm_(half.mT, half)

    def transpose_times(self, values: Tensor, m: int) -> Tensor:
        """``W' values`` for ``o x n`` values: ``o x m``."""
        return values @ self.W


@dataclass(frozen=True)
class SpectralState(Sums):
    """Sums over sine features and, while they are all of them, the points summed over.

    Attributes:
        basis: The features.
        opening_X: The first points, ``w x d``; once more than ``w`` were seen, they are not used.
        opening_Y: Their targets.
        opening_R: Their noise variances, before any learned scale; zero where there is no point.
        chosen_at: Number of points when the features were last chosen anew.
    """

    basis: Basis  # type: ignore[misc]  # no field here has a default: `shaped` looks like one
    opening_X: Tensor = shaped("w d")
    opening_Y: Tensor = shaped("o w")
    opening_R: Tensor = shaped("s w", "not negative")
    chosen_at: Tensor = shaped("", "not negative")

    @classmethod
    def on(cls, basis: Basis, outputs: int, shared: bool, opening: int) -> Self:
        """Before any data."""
        f, d = basis.alpha.shape
        sums = Sums.none(f + 1, outputs, shared)
        zero = sums.b.new_zeros(())
        return cls(
            sums.A,
            sums.b,
            sums.yy,
            sums.origin,
            sums.ld,
            sums.weight,
            basis,
            zero.new_zeros(opening, d),
            zero.new_zeros(outputs, opening),
            zero.new_zeros(len(sums.A), opening),
            zero,
        )

    def totals(self) -> tuple[Tensor, Tensor, Tensor]:
        """``W'R^-1 1`` (``s x m``), ``1'R^-1 y`` (``o``) and ``1'R^-1 1`` (``s``)."""
        return self.A[..., -1], self.b[..., -1], self.A[..., -1, -1]

    def at_hand(self, n: int) -> bool:
        """Whether all n points summed over are held."""
        return n <= len(self.opening_X)

    def absorb_at(self, X: Tensor, Y: Tensor, R: Tensor, undo: Undo, n: int) -> SpectralState:
        """The state after a batch, with n points before it; O(q f^2)."""
        new = self.absorb(SpectralRows.at(self.basis, X), Y, R, undo, first=n == 0)
        new._hold_points(X, Y, R, undo, n)
        return new

    def _hold_points(self, X: Tensor, Y: Tensor, R: Tensor, undo: Undo, n: int) -> None:
        """Write points behind the first n, while there is room; in place, like A."""
        end = n + len(X)
        if not self.at_hand(end):
            return
        helds = (self.opening_X, self.opening_Y.mT, self.opening_R.mT)
        for held, new in zip(helds, (X, Y.mT, R.mT), strict=True):
            place = held[n:end]
            undo.append(partial(place.copy_, place.clone()))
            place.copy_(new)

    def on_basis(self, basis: Basis, n: int) -> SpectralState:
        """The same n points, all at hand, summed over other features: O(n f^2)."""
        rows = SpectralRows.at(basis, self.opening_X[:n])
        weights = 1.0 / self.opening_R[:, :n]
        y = self.opening_Y[:, :n] - self.origin.unsqueeze(-1)
        new = replace(
            self,
            A=torch.zeros_like(self.A),
            b=rows.transpose_times(weights * y, self.b.shape[-1]),
            basis=basis,
        )
        for A, r in zip(new.A, weights, strict=True):
            rows.add_outer(A, r, [])
        return new

    def along(self, other: Sums, n: int) -> Self:
        """The same n points summed over another state's features: O(n f^2).

        Raises:
            StateError: if the features differ and the points are no longer at hand.
        """
        basis = cast(SpectralState, other).basis
        if self.basis.same_as(basis):
            return self
        if not self.at_hand(n):
            raise _apart()
        return cast(Self, self.on_basis(basis, n))

    def rescaled(self, shift: Tensor, factor: Tensor, known_noise: bool) -> Self:
        """The state for targets ``(y - shift) / factor`` and, where known, noise to match."""
        Y = (self.opening_Y - shift.unsqueeze(-1)) / factor.unsqueeze(-1)
        Y = torch.where(self.opening_R[0] > 0.0, Y, 0.0)
        R = self.opening_R / factor.square().unsqueeze(-1) if known_noise else self.opening_R
        return replace(super().rescaled(shift, factor, known_noise), opening_Y=Y, opening_R=R)

    def discounted(self, factor: float) -> Self:
        """The state with everything it holds counted ``factor`` times: noisier points."""
        return replace(super().discounted(factor), opening_R=noisier(self.opening_R, factor))

    def merged_at(self, other: SpectralState, undo: Undo, n: int, others: int) -> SpectralState:
        """Both streams' data, n and others of them, counted from this one's origin: O(f^2).

        Raises:
            StateError: if the features differ and neither stream has all its points at hand.
        """
        mine = self
        if not mine.basis.same_as(other.basis):
            if other.at_hand(others):
                other = other.on_basis(mine.basis, others)
            elif mine.at_hand(n):
                mine = mine.on_basis(other.basis, n)
            else:
                raise _apart()
        mine = mine if n else mine.about(other.origin)
        if not torch.equal(other.origin, mine.origin):
            other = other.about(mine.origin)
        new = mine.merged(other)
        if other.at_hand(others):
            points = (other.opening_X[:others], other.opening_Y[:, :others])
            new._hold_points(*points, other.opening_R[:, :others], undo, n)
        return new


def _apart() -> StateError:
    return StateError(
        "two streams on the same features",
        "features chosen for other lengthscales, and points no longer at hand",
        "Build both with the same `lengthscales`.",
    )
