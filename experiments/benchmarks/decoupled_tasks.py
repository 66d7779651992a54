"""What `decoupled_cost` measures."""

from __future__ import annotations

import torch

from experiments.common.baselines.modules import modules
from experiments.common.baselines.stochastic import StochasticDecoupled

DIM = 8


def climber(size: int) -> StochasticDecoupled:
    """A stochastic decoupled GP with so many points in the basis of its mean, one step taken."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(size, DIM, generator=generator, dtype=torch.float64)
    given = modules(DIM)
    for part in ("covar_module", "mean_module", "likelihood"):
        given[part].requires_grad_(False)
    method = StochasticDecoupled(size, 64, reservoir=size, minibatch=128, given=given)
    method.observe(X, X.sin().sum(-1, keepdim=True))
    return method
