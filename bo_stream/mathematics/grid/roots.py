"""Roots of a grid's kernel matrix: small Choleskys multiplied, or a dense one (MATHS 2.3)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bo_stream.mathematics.grid.kronecker import kron_left, kron_merged, kron_right, partial_traces
from bo_stream.mathematics.linalg import with_jitter
from bo_stream.mathematics.sufficient_statistics.roots import DenseRoot, sandwich

__all__ = ["JITTER", "ProductRoot", "dense_root", "flushed", "jittered"]


JITTER = 1e-9
"""Relative to the kernel's amplitude."""


TINY = 1e-50
"""Relative size below which kernel values are zero: their products would be slow subnormal
numbers."""


class ProductRoot:
    """Root of ``amplitude * K_1 x .. x K_d``, unit-diagonal factors: the product of their
    Choleskys.
    """

    def __init__(self, amplitude: Tensor, kernels: Sequence[Tensor]) -> None:
        self.amplitude = amplitude
        self.factors = [_chol(flushed(K)) for K in kernels]
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


def dense_root(K: Tensor, band: int) -> DenseRoot:
    """Root of a dense kernel matrix, jittered; A is zero off the band."""
    return DenseRoot(_chol(K), band)


def jittered(K: Tensor) -> Tensor:
    """A kernel matrix with `JITTER` of its mean diagonal added to the diagonal."""
    return with_jitter(K, JITTER)


def _chol(K: Tensor) -> Tensor:
    return flushed(torch.linalg.cholesky(jittered(K)))


def flushed(K: Tensor) -> Tensor:
    """Zero for what is smaller than `TINY` of the largest."""
    return torch.where(K.abs() < TINY * K.diagonal().max(), 0.0, K)
