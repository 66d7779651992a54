"""A root of the kernel matrix of a grid's nodes (MATHS 2.3)."""

from __future__ import annotations

import torch
from torch import Tensor

from bo_stream.mathematics.linalg import with_jitter
from bo_stream.mathematics.sufficient_statistics.roots import DenseRoot

__all__ = ["JITTER", "TINY", "dense_root", "flushed", "jittered_root"]

JITTER = 1e-9
"""Relative to the kernel's amplitude."""
TINY = 1e-50
"""Relative size below which kernel values are set to zero: products of such values would be
subnormal numbers, which are slow."""


def dense_root(K: Tensor, band: int) -> DenseRoot:
    """Root of a dense kernel matrix with jitter; A is zero off the band."""
    return DenseRoot(flushed(jittered_root(K)), band)


def jittered_root(K: Tensor) -> Tensor:
    """Cholesky factor of a kernel matrix with jitter."""
    return torch.linalg.cholesky(with_jitter(K, JITTER))


def flushed(K: Tensor) -> Tensor:
    """Zero for what is smaller than `TINY` of the largest."""
    return torch.where(K.abs() < TINY * K.diagonal().max(), 0.0, K) if len(K) else K
