"""Sample functions of a prior, from random features of its kernel."""

from __future__ import annotations

from typing import Any

import torch
from botorch.sampling.pathwise.features import gen_kernel_features
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.mathematics.posterior.process import Path

__all__ = ["prior_path"]


def prior_path(kernel: Kernel, dim: int, mean: Tensor, sample_shape: Size, like: Tensor) -> Path:
    """Sample functions of the prior from BoTorch's random features of the kernel.

    Args:
        kernel: A stationary kernel BoTorch has features for (RBF, Matern, scaled, products).
        dim: Number of inputs.
        mean: Constant prior mean, ``o``.
        sample_shape: Shape of the draws.
        like: A tensor of the wanted dtype and device.
    """
    features: Any = gen_kernel_features(kernel=kernel, num_inputs=dim, num_outputs=1024)
    weights = torch.randn(*sample_shape, len(mean), 1024, 1, dtype=like.dtype, device=like.device)

    def sample(X: Tensor) -> Tensor:
        phi = features(X.unsqueeze(-3)).to(like)
        return mean.unsqueeze(-1) + (phi @ weights).squeeze(-1)

    return sample
