"""Linear algebra shared by all families: Cholesky factors, low-rank factors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["chol_psd", "low_rank", "with_jitter"]

REPAIR = 1e-10
"""Share of the mean diagonal that is added to a covariance whose factorisation failed."""


def with_jitter(C: Tensor, jitter: float) -> Tensor:
    """The covariance with a share of its mean diagonal added to the diagonal.

    Args:
        C: ``batch x n x n``.
        jitter: The share.
    """
    scale = C.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    return C + jitter * scale * torch.eye(C.shape[-1], dtype=C.dtype, device=C.device)


def chol_psd(
    C: Tensor, repair: float = REPAIR, error: Callable[[int], Exception] | None = None
) -> Tensor:
    """Lower Cholesky factor of a covariance; if that fails, of the covariance with jitter.

    Args:
        C: ``batch x n x n``, symmetric.
        repair: The jitter of the second attempt, a share of the mean diagonal; 0 for none.
        error: Makes the exception from the number of the row that failed.

    Raises:
        torch.linalg.LinAlgError: if the last attempt fails too and ``error`` was left out.
    """
    L, info = torch.linalg.cholesky_ex(C)
    if repair and bool(info.any()):
        C = with_jitter(C, repair)
        L, info = torch.linalg.cholesky_ex(C)
    if bool(info.any()):
        if error is not None:
            raise error(int(info.max()))
        return torch.linalg.cholesky(C)
    return L


def low_rank(D: Tensor, most: int, tolerance: float) -> tuple[Tensor, Tensor] | None:
    """A symmetric matrix as ``E' diag(s) E``, if its rank is low.

    Its range is found with random vectors of a fixed seed: O(r^2 most).

    Args:
        D: ``batch x r x r``.
        most: Highest rank tried.
        tolerance: Largest entry that may be left out.

    Returns:
        ``E`` (``batch x k x r``, orthonormal rows) and ``s`` (``batch x k``), or None if the
        rank is higher than ``most``.
    """
    if not D.numel():
        return D, D.diagonal(dim1=-2, dim2=-1)
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(D.shape[-1], most, generator=generator, dtype=D.dtype).to(D.device)
    Q = torch.linalg.qr(D @ draws).Q
    s, V = torch.linalg.eigh(Q.mT @ D @ Q)
    E = (Q @ V).mT
    kept = s.abs().reshape(-1, s.shape[-1]).amax(0) > 1e-3 * tolerance
    E, s = E[..., kept, :], s[..., kept]
    missed = D - E.mT @ (s.unsqueeze(-1) * E)
    return None if float(missed.abs().max()) > tolerance else (E, s)
