"""What `wiski_cost` measures."""

from __future__ import annotations

import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from bo_stream import WISKI
from experiments.common.kernels import RAW, scaled


def stream(n: int, product: bool, sizes: int) -> WISKI:
    """A 3-D surrogate that has seen n points of a smooth function with noise."""
    kernel = None if product else scaled(MaternKernel(nu=1.5, ard_num_dims=3))
    model = WISKI(
        torch.empty(0, 3, dtype=torch.float64),
        torch.empty(0, 1, dtype=torch.float64),
        bounds=torch.tensor([[0.0] * 3, [1.0] * 3]),
        covar_module=kernel,
        grid_size=sizes,
        **RAW,
    )
    generator = torch.Generator().manual_seed(n)
    X = torch.rand(n, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    model.observe(X, torch.sin(6.0 * X).sum(-1, keepdim=True) + 0.3 * noise)
    model.covar_module.base_kernel.lengthscale = 0.5
    model.likelihood.noise = 0.1
    return model


def observe(model: WISKI, X: Tensor, Y: Tensor) -> None:
    """A batch more."""
    model.observe(X, Y)


def posterior(model: WISKI, T: Tensor) -> None:
    """Joint mean and single variances."""
    at_T = model.posterior(T)
    torch.stack([at_T.mean, at_T.variance])


def evidence(model: WISKI) -> None:
    """Value and gradient."""
    model.zero_grad()
    model.log_evidence().backward()
