"""Roots of a grid's kernel matrix: small Choleskys multiplied, or a dense one (MATHS 2.3)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bo_stream.grid.kronecker import kron_left, kron_merged, kron_right, partial_traces

__all__ = ["DenseRoot", "ProductRoot", "sandwich"]


JITTER = 1e-9
"""Relative to the kernel's amplitude."""


BLOCK = 256


TINY = 1e-50
"""Relative size below which kernel values are zero: their products would be slow subnormal
numbers."""


class ProductRoot:
    """Root of ``amplitude * K_1 x .. x K_d``, unit-diagonal factors: the product of their
    Choleskys.
    """

    def __init__(self, amplitude: Tensor, kernels: Sequence[Tensor]) -> None:
        self.amplitude = amplitude
        self.factors = [_chol(_flush(K)) for K in kernels]
        self.merged = kron_merged(self.factors)
        self.transposed = [R.mT.contiguous() for R in self.merged]

    def left(self, M: Tensor) -> Tensor:
        """``R M``: O(m p sum n_k)."""
        return kron_left(self.merged, M) * self.amplitude.sqrt()

    def left_t(self, M: Tensor) -> Tensor:
        """``R' M``: O(m p sum n_k)."""
        return kron_left(self.transposed, M) * self.amplitude.sqrt()

    def project(self, A: Tensor) -> Tensor:
        """``R' A R``: O(m^2 sum n_k)."""
        return kron_right(kron_left(self.transposed, A), self.transposed).mul_(self.amplitude)

    def lift(self, Q_inv: Tensor) -> Tensor:
        """``R Q^-1 R'``: O(m^2 sum n_k)."""
        return kron_right(kron_left(self.merged, Q_inv), self.merged).mul_(self.amplitude)

    def gradient(self, Y: Tensor) -> list[Tensor]:
        """Gradients in the amplitude and in each factor, by partial traces (end of MATHS 2.4)."""
        sizes = [R.shape[-1] for R in self.factors]
        grads = [0.5 * Y.diagonal().sum() / self.amplitude]
        for R, T in zip(self.factors, partial_traces(Y, sizes), strict=True):
            grads.append(sandwich(R, 0.5 * T))
        return grads


class DenseRoot:
    """Cholesky root of a dense kernel matrix.

    Args:
        K: ``m x m``.
        band: ``A`` couples only nodes whose numbers differ by less than this.
    """

    def __init__(self, K: Tensor, band: int) -> None:
        self.R = _chol(K)
        self.band = band

    def left(self, M: Tensor) -> Tensor:
        """``R M``."""
        return self.R @ M

    def left_t(self, M: Tensor) -> Tensor:
        """``R' M``."""
        return self.R.mT @ M

    def project(self, A: Tensor) -> Tensor:
        """``R' A R`` by blocks, skipping what is zero in R and, off the band, in A: m^3 flops of
        4.
        """
        R, m = self.R, len(A)
        AR, B = torch.zeros_like(R), torch.empty_like(R)
        for i in range(0, m, BLOCK):
            j = min(i + BLOCK, m)
            low, high = max(0, i - self.band), min(m, j + self.band)
            AR[i:j, :high] = A[i:j, low:high] @ R[low:high, :high]
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


def _chol(K: Tensor) -> Tensor:
    jitter = JITTER * K.diagonal().mean()
    K = K.clone()
    K.diagonal().add_(jitter)
    return _flush(torch.linalg.cholesky(K))


def _flush(K: Tensor) -> Tensor:
    """Zero for what is smaller than `TINY` of the largest."""
    return torch.where(K.abs() < TINY * K.diagonal().max(), 0.0, K)
