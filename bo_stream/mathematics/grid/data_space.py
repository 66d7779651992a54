"""Evidence and posterior on a grid from the observations, while they are few.

With the root ``A = (W'R^-1/2)(W'R^-1/2)'`` (MATHS 2.3, eqs. 11 and 12) all is computed from the
``n x n`` matrix ``W K W' + s2 R``. For a product kernel ``W K W'`` is an elementwise product over
dimensions, and K is needed only for the posterior at the nodes. The points are held in the state,
and their rows W are computed again for each evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bo_stream.mathematics.evidence import attach
from bo_stream.mathematics.grid.nodes import Grid, Interpolation
from bo_stream.mathematics.grid.roots import flushed
from bo_stream.mathematics.grid.weights import weighted_rows
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.sufficient_statistics.roots import BLOCK

__all__ = [
    "DensePrior",
    "ProductPrior",
    "DataSpaceFactorisation",
    "DataSpacePrior",
    "evidence_from_data",
]


class DataSpacePrior(Protocol):
    """The prior covariance of the values at n points on a grid."""

    def detached(self) -> DataSpacePrior:
        """The same, without gradient."""
        ...

    def covariance(self) -> Tensor:
        """``W K W'``, ``n x n``, differentiable (once) in the kernel."""
        ...

    def nodes(self) -> tuple[Tensor, Tensor]:
        """``K`` and ``W K``."""
        ...


@dataclass(frozen=True)
class ProductPrior:
    """Of the product kernel ``amplitude * K_1 x .. x K_d``.

    Attributes:
        amplitude: 0-dim.
        kernels: The factors ``K_k``.
        rows: Per dimension the rows ``W_k``, dense, ``n x g_k``.
    """

    amplitude: Tensor
    kernels: Sequence[Tensor]
    rows: Sequence[Tensor]

    def detached(self) -> ProductPrior:
        """The same, without gradient."""
        kernels = [K.detach() for K in self.kernels]
        return ProductPrior(self.amplitude.detach(), kernels, self.rows)

    def covariance(self) -> Tensor:
        """``W K W'``: O(d n^2) and the products of one dimension each."""
        factors = [W @ K @ W.mT for K, W in zip(self.kernels, self.rows, strict=True)]
        return self.amplitude * flushed(math.prod(factors[1:], start=factors[0]))

    def nodes(self) -> tuple[Tensor, Tensor]:
        """``K`` and ``W K``: O(m^2 + n m)."""
        K, WK = self.amplitude.reshape(1, 1), self.amplitude.expand(len(self.rows[0]), 1)
        for factor, W in zip(self.kernels, self.rows, strict=True):
            K = flushed(torch.kron(K, factor))
            WK = (WK.unsqueeze(-1) * (W @ factor).unsqueeze(-2)).flatten(-2)
        return K, WK


@dataclass(frozen=True)
class DensePrior:
    """Of a kernel that is not a product.

    Attributes:
        values: The kernel at the differences of the nodes (`Grid.differences`).
        grid: The nodes.
        rows: ``n x 4^d`` interpolation rows.
    """

    values: Tensor
    grid: Grid
    rows: Interpolation

    def detached(self) -> DensePrior:
        """The same, without gradient."""
        return DensePrior(self.values.detach(), self.grid, self.rows)

    def covariance(self) -> Tensor:
        """``W K W'``: O(m^2 + n m 4^d + n^2 4^d)."""
        return _rows_times(self.rows, self.nodes()[1].mT.contiguous())

    def nodes(self) -> tuple[Tensor, Tensor]:
        """``K`` and ``W K``: O(m^2 + n m 4^d)."""
        K = self.grid.spread(self.values)
        return K, _rows_times(self.rows, K)


@dataclass(frozen=True)
class DataSpaceFactorisation:
    """Factorisation of ``W K W' + s2 R``, kept for the posterior at the same hyperparameters."""

    prior: DataSpacePrior
    L: Tensor
    h: Tensor
    mean: Tensor

    def node_values(self) -> tuple[Tensor, Tensor]:
        """``m_u`` (with the constant mean added) and ``S_u = K - E'E``, ``E = L^-1 W K``."""
        K, WK = self.prior.nodes()
        E = torch.linalg.solve_triangular(self.L, WK, upper=False)
        S, m = torch.empty_like(K), len(K)
        for i in range(0, m, BLOCK):
            j = min(i + BLOCK, m)
            torch.addmm(K[i:j, :j], E[:, i:j].mT, E[:, :j], alpha=-1.0, out=S[i:j, :j])
            S[:i, i:j] = S[i:j, :i].mT
        return E.mT @ self.h + self.mean, S


def evidence_from_data(
    prior: DataSpacePrior, y: Tensor, r: Tensor, s2: Tensor, c: Tensor, profile_mean: bool
) -> tuple[Tensor, DataSpaceFactorisation]:
    """Log evidence of one output, differentiable (once) in the prior, s2 and c.

    Costs O(n^3) and ``prior.covariance``.

    Args:
        prior: The prior covariance.
        y: ``n`` targets.
        r: ``n`` noise variances, before s2.
        s2: 0-dim noise scale.
        c: 0-dim constant mean.
        profile_mean: First set the constant mean to its optimum.
    """
    n, covariance = len(y), prior.covariance()
    with torch.no_grad():
        L = covariance.clone()
        L.diagonal().add_(s2 * r)
        L = chol_psd(L)
        H = torch.linalg.solve_triangular(L, torch.stack([y, torch.ones_like(y)], -1), upper=False)
        best = profile_mean and n > 0
        mean = (H[:, 1] @ H[:, 0]) / (H[:, 1] @ H[:, 1]) if best else c.detach().clone()
        h = H[:, 0] - mean * H[:, 1]
        value = -0.5 * (h @ h + n * math.log(2.0 * math.pi)) - L.diagonal().log().sum()
        alpha = torch.linalg.solve_triangular(L.mT, h.unsqueeze(-1), upper=True).squeeze(-1)
        G = torch.cholesky_inverse(L).neg_().addr_(alpha, alpha).mul_(0.5)
        gradients = [G, (r * G.diagonal()).sum(), alpha.sum()]
    made = DataSpaceFactorisation(prior.detached(), L, h, mean)
    return attach(value, [covariance, s2, c], gradients), made


def _rows_times(rows: Interpolation, M: Tensor) -> Tensor:
    """``W M`` for ``m x p`` M."""
    return weighted_rows(M, rows.index, rows.weight)
