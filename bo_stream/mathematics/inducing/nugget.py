"""The independent noise of inducing values, which makes their covariance positive definite."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.inducing.state import dense, diagonal

__all__ = ["factored"]


def factored(kernel: Kernel, Z: Tensor, nugget: Tensor, jitter: float) -> tuple[Tensor, Tensor]:
    """``chol(K(Z, Z) + diag(nugget))`` and the nugget: where it is too small for this kernel, the
    jitter for all. O(M^3).
    """
    K = dense(kernel, Z)
    L, info = torch.linalg.cholesky_ex(K + torch.diag(nugget))
    if not bool(info):
        return L, nugget
    nugget = jitter * diagonal(kernel, Z).mean().expand_as(nugget)
    return torch.linalg.cholesky(K + torch.diag(nugget)), nugget
