"""What `large_grid_cost` measures."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bo_stream import WISKI
from bo_stream.mathematics.grid.bands import axis_rows
from bo_stream.mathematics.posterior.features import FeatureProcess
from experiments.common.kernels import RAW

NOISE, MEAN = 0.1, 0.2


def data(n: int) -> tuple[Tensor, Tensor]:
    """A smooth function seen with noise."""
    generator = torch.Generator().manual_seed(n)
    X = torch.rand(n, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X, torch.sin(6.0 * X).sum(-1, keepdim=True) + math.sqrt(NOISE) * noise


def stream(n: int, size: int, lengthscale: float) -> WISKI:
    """A 3-D surrogate on ``size^3`` nodes that has seen n points."""
    bounds = torch.tensor([[0.0] * 3, [1.0] * 3])
    model = WISKI(*data(n), bounds=bounds, grid_size=size, **RAW)
    model.covar_module.base_kernel.lengthscale = lengthscale
    model.covar_module.outputscale = 1.0
    model.likelihood.noise = NOISE
    model.mean_module.constant = MEAN
    return model


def observe(model: WISKI, T: Tensor) -> None:
    """One point more, and the posterior after it."""
    at_T = model.observe(T[:1], T[:1, :1]).posterior(T)
    torch.stack([at_T.mean, at_T.variance])


def form(model: WISKI) -> dict[str, Any]:
    """Numbers of the state and of the posterior's features, and what these leave out."""
    process = model.process()
    features = process.mean_u.shape[-1] if isinstance(process, FeatureProcess) else None
    left_out = model.dropped_variance
    return {"MB": model.state_bytes / 1e6, "features": features, "left out": left_out}


def differences(model: WISKI, T: Tensor) -> dict[str, float]:
    """Evidence and posterior mean against dense algebra with the grid's prior."""
    with torch.no_grad():
        X, Y = data(model.num_observed)
        K = _prior(model, torch.cat([X, T]))
        n, y = len(X), Y[:, 0] - MEAN
        L = torch.linalg.cholesky(K[:n, :n] + NOISE * torch.eye(n, dtype=K.dtype))
        alpha = torch.cholesky_solve(y.unsqueeze(-1), L).squeeze(-1)
        evidence = -0.5 * (y @ alpha + n * math.log(2.0 * math.pi)) - L.diagonal().log().sum()
        mean = MEAN + K[n:, :n] @ alpha
        return {
            "evidence off (nats)": abs(float(model.log_evidence() - evidence)),
            "mean off": float((model.posterior(T).mean[:, 0] - mean).abs().max()),
        }


def _prior(model: WISKI, X: Tensor) -> Tensor:
    """``W K W'``, dimension by dimension."""
    grid, base = model.grid, model.covar_module.base_kernel
    K = model.covar_module.outputscale.detach() * torch.ones(len(X), len(X), dtype=X.dtype)
    for k, (nodes, weights) in enumerate(axis_rows(grid.interpolate(X), grid.sizes)):
        u = grid.step[k] * torch.arange(grid.sizes[k], dtype=X.dtype)
        W = torch.zeros(len(X), len(u), dtype=X.dtype).scatter_add(1, nodes, weights)
        gaps = (u.unsqueeze(-1) - u) / base.lengthscale[0, k].detach()
        K *= W @ (-0.5 * gaps.square()).exp() @ W.mT
    return K
