"""What `nipv_cost` measures."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from botorch.acquisition.active_learning import qNegIntegratedPosteriorVariance
from botorch.models import SingleTaskGP
from botorch.sampling.normal import SobolQMCNormalSampler
from torch import Tensor

from acquisitions import NIPV, select_from_pool
from bo_stream import HSGP, WISKI, CaGP, ExactGP, NodeWISKI, OnlineSGPR
from experiments.common.kernels import RAW

Q = 6
FAMILIES = (NodeWISKI, HSGP, OnlineSGPR, CaGP, ExactGP)
STEPS = 6


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


def pool_steps(family: Any, n: int, N: int, P: int) -> dict[str, Any]:
    """Seconds of pool steps of a learner that has seen n points, N candidates and P test points.

    Each choice is made twice: from what the surrogate keeps, and from laws made anew, which is what
    a pool of more than one chunk is left with. Medians of `STEPS` steps but the first.
    """
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    model, pool = family(*data(n), bounds=bounds), data(N + 1)[0][:N]
    acqf, kept, anew, same = NIPV(model, data(P + 2)[0][:P]), [], [], True
    for step in range(STEPS + 1):
        if step == STEPS:  # as a fit would
            kernel: Any = model.covar_module
            kernel.base_kernel.lengthscale = 0.9 * kernel.base_kernel.lengthscale
        model.process()
        start = time.process_time()
        chosen, _ = select_from_pool(acqf, pool, Q)
        kept.append(time.process_time() - start)
        start = time.process_time()
        expected, _ = select_from_pool(acqf, pool, Q, chunk_size=len(pool) - 1)
        anew.append(time.process_time() - start)
        same = same and torch.equal(chosen, expected)
        X = pool[chosen]
        model.observe(X, torch.sin(6.0 * X).sum(-1, keepdim=True))
        left = torch.ones(len(pool), dtype=torch.bool)
        left[chosen] = False
        pool = pool[left]
    before, now = statistics.median(anew), statistics.median(kept[1:STEPS])
    return {
        "family": family.__name__,
        "anew": before,
        "first step": kept[0],
        "step": now,
        "new hyperparameters": kept[STEPS],
        "step / anew": now / before,
        "same picks": same,
    }


def resident() -> float:
    """Resident memory of this process in MB (NaN where there is no /proc)."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return float("nan")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
