"""What `stream_cost` measures."""

from __future__ import annotations

import torch
from torch import Tensor

from bo_stream import WISKI, NodeWISKI
from experiments.common.kernels import RAW

PART = 10_000
"""Rows handed over at a time."""
DIMS: dict[type, int] = {WISKI: 2, NodeWISKI: 6}
"""Inputs."""
FIRST = 300
"""Rows from which hyperparameters are learned, before the nodes are chosen."""


def rows(n: int, dim: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points of the unit cube, and noisy values of a smooth function there."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X, torch.sin(6.0 * X).sum(-1, keepdim=True) + 0.3 * noise


def gridded(n: int, side: int) -> WISKI:
    """A surrogate of two inputs that has seen n points, its hyperparameters learned."""
    none = torch.empty(0, DIMS[WISKI], dtype=torch.float64), torch.empty(0, 1, dtype=torch.float64)
    model = WISKI(*none, bounds=torch.tensor([[0.0] * 2, [1.0] * 2]), grid_size=side, **RAW)
    for part in range(0, n, PART):
        model.observe(*rows(min(PART, n - part), DIMS[WISKI], part))
    model.fit()
    return model


def scattered(n: int, cap: int) -> NodeWISKI:
    """A surrogate of six inputs at its cap that has seen n points."""
    model = NodeWISKI(*rows(min(FIRST, cap), DIMS[NodeWISKI], 0), cap=cap, **RAW)
    model.fit()
    left = n - model.num_observed
    for part in range(0, left, PART):
        model.observe(*rows(min(PART, left - part), DIMS[NodeWISKI], 1 + part))
    return model


def point(model: WISKI | NodeWISKI) -> None:
    """A point more; others each time."""
    model.observe(*rows(1, DIMS[type(model)], model.num_observed))


def point_step_prediction(model: WISKI) -> None:
    """A point more, one step of the hyperparameters, a prediction."""
    point(model)
    model.fit(max_evals=2)
    at = model.posterior(rows(1, DIMS[type(model)], 0)[0])
    torch.stack([at.mean, at.variance])


def predictions(model: NodeWISKI) -> None:
    """Mean and variance at 100 points, after a point more."""
    point(model)
    at = model.posterior(rows(100, DIMS[type(model)], 0)[0])
    torch.stack([at.mean, at.variance])


def evidence(model: NodeWISKI) -> None:
    """Value and gradient."""
    model.zero_grad()
    model.log_evidence().backward()
