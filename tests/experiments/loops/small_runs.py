"""Small simulated runs."""

from functools import partial
from typing import Any

import torch
from botorch.acquisition.analytic import UpperConfidenceBound
from torch import Tensor

from bo_stream import surrogate
from experiments.common.loops import BOLoop, FitPolicy, LoopConfig, PoolConfig, PoolLoop
from experiments.common.loops.policies import PoolPolicy

SETTINGS = LoopConfig(
    steps=2,
    q=1,
    num_initial=5,
    num_restarts=2,
    raw_samples=16,
    recommend_every=2,
    fit=FitPolicy(max_evals=2, first_max_evals=5),
)


class Bowl:
    """Maximum 2 at 0.3, without values below a bound; noise from torch's global generator."""

    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    optimal_value = 2.0

    def __init__(self, noise_std: float = 0.1, nothing_below: float = -1.0) -> None:
        self.noise_std, self.nothing_below = noise_std, nothing_below
        self.asked: list[Tensor] = []
        self.returned: list[Tensor] = []

    def evaluate_true(self, X: Tensor) -> Tensor:
        return 2.0 - 10.0 * (X - 0.3).square()

    def __call__(self, X: Tensor) -> Tensor:
        Y = self.evaluate_true(X) + self.noise_std * torch.randn(len(X), 1).to(X)
        self.asked.append(X)
        self.returned.append(Y.masked_fill(self.nothing_below > X, torch.nan))
        return self.returned[-1]


def ucb(model: Any, **kw: object) -> UpperConfidenceBound:
    return UpperConfidenceBound(model, beta=4.0)


def loop(problem: Any, settings: LoopConfig = SETTINGS) -> BOLoop:
    return BOLoop(problem, partial(surrogate, "wiski", grid_size=12), ucb, settings)


def pool_loop(cells: Any, **changes: Any) -> PoolLoop:
    settings = {"steps": 2, "q": 3, "num_test": 20, "clip_from": 10, "clip": 1.0}
    fit = FitPolicy(max_evals=2, first_max_evals=5)
    config = PoolConfig(**{**settings, "fit": fit, **changes})
    return PoolLoop(cells, partial(surrogate, "wiski", grid_size=8), PoolPolicy("random"), config)
