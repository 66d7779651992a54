"""Streams on grids, and streams on grids too coarse."""

from typing import Any

import torch
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from bo_stream import WISKI
from tests.raw import RAW

BOUNDS = torch.tensor([[-1.0, 0.5], [1.0, 2.0]]).double()


def data(n: int, outputs: int = 1, seed: int = 0, wave: float = 2.0) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    U = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    X = BOUNDS[0] + (BOUNDS[1] - BOUNDS[0]) * U
    Y = (wave * X.sum(-1, keepdim=True) + torch.arange(outputs)).sin()
    Y = Y + 0.1 * torch.randn(n, outputs, generator=generator, dtype=torch.float64)
    return X, Y, 0.01 + 0.02 * torch.rand(n, outputs, generator=generator, dtype=torch.float64)


def build(n: int, mode: str = "learned", outputs: int = 1, seed: int = 0, **kw: Any) -> WISKI:
    X, Y, Yvar = data(n, outputs, seed)
    likelihood = GaussianLikelihood() if mode == "scaled" else None
    kw = {"grid_size": (9, 8), "bounds": BOUNDS, "likelihood": likelihood, **RAW, **kw}
    model = WISKI(X, Y, None if mode == "learned" else Yvar, **kw)
    for i, p in enumerate(model.parameters()):
        p.data.add_(0.1 * (i + 1))
    return model
