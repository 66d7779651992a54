"""What a trust region needs to know of a gpytorch kernel: its form, lengthscales and scale."""

from __future__ import annotations

from typing import cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.kernels import stationary

__all__ = ["has_closed_form", "lengthscales_in", "scale_of"]


def has_closed_form(kernel: Kernel, dim: int) -> bool:
    """Whether it is ``ScaleKernel(MaternKernel(2.5, ard_num_dims=dim))``, unbatched."""
    found = stationary(kernel, dim)
    if found is None or found.nu != 2.5 or len(found.scales) != 1:
        return False
    batched = kernel.batch_shape or found.base.batch_shape
    return not batched and found.base.ard_num_dims == dim


def lengthscales_in(kernel: Kernel, dim: int) -> Tensor | None:
    """Its lengthscales, ``d``, float64, detached; None if it has not one set of them."""
    base = getattr(kernel, "base_kernel", kernel)
    if not base.has_lengthscale or base.batch_shape:
        return None
    return cast(Tensor, base.lengthscale).detach().double().reshape(-1).expand(dim)


def scale_of(kernel: Kernel, dim: int) -> Tensor:
    """Its output scale, 0-dim, float64, differentiable; one if it has no closed form."""
    if not has_closed_form(kernel, dim):
        return torch.ones((), dtype=torch.float64)
    return cast(Tensor, kernel.outputscale).double()
