"""Kernels: frozen copies, and values between points."""

from __future__ import annotations

import copy

from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.smooth_matern import smoothed

__all__ = ["cross_kernel", "frozen_kernel"]


def frozen_kernel(kernel: Kernel) -> Kernel:
    """A detached float64 copy of the kernel, with second derivatives."""
    return smoothed(copy.deepcopy(kernel).requires_grad_(False).double().eval())


def cross_kernel(kernel: Kernel, X: Tensor, Z: Tensor) -> Tensor:
    """Kernel values ``batch x o x q x q'`` between ``batch x q x d`` and ``batch x q' x d``."""
    return kernel(X.unsqueeze(-3), Z.unsqueeze(-3)).to_dense()
