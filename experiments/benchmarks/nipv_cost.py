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
import time
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
from experiments.benchmarks.timing import alternated, seconds
from experiments.common.command import start
from experiments.common.data import waves
from experiments.common.kernels import RAW
from experiments.common.progress import say

Q = 6
FAMILIES = (NodeWISKI, HSGP, OnlineSGPR, CaGP, ExactGP)
STEPS = 6
UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def measure(smoke: bool) -> Tables:
    """Values and gradients beside BoTorch's, and steps over pools."""
    torch.manual_seed(0)
    n_few, n_many, P_few, P, P_many = (
        (50, 500, 40, 100, 400) if smoke else (1_000, 100_000, 2_000, 10_000, 40_000)
    )
    grid_size, repetitions, calls = (12, 5, 50) if smoke else (30, 300, 1_000)
    sizes = [(n_few, P), (n_many, P), (n_few, P_few), (n_few, P_many)]
    ours = {f"n = {n}, P = {p}": wiski(n, p, grid_size) for n, p in sizes}
    tasks = {name: partial(gradient, acqf) for name, acqf in ours.items()}
    times = alternated(tasks, repetitions, time.process_time)
    medians = [statistics.median(own) for own in times.values()]
    acqf = next(iter(ours.values()))
    before = resident()
    for _ in range(calls):
        gradient(acqf)
    growth = resident() - before
    theirs = partial(gradient, stock(n_few, P))
    slow = statistics.median(seconds(theirs, time.process_time) for _ in range(2))
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
    yield "nipv_pool_cost", pd.DataFrame([pool_steps(family, *pool) for family in FAMILIES])


def data(n: int) -> tuple[Tensor, Tensor]:
    """Noisy observations of a smooth function on the unit square."""
    return waves(n, 2, seed=n, noise=0.3)


def wiski(n: int, P: int, grid_size: int) -> NIPV:
    """Integrated variance over P test points on a stream that has seen n observations."""
    return NIPV(WISKI(*data(n), bounds=UNIT, grid_size=grid_size, **RAW), data(P)[0])


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

    Each choice is made twice: from what the surrogate keeps, and from posteriors made anew, which
    is what a pool of more than one chunk is left with. Medians of `STEPS` steps but the first.
    """
    model, pool = family(*data(n), bounds=UNIT), data(N + 1)[0][:N]
    acqf, kept, anew, same = NIPV(model, data(P + 2)[0][:P]), [], [], True
    for step in range(STEPS + 1):
        if step == STEPS:  # as a fit would
            for name, value in model.covar_module.named_parameters():
                if "lengthscale" in name:
                    value.data.mul_(0.9)
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


app = benchmark(measure, "about two minutes on one core", __doc__)

if __name__ == "__main__":
    start(app)
