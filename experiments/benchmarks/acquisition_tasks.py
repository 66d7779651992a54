"""What `acquisition_cost` measures."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.acquisition.monte_carlo import qUpperConfidenceBound
from botorch.optim.optimize import optimize_acqf
from botorch.sampling.normal import SobolQMCNormalSampler
from torch import Tensor

from acquisitions import build
from bo_stream import WISKI
from experiments.benchmarks.bo_step_tasks import between
from experiments.common.timing import cholesky, seconds
from problems import synthetic

SAMPLES = 128
BETA = 4.0


@dataclass(frozen=True)
class Sizes:
    """How much is run."""

    grid: int = 10
    points: tuple[int, ...] = (150, 1200)
    repetitions: int = 7
    restarts: int = 10
    raw_samples: int = 512


SMOKE = Sizes(6, (40,), 1, 2, 16)


def compared(function: str, n: int, acquisition: str, sizes: Sizes) -> dict[str, Any]:
    """One row: costs in c and what was found, BoTorch's class beside the closed form."""
    problem = synthetic(function, seed=0)
    torch.manual_seed(0)
    X = between(problem.bounds, problem.optimizers, n)
    Y = problem(X)
    model = WISKI(X, Y, bounds=problem.bounds, grid_size=sizes.grid)
    model.fit()
    best = float(model.posterior(X).mean.max())
    unit, times = cholesky(sizes.grid**3), dict[str, list[float]]()
    found, calls = dict[str, list[float]](), list[int]()
    for seed in range(sizes.repetitions):
        for _ in range(3):
            times.setdefault("c", []).append(seconds(unit, time.process_time))
        for name in ("BoTorch", "closed"):
            acqf = (_plain if name == "BoTorch" else _closed)(acquisition, model, best, seed)
            counted = _counted(acqf)
            torch.manual_seed(seed)
            begun = time.process_time()
            value = _maximised(acqf, problem.bounds, sizes)
            times.setdefault(name, []).append(time.process_time() - begun)
            found.setdefault(name, []).append(value)
            calls.append(counted[0])
    middle = {name: statistics.median(own) for name, own in times.items()}
    apart = max(abs(a - b) for a, b in zip(found["BoTorch"], found["closed"], strict=True))
    return {
        "function": function,
        "n": n,
        "acquisition": acquisition,
        "BoTorch (c)": middle["BoTorch"] / middle["c"],
        "closed (c)": middle["closed"] / middle["c"],
        "gradients": statistics.median(calls),
        "apart": apart / (1.0 if acquisition == "qlogei" else float(Y.std())),
        "c in ms": 1e3 * middle["c"],
    }


def _closed(acquisition: str, model: Any, best: float, seed: int) -> Any:
    return build(acquisition, model, best_f=best, beta=BETA, num_samples=SAMPLES, seed=seed)


def _plain(acquisition: str, model: Any, best: float, seed: int) -> Any:
    sampler = SobolQMCNormalSampler(torch.Size([SAMPLES]), seed=seed)
    if acquisition == "qucb":
        return qUpperConfidenceBound(model, BETA, sampler=sampler)
    return qLogExpectedImprovement(model, best, sampler=sampler)


def _counted(acqf: Any) -> list[int]:
    """Counts, from now on, evaluations with a gradient."""
    count, forward = [0], acqf.forward

    def counting(X: Tensor) -> Tensor:
        count[0] += X.requires_grad
        value: Tensor = forward(X)
        return value

    acqf.forward = counting
    return count


def _maximised(acqf: Any, bounds: Tensor, sizes: Sizes) -> float:
    found: Any = optimize_acqf(
        acqf, bounds, q=3, num_restarts=sizes.restarts, raw_samples=sizes.raw_samples
    )
    return float(found[1])
