"""Sample functions: of a prior, from random features of its kernel, and products with many draws.

A matrix that all draws share is applied to them in one product or solve, and not once for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from botorch.sampling.pathwise.features import gen_kernel_features
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.errors import UnsupportedError

__all__ = ["Path", "noisy", "prior_path", "solved", "times"]

Path = Callable[[Tensor], Tensor]
"""Sample functions: points ``batch x q x d`` to values ``batch' x o x q``, where ``batch'`` is
``batch`` broadcast with ``sample_shape``, as in BoTorch: points may differ between samples."""


def prior_path(kernel: Kernel, outputs: int, sample_shape: Size, like: Tensor) -> Path:
    """Sample functions of a prior of mean zero, from BoTorch's random features of the kernel.

    Args:
        kernel: A stationary kernel BoTorch has features for (RBF, Matern, scaled).
        outputs: Number of outputs ``o``.
        sample_shape: Shape of the draws.
        like: Points, ``n x d``: their number of inputs, dtype and device are those wanted.

    Raises:
        UnsupportedError: for a kernel that BoTorch has no features for.
    """
    try:
        features: Any = gen_kernel_features(
            kernel=kernel, num_inputs=like.shape[-1], num_outputs=1024
        )
    except NotImplementedError as error:
        raise UnsupportedError(
            "a kernel that BoTorch has random features for: RBF, Matern, scaled",
            type(kernel).__name__,
            "Use `acquisitions.ThompsonSampling`, or samples of the joint posterior.",
        ) from error
    weights = torch.randn(*sample_shape, outputs, 1024, dtype=like.dtype, device=like.device)

    def sample(X: Tensor) -> Tensor:
        return times(features(X.unsqueeze(-3)).to(like), weights)

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


def noisy(values: Tensor, noise: Tensor) -> Tensor:
    """The values with independent Gaussian noise of these variances."""
    return values + noise.sqrt() * torch.randn_like(values)
