"""Linear algebra that every family shares: factors of covariances and triangular solves."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["chol_psd"]


def chol_psd(C: Tensor) -> Tensor:
    """Lower Cholesky factor of a covariance; a singular one gets jitter of 1e-10 of its mean
    diagonal, once.
    """
    L, info = torch.linalg.cholesky_ex(C)
    if not bool(info.any()):
        return L
    scale = C.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    eye = torch.eye(C.shape[-1], dtype=C.dtype, device=C.device)
    return torch.linalg.cholesky(C + 1e-10 * scale * eye)
