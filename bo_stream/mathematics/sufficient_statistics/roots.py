"""Roots of dense kernel matrices (MATHS 2.3, 2.4)."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["BLOCK", "DenseRoot", "sandwich"]

BLOCK = 256


class DenseRoot:
    """Cholesky root of a dense kernel matrix.

    Args:
        R: Lower triangular, ``m x m``.
        band: ``A`` is zero between nodes whose numbers differ by this or more; None: nowhere.
    """

    def __init__(self, R: Tensor, band: int | None = None) -> None:
        self.R = R
        self.band = len(R) if band is None else band

    def left(self, M: Tensor) -> Tensor:
        """``R M``."""
        return self.R @ M

    def left_t(self, M: Tensor) -> Tensor:
        """``R' M``."""
        return self.R.mT @ M

    def project(self, A: Tensor) -> Tensor:
        """``R' A R`` by blocks, which skip the zeros of R and of A."""
        R, m = self.R, len(A)
        AR, B = torch.zeros_like(R), torch.empty_like(R)
        for i in range(0, m, BLOCK):
            j = min(i + BLOCK, m)
            if self.band < m:
                low, high = max(0, i - self.band), min(m, j + self.band)
                AR[i:j, :high] = A[i:j, low:high] @ R[low:high, :high]
            else:
                AR[:, i:j] = A[:, i:] @ R[i:, i:j]
        for i in range(0, m, BLOCK):
            j = min(i + BLOCK, m)
            B[i:j, :j] = R[i:, i:j].mT @ AR[i:, :j]
        return B

    def lift(self, Q_inv: Tensor) -> Tensor:
        """``R Q^-1 R'`` by blocks of the lower triangle."""
        R, m = self.R, len(Q_inv)
        RQ, S = torch.empty_like(R), torch.empty_like(R)
        for i in range(0, m, BLOCK):
            j = min(i + BLOCK, m)
            RQ[i:j] = R[i:j, :j] @ Q_inv[:j]
        for i in range(0, m, BLOCK):
            j = min(i + BLOCK, m)
            S[i:, i:j] = RQ[i:, :j] @ R[i:j, :j].mT
            S[i:j, j:] = S[j:, i:j].mT
        return S

    def gradient(self, Y: Tensor) -> list[Tensor]:
        """Gradient in K: ``1/2 R^-T Y R^-1``."""
        return [sandwich(self.R, Y).mul_(0.5)]


def sandwich(R: Tensor, Y: Tensor) -> Tensor:
    """``R^-T Y R^-1`` for lower R and symmetric Y, by halves, computing each symmetric block
    once.
    """
    m = len(R)
    if m <= BLOCK:
        half = torch.linalg.solve_triangular(R.mT, Y, upper=True)
        return torch.linalg.solve_triangular(R.mT, half.mT, upper=True)
    h = m // 2
    R11, R21, R22 = R[:h, :h], R[h:, :h], R[h:, h:]
    X21 = torch.linalg.solve_triangular(R22.mT, Y[h:, :h], upper=True)
    P22 = sandwich(R22, Y[h:, h:])
    PR = P22 @ R21
    P21 = torch.linalg.solve_triangular(R11, X21 - PR, upper=False, left=False)
    inner = R21.mT @ (X21 - 0.5 * PR)
    P11 = sandwich(R11, Y[:h, :h] - inner - inner.mT)
    return torch.cat([torch.cat([P11, P21.mT], 1), torch.cat([P21, P22], 1)])
