"""Evidence among the features of an eigenbasis, for one output [MATHS 2.3, 2.4, 2.7]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_stream.mathematics.grid.eigenbasis import Eigenbasis
from bo_stream.mathematics.grid.nodes import Grid
from bo_stream.mathematics.sufficient_statistics.evidence import (
    Factorisation,
    Statistics,
    factorise,
)

__all__ = ["MOST", "InEigenbasis", "chosen_basis", "reduced_evidence"]

MOST = 4000
"""Features that an evidence takes at most."""
TOLERATED = 1.5
"""Variance left out, in units of the noise of one observation that tells as much as all of them
together. The evidence is off by less than a hundredth of this."""


@dataclass(frozen=True)
class InEigenbasis:
    """One output's factorisation among the features of its eigenbasis, of unit prior variance."""

    basis: Eigenbasis
    made: Factorisation

    @property
    def mean(self) -> Tensor:
        """The constant mean, counted from the origin."""
        return self.made.mean

    def cache(self) -> tuple[Tensor, Tensor]:
        """Mean (with the constant one added) and covariance of the values at the nodes."""
        basis = self.basis
        half = basis.at_nodes(self.made.Q_inv)
        S = basis.at_nodes(half.mT)
        return basis.at_nodes(self.made.q.unsqueeze(-1)).squeeze(-1) + self.mean, S


def chosen_basis(grid: Grid, factors: Sequence[Tensor], s2: Tensor, one: Tensor) -> Eigenbasis:
    """An eigenbasis large enough for the noise and number of the observations.

    Args:
        grid: The nodes.
        factors: The kernel's amplitude and its unit-diagonal factors, without gradient.
        s2: Noise scale, 0-dim.
        one: ``1'R^-1 1``, 0-dim.
    """
    amplitude, *kernels = factors
    tolerance = float(TOLERATED * s2.detach() / (amplitude * one))
    return Eigenbasis.chosen(grid, amplitude, kernels, tolerance, MOST)


def reduced_evidence(
    basis: Eigenbasis, gram: Tensor, stats: Statistics, s2: Tensor, c: Tensor, profile_mean: bool
) -> tuple[Tensor, list[Tensor], InEigenbasis]:
    """`factorise` among the features of an eigenbasis.

    Args:
        basis: The eigenbasis, with features F of the nodes.
        gram: ``F'A F``; its lower triangle.
        stats: Sums over the nodes; their A is not used.
        s2: Noise scale, 0-dim.
        c: Constant mean, counted from the origin.
        profile_mean: Take the best constant mean instead.
    """
    b, w1 = basis.of_nodes(torch.stack([stats.b, stats.w1], -1)).unbind(-1)
    own = Statistics(gram, b, stats.yy, stats.ld, stats.n, w1, stats.y1, stats.one)
    value, grads, made = factorise(_UnitRoot(basis), own, s2, c, profile_mean)
    return value, grads, InEigenbasis(basis, made)


class _UnitRoot:
    """Root of the prior covariance of features of unit variance."""

    def __init__(self, basis: Eigenbasis) -> None:
        self.basis = basis

    def left(self, M: Tensor) -> Tensor:
        return M

    def left_t(self, M: Tensor) -> Tensor:
        return M

    def project(self, A: Tensor) -> Tensor:
        return A.clone()

    def lift(self, Q_inv: Tensor) -> Tensor:
        return Q_inv

    def gradient(self, Y: Tensor) -> list[Tensor]:
        return self.basis.gradients(Y)
