"""Evidence and posterior on a grid from the rows of W, while there are fewer rows than nodes.

On a large grid the first observations need no ``m x m`` factorisation: with the root
``A = (W'R^-1/2)(W'R^-1/2)'`` (MATHS 2.3, eqs. 11 and 12) everything goes through the ``n x n``
matrix ``W K W' + s2 R``. The rows are bounded state (at most m of them); past m they are not used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bo_stream.grid.nodes import Grid, Interpolation
from bo_stream.sums.evidence import attach
from bo_stream.sums.roots import BLOCK

__all__ = ["RowFactorisation", "evidence_from_rows", "factorise_rows"]


@dataclass(frozen=True)
class RowFactorisation:
    """What one evaluation leaves for the posterior at the same hyperparameters."""

    K: Tensor
    WK: Tensor
    L: Tensor
    h: Tensor
    mean: Tensor

    def cache(self) -> tuple[Tensor, Tensor]:
        """``m_u`` (with the constant mean added) and ``S_u = K - E'E``, ``E = L^-1 W K``."""
        E = torch.linalg.solve_triangular(self.L, self.WK, upper=False)
        S, m = torch.empty_like(self.K), len(self.K)
        for i in range(0, m, BLOCK):
            j = min(i + BLOCK, m)
            torch.addmm(self.K[i:j, :j], E[:, i:j].mT, E[:, :j], alpha=-1.0, out=S[i:j, :j])
            S[:i, i:j] = S[i:j, :i].mT
        return E.mT @ self.h + self.mean, S


def evidence_from_rows(
    values: Tensor,
    grid: Grid,
    rows: Interpolation,
    y: Tensor,
    r: Tensor,
    s2: Tensor,
    c: Tensor,
    profile_mean: bool,
) -> tuple[Tensor, RowFactorisation]:
    """Log evidence of one output, differentiable (once) in the kernel's values, s2 and c.

    Cost: O(m^2 + n m 4^d + n^2 4^d + n^3), memory O(m^2).

    Args:
        values: The kernel at the differences of the nodes (`Grid.differences`).
        grid: The nodes.
        rows: ``n x 4^d`` interpolation rows.
        y: ``n`` targets.
        r: ``n`` noise variances, before s2.
        s2: 0-dim noise scale.
        c: 0-dim constant mean.
        profile_mean: First set the constant mean to its optimum.
    """
    with torch.no_grad():
        K = grid.spread(values)
        WK = _rows_times(rows, K)
        C = _rows_times(rows, WK.mT.contiguous())
        value, (L, h, mean), G, alpha = factorise_rows(C, y, r, s2, c, profile_mean)
        spread = _transposed_times(rows, G, grid.m)
        gradients = [
            grid.collect(_transposed_times(rows, spread.mT.contiguous(), grid.m)),  # of W'G W
            (r * G.diagonal()).sum(),
            alpha.sum(),
        ]
    made = RowFactorisation(K, WK, L, h, mean)
    return attach(value, [values, s2, c], gradients), made


def factorise_rows(
    C: Tensor, y: Tensor, r: Tensor, s2: Tensor, c: Tensor, profile_mean: bool
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor], Tensor, Tensor]:
    """Log evidence of n targets with covariance ``C + s2 R``, and what follows from it: O(n^3).

    Args:
        C: ``n x n``.
        y: ``n`` targets.
        r: ``n`` noise variances, before s2.
        s2: 0-dim noise scale.
        c: 0-dim constant mean.
        profile_mean: First set the constant mean to its optimum.

    Returns:
        The evidence; the Cholesky factor L, ``L^-1 (y - mean)`` and the mean; the gradient of the
        evidence in C; and that in the targets, negative.
    """
    L, n = C.clone(), len(y)
    L.diagonal().add_(s2 * r)
    L = torch.linalg.cholesky(L)
    H = torch.linalg.solve_triangular(L, torch.stack([y, torch.ones_like(y)], -1), upper=False)
    mean = (H[:, 1] @ H[:, 0]) / (H[:, 1] @ H[:, 1]) if profile_mean else c.detach().clone()
    h = H[:, 0] - mean * H[:, 1]
    value = -0.5 * (h @ h + n * math.log(2.0 * math.pi)) - L.diagonal().log().sum()
    alpha = torch.linalg.solve_triangular(L.mT, h.unsqueeze(-1), upper=True).squeeze(-1)
    G = torch.cholesky_inverse(L).neg_().addr_(alpha, alpha).mul_(0.5)
    return value, (L, h, mean), G, alpha


def _rows_times(rows: Interpolation, M: Tensor) -> Tensor:
    """``W M`` for ``m x p`` M."""
    return F.embedding_bag(rows.index, M, per_sample_weights=rows.weight, mode="sum")


def _transposed_times(rows: Interpolation, M: Tensor, m: int) -> Tensor:
    """``W' M`` for ``n x p`` M."""
    nodes = rows.index.flatten()
    order = nodes.argsort()
    counts = nodes.bincount(minlength=m)
    return F.embedding_bag(
        order // rows.index.shape[-1],
        M,
        counts.cumsum(0) - counts,
        per_sample_weights=rows.weight.flatten()[order],
        mode="sum",
    )
