"""What NIPV costs: a value and gradient on WISKI, and a step over a pool on the other families.

Run `python -m experiments.benchmarks.nipv_cost` (add `--smoke` for a run of seconds). Batches of
six points; one process, one thread; medians of its processor time, which on an idle machine is
wall-clock.

Limits of a value and gradient on WISKI: at 900 nodes and 10,000 test points 1,000 times faster than
stock qNIPV on a SingleTaskGP of 1,000 observations (which wants some GB of memory for one
gradient); within 20 % when observations go from 1,000 to 100,000 and test points from 2,000 to
40,000; and 1,000 calls that leave memory where it was. Limit of a step over 3,400 candidates and
2,000 test points after 1,000 observations, hyperparameters unchanged: a fifth of what it costs with
posteriors made anew, and the same picks.
"""

import os
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from botorch.acquisition.active_learning import qNegIntegratedPosteriorVariance
from botorch.models import SingleTaskGP
from botorch.sampling.normal import SobolQMCNormalSampler
from torch import Tensor

from acquisitions import NIPV, select_from_pool
from bo_stream import HSGP, WISKI, CaGP, ExactGP, NodeWISKI, OnlineSGPR
from experiments.benchmarks.benchmark import Tables, benchmark
from experiments.benchmarks.timing import alternated, clock_on, seconds
from experiments.common.command import start
from experiments.common.data import waves
from experiments.common.kernels import RAW
from experiments.common.progress import say

Q = 6
FAMILIES = (NodeWISKI, HSGP, OnlineSGPR, CaGP, ExactGP)
STEPS = 6
UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def measure(smoke: bool, device: torch.device) -> Tables:
    """Values and gradients beside BoTorch's, and steps over pools."""
    torch.manual_seed(0)
    clock = clock_on(device)
    n_few, n_many, P_few, P, P_many = (
        (50, 500, 40, 100, 400) if smoke else (1_000, 100_000, 2_000, 10_000, 40_000)
    )
    grid_size, repetitions, calls = (12, 5, 50) if smoke else (30, 300, 1_000)
    sizes = [(n_few, P), (n_many, P), (n_few, P_few), (n_few, P_many)]
    ours = {f"n = {n}, P = {p}": wiski(n, p, grid_size, device) for n, p in sizes}
    tasks = {name: partial(gradient, acqf, device) for name, acqf in ours.items()}
    times = alternated(tasks, repetitions, clock)
    medians = [statistics.median(own) for own in times.values()]
    acqf = next(iter(ours.values()))
    before = resident()
    for _ in range(calls):
        gradient(acqf, device)
    growth = resident() - before
    theirs = partial(gradient, stock(n_few, P, device), device)
    slow = statistics.median(seconds(theirs, clock) for _ in range(2))
    rows = [("WISKI", name, median) for name, median in zip(times, medians, strict=True)]
    rows.append(("stock qNIPV", f"n = {n_few}, P = {P}", slow))
    table = pd.DataFrame(rows, columns=["acquisition", "sizes", "seconds"])
    table["stock / this"] = slow / table["seconds"]
    table["MB per calls"] = [growth, *[float("nan")] * (len(table) - 1)]
    yield "nipv_cost", table
    say(f"WISKI, n from {n_few} to {n_many}: {medians[1] / medians[0]:.3f} times the cost")
    say(f"WISKI, P from {P_few} to {P_many}: {medians[3] / medians[2]:.3f} times the cost")
    say(f"WISKI, {calls} calls: resident memory {growth:+.1f} MB")
    pool = (80, 120, 60) if smoke else (1_000, 3_400, 2_000)
    yield "nipv_pool_cost", pd.DataFrame([pool_steps(family, *pool, device) for family in FAMILIES])


def data(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Noisy observations of a smooth function on the unit square."""
    X, Y = waves(n, 2, seed=n, noise=0.3)
    return X.to(device), Y.to(device)


def wiski(n: int, P: int, grid_size: int, device: torch.device) -> NIPV:
    """Integrated variance over P test points on a stream that has seen n observations."""
    model = WISKI(*data(n, device), bounds=UNIT.to(device), grid_size=grid_size, **RAW)
    return NIPV(model, data(P, device)[0])


def stock(n: int, P: int, device: torch.device) -> qNegIntegratedPosteriorVariance:
    """BoTorch's acquisition function on its exact GP."""
    sampler = SobolQMCNormalSampler(torch.Size([1]), seed=0)
    model, points = SingleTaskGP(*data(n, device)), data(P, device)[0]
    return qNegIntegratedPosteriorVariance(model, points, sampler)


def gradient(acqf: Callable[[Tensor], Tensor], device: torch.device) -> Tensor:
    """One value and gradient at q points."""
    X = torch.rand(1, Q, 2, dtype=torch.float64).to(device).requires_grad_()
    (slope,) = torch.autograd.grad(acqf(X).sum(), X)
    return slope


def pool_steps(family: Any, n: int, N: int, P: int, device: torch.device) -> dict[str, Any]:
    """Seconds of pool steps of a learner that has seen n points, N candidates and P test points.

    Each choice is made twice: from what the surrogate keeps, and from posteriors made anew, which
    is what a pool of more than one chunk is left with. Medians of `STEPS` steps but the first.
    """
    clock, pool = clock_on(device), data(N + 1, device)[0][:N]
    model = family(*data(n, device), bounds=UNIT.to(device))
    acqf, kept, anew, same = NIPV(model, data(P + 2, device)[0][:P]), [], [], True
    for step in range(STEPS + 1):
        if step == STEPS:  # as a fit would
            for name, value in model.covar_module.named_parameters():
                if "lengthscale" in name:
                    value.data.mul_(0.9)
        model.process()
        start = clock()
        chosen, _ = select_from_pool(acqf, pool, Q)
        kept.append(clock() - start)
        start = clock()
        expected, _ = select_from_pool(acqf, pool, Q, chunk_size=len(pool) - 1)
        anew.append(clock() - start)
        same = same and torch.equal(chosen, expected)
        X = pool[chosen]
        model.observe(X, torch.sin(6.0 * X).sum(-1, keepdim=True))
        left = torch.ones(len(pool), dtype=torch.bool, device=device)
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


app = benchmark(measure, "about two minutes on one core", __doc__)

if __name__ == "__main__":
    start(app)
