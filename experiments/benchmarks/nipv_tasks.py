"""What `nipv_cost` measures."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
from botorch.acquisition.active_learning import qNegIntegratedPosteriorVariance
from botorch.models import SingleTaskGP
from botorch.sampling.normal import SobolQMCNormalSampler
from torch import Tensor

from acquisitions import NIPV
from bo_stream import WISKI
from experiments.common.kernels import RAW

Q = 6


def data(n: int) -> tuple[Tensor, Tensor]:
    """Noisy observations of a smooth function on the unit square."""
    generator = torch.Generator().manual_seed(n)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X, torch.sin(6.0 * X).sum(-1, keepdim=True) + 0.3 * noise


def wiski(n: int, P: int, grid_size: int) -> NIPV:
    """Integrated variance over P test points on a stream that has seen n observations."""
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    return NIPV(WISKI(*data(n), bounds=bounds, grid_size=grid_size, **RAW), data(P)[0])


def stock(n: int, P: int) -> qNegIntegratedPosteriorVariance:
    """BoTorch's acquisition function on its exact GP."""
    sampler = SobolQMCNormalSampler(torch.Size([1]), seed=0)
    return qNegIntegratedPosteriorVariance(SingleTaskGP(*data(n)), data(P)[0], sampler)


def gradient(acqf: Callable[[Tensor], Tensor]) -> Tensor:
    """One value and gradient at q points."""
    X = torch.rand(1, Q, 2, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(acqf(X).sum(), X)
    return slope


def resident() -> float:
    """Resident memory of this process in MB (NaN where there is no /proc)."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return float("nan")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
