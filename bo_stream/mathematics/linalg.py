"""Linear algebra shared by all families: Cholesky factors, and zeros for negligible numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from torch import Tensor

__all__ = [
    "bordered",
    "chol_psd",
    "congruence",
    "flushed",
    "inverse_factor",
    "lower_factor",
    "pivoted_root",
    "with_jitter",
]

REPAIR = 1e-10
"""Largest share of the mean diagonal that is added to a covariance whose factorisation failed."""
LEAST, GROWTH = 2.0**-53, 4.0
"""The first share that is tried, a rounding error of one entry, and the factor of the next ones."""
ROUNDING = 1e-15
"""Share of the largest variance below which others are rounding errors."""
TINY = 1e-50
"""Relative size below which numbers are set to zero: products of them would be subnormal, which are
slow."""


def with_jitter(C: Tensor, jitter: float | Tensor) -> Tensor:
    """The covariance with a share of its mean diagonal added to the diagonal.

    Args:
        C: ``batch x n x n``.
        jitter: The share, or shares ``batch``.
    """
    scale = jitter * C.diagonal(dim1=-2, dim2=-1).mean(-1)
    return C + scale[..., None, None] * torch.eye(C.shape[-1], dtype=C.dtype, device=C.device)


def chol_psd(
    C: Tensor,
    repair: float = REPAIR,
    least: float = LEAST,
) -> Tensor:
    """Lower Cholesky factor of a covariance; if that fails, with as little jitter as it takes.

    A covariance that is singular but for rounding errors succeeds with little more than these, and
    a larger share counts as noise: 1e-9 of a variance of 1e7 misses data by tenths.

    Args:
        C: ``batch x n x n``, symmetric. Only those of a batch that fail get jitter.
        repair: The largest jitter, a share of the mean diagonal; 0 for none.
        least: The smallest jitter. An evidence takes ``repair``, so that it is low where doubles
            cannot tell the noise from none, and fits keep away from there.

    Raises:
        torch.linalg.LinAlgError: if the last attempt fails too.
    """
    L, info = torch.linalg.cholesky_ex(C)
    share, added = min(least, repair), torch.zeros_like(info, dtype=C.dtype)
    while share and bool(info.any()):
        added = torch.where(info > 0, share, added)
        L, info = torch.linalg.cholesky_ex(with_jitter(C, added))
        share = min(GROWTH * share, repair) if share < repair else 0.0
    return torch.linalg.cholesky(with_jitter(C, added)) if bool(info.any()) else L


def lower_factor(covariance: Callable[[], Tensor]) -> Tensor:
    """The lower Cholesky factor as from `chol_psd`, in half of the time.

    Args:
        covariance: Makes the covariance, ``n x n`` without gradient, which is overwritten; of it
            only the lower triangle is used.
    """
    C = covariance()
    if C.device.type != "cpu":
        return chol_psd(C)
    # the rows of a tensor are the columns of LAPACK
    upper, failed = lapack.dpotrf(C.numpy().T, lower=0, clean=1, overwrite_a=1)
    return chol_psd(covariance()) if failed else torch.from_numpy(upper.T)


def inverse_factor(L: Tensor) -> Tensor:
    """The inverse of a lower triangular matrix, without gradient; torch has none."""
    if L.device.type == "cpu" and len(L):
        upper, _ = lapack.dtrtri(L.numpy().T, lower=0)
        return torch.from_numpy(upper.T)
    eye = torch.eye(len(L), dtype=L.dtype, device=L.device)
    return torch.linalg.solve_triangular(L, eye, upper=False)


def pivoted_root(K: NDArray[np.float64]) -> NDArray[np.float64]:
    """A root F of a covariance ``g x g``, ``F F' = K`` up to rounding, ``g x r``: O(g r^2)."""
    factor, pivots, rank, _ = lapack.dpstrf(K, tol=ROUNDING * K.diagonal().max(), lower=1)
    root = np.empty((len(K), rank))
    root[pivots - 1] = np.tril(factor)[:, :rank]
    return root


def congruence(R: Tensor, A: Tensor) -> Tensor:
    """``R'A R`` for lower triangular R and symmetric A, without gradient, in half of the time."""
    if R.device.type != "cpu":
        return R.mT @ A @ R
    upper = R.numpy().T
    half = blas.dtrmm(1.0, upper, A.numpy().T)
    return torch.from_numpy(blas.dtrmm(1.0, upper, half, side=1, trans_a=1, overwrite_b=1).T)


def bordered(L: Tensor, cross: Tensor, corner: Tensor) -> Tensor:
    """The Cholesky factor of a covariance with more rows and columns.

    Args:
        L: The factor so far, ``batch x n x n``.
        cross: The new columns above the diagonal, ``batch x n x q``.
        corner: The new diagonal block, ``batch x q x q``.

    Raises:
        torch.linalg.LinAlgError: if the whole cannot be factorised, even with jitter.
    """
    n, below = L.shape[-1], torch.linalg.solve_triangular(L, cross, upper=False).mT
    whole = L.new_empty(*below.shape[:-2], n + below.shape[-2], n + below.shape[-2])
    whole[..., :n, :n], whole[..., n:, :n], whole[..., :n, n:] = L, below, 0.0
    whole[..., n:, n:] = chol_psd(corner - below @ below.mT)
    return whole


def flushed(K: Tensor) -> Tensor:
    """Zero for what is smaller than `TINY` of the largest."""
    return torch.where(K.abs() < TINY * K.amax(), 0.0, K) if K.numel() else K
