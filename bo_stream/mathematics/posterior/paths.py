"""Sample functions of a prior, from random features of its kernel, and products with many draws.

A matrix that all draws share is applied to them in one product or solve, and not once for each.
"""

from __future__ import annotations

from typing import Any

import torch
from botorch.sampling.pathwise.features import gen_kernel_features
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.posterior.process import Path

__all__ = ["prior_path", "solved", "times"]


def prior_path(kernel: Kernel, dim: int, mean: Tensor, sample_shape: Size, like: Tensor) -> Path:
    """Sample functions of the prior from BoTorch's random features of the kernel.

    Args:
        kernel: A stationary kernel BoTorch has features for (RBF, Matern, scaled).
        dim: Number of inputs.
        mean: Constant prior mean, ``o``.
        sample_shape: Shape of the draws.
        like: A tensor of the wanted dtype and device.

    Raises:
        UnsupportedError: for a kernel that BoTorch has no features for.
    """
    try:
        features: Any = gen_kernel_features(kernel=kernel, num_inputs=dim, num_outputs=1024)
    except NotImplementedError as error:
        raise UnsupportedError(
            "a kernel that BoTorch has random features for: RBF, Matern, scaled",
            type(kernel).__name__,
            "Use `acquisitions.ThompsonSampling`, or samples of the joint posterior.",
        ) from error
    weights = torch.randn(*sample_shape, len(mean), 1024, dtype=like.dtype, device=like.device)

    def sample(X: Tensor) -> Tensor:
        return mean.unsqueeze(-1) + times(features(X.unsqueeze(-3)).to(like), weights)

    return sample


def times(M: Tensor, v: Tensor) -> Tensor:
    """``M v`` for ``batch x o x q x r`` M and ``batch' x o x r`` v: ``batch" x o x q``.

    Without ``batch``, M is shared by all v.
    """
    if M.ndim > 3:
        return (M @ v.unsqueeze(-1)).squeeze(-1)
    columns = v.reshape(v.shape[:-2].numel(), *v.shape[-2:]).movedim(1, 0)  # o x S x r
    return (columns @ M.mT).movedim(0, 1).reshape(*v.shape[:-1], M.shape[-2])


def solved(L: Tensor, v: Tensor, *, upper: bool) -> Tensor:
    """``L^-1 v`` for ``o x r x r`` triangular L and ``batch x o x r`` v."""
    columns = v.reshape(v.shape[:-2].numel(), *v.shape[-2:]).movedim(0, -1)  # o x r x S
    return torch.linalg.solve_triangular(L, columns, upper=upper).movedim(-1, 0).view(v.shape)
