"""Evidence in the eigenbasis of a product kernel, for one output [MATHS 2.3, 2.4, 2.7]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_stream.mathematics.grid.eigenbasis import Eigenbasis
from bo_stream.mathematics.grid.nodes import Grid
from bo_stream.mathematics.sufficient_statistics.evidence import (
    OutputStatistics,
    RootFactorisation,
    factorise,
)

__all__ = ["EigenbasisFactorisation", "chosen_basis", "eigenbasis_evidence"]

TRUNCATED_FROM = 500
"""Nodes from which eigenvectors are left out; on fewer nodes this saves little."""
ROUNDING = 1e-14
"""Share of the largest eigenvalue below which the others are rounding errors."""
TOLERATED = 1.5
"""Variance left out, in units of the noise variance of all observations pooled. The evidence is
off by less than a hundredth of this."""


@dataclass(frozen=True)
class EigenbasisFactorisation:
    """One output's factorisation among the features of its eigenbasis, of unit prior variance."""

    basis: Eigenbasis
    made: RootFactorisation

    @property
    def mean(self) -> Tensor:
        """The constant mean, counted from the origin."""
        return self.made.mean

    def node_values(self) -> tuple[Tensor, Tensor]:
        """Mean (with the constant mean added) and covariance of the values at the nodes."""
        basis = self.basis
        half = basis.at_nodes(self.made.Q_inv)
        S = basis.at_nodes(half.mT)
        return basis.at_nodes(self.made.q.unsqueeze(-1)).squeeze(-1) + self.mean, S


def chosen_basis(
    grid: Grid, factors: Sequence[Tensor], s2: Tensor, one: Tensor, most: int
) -> Eigenbasis:
    """The eigenvectors that matter given noise and number of the observations.

    Args:
        grid: The nodes.
        factors: The kernel's amplitude and its unit-diagonal factors, without gradient.
        s2: Noise scale, 0-dim.
        one: ``1'R^-1 1``, 0-dim.
        most: Number of eigenvectors at most, if `eigenbasis.LIMIT` allows it; else there are more.
    """
    amplitude, *kernels = factors
    if grid.m < TRUNCATED_FROM:
        return Eigenbasis.of(grid, amplitude, kernels, ROUNDING)
    tolerance = float(TOLERATED * s2.detach() / (amplitude * one))
    return Eigenbasis.chosen(grid, amplitude, kernels, tolerance, most)


def eigenbasis_evidence(
    basis: Eigenbasis,
    gram: Tensor,
    stats: OutputStatistics,
    s2: Tensor,
    c: Tensor,
    profile_mean: bool,
) -> tuple[Tensor, list[Tensor], EigenbasisFactorisation]:
    """`factorise` among the features of an eigenbasis: O(r^3).

    Args:
        basis: The eigenbasis, with features F of the nodes.
        gram: ``F'A F``; its lower triangle.
        stats: Statistics over the nodes; their A is not used.
        s2: Noise scale, 0-dim.
        c: Constant mean, counted from the origin.
        profile_mean: Take the optimal constant mean instead.
    """
    b, w1 = basis.of_nodes(torch.stack([stats.b, stats.w1], -1)).unbind(-1)
    own = OutputStatistics(gram, b, stats.yy, stats.ld, stats.n, w1, stats.y1, stats.one)
    value, grads, made = factorise(_UnitRoot(basis), own, s2, c, profile_mean)
    return value, grads, EigenbasisFactorisation(basis, made)


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
