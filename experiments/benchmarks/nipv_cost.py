"""What one NIPV value and gradient costs on WISKI, beside BoTorch's on an exact GP.

Run `python -m experiments.benchmarks.nipv_cost` (add `--smoke` for a run of seconds). Batches of
six points; one process, one thread; medians of its processor time, which on an idle machine is
wall-clock. Asked for: at 900 nodes and 10,000 test points 1,000 times faster than stock qNIPV on a
SingleTaskGP of 1,000 observations (which wants some GB of memory for one gradient); within 20 %
when observations go from 1,000 to 100,000 and test points from 2,000 to 40,000; and 1,000 calls
that leave memory where it was. Writes `results/benchmarks/nipv_cost.csv`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from botorch.acquisition.active_learning import qNegIntegratedPosteriorVariance
from botorch.models import SingleTaskGP
from botorch.sampling.normal import SobolQMCNormalSampler
from torch import Tensor

from acquisitions import NIPV
from bo_stream import WISKI
from experiments.benchmarks.timing import alternated, seconds

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
    return NIPV(WISKI(*data(n), bounds=bounds, grid_size=grid_size), data(P)[0])


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


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds")
    smoke = parser.parse_args().smoke
    torch.set_num_threads(1)
    torch.manual_seed(0)
    n_few, n_many, P_few, P, P_many = (
        (50, 500, 40, 100, 400) if smoke else (1_000, 100_000, 2_000, 10_000, 40_000)
    )
    grid_size, repetitions, calls = (12, 5, 50) if smoke else (30, 300, 1_000)
    sizes = [(n_few, P), (n_many, P), (n_few, P_few), (n_few, P_many)]
    ours = {f"n = {n}, P = {p}": wiski(n, p, grid_size) for n, p in sizes}
    tasks = {name: partial(gradient, acqf) for name, acqf in ours.items()}
    times = alternated(tasks, repetitions, time.process_time)
    rows = [("WISKI", name, statistics.median(t)) for name, t in times.items()]
    medians = [row[2] for row in rows]

    acqf = next(iter(ours.values()))
    before = resident()
    for _ in range(calls):
        gradient(acqf)
    growth = resident() - before

    theirs = stock(n_few, P)
    slow = statistics.median(
        seconds(partial(gradient, theirs), time.process_time) for _ in range(2)
    )
    rows.append(("stock qNIPV", f"n = {n_few}, P = {P}", slow))
    table = pd.DataFrame(rows, columns=["acquisition", "sizes", "seconds"])
    table["stock / this"] = slow / table["seconds"]
    print(table.to_string(index=False, float_format="{:.3g}".format))
    print(f"WISKI, n from {n_few} to {n_many}: {medians[1] / medians[0]:.3f} times the cost")
    print(f"WISKI, P from {P_few} to {P_many}: {medians[3] / medians[2]:.3f} times the cost")
    print(f"WISKI, {calls} calls: resident memory {growth:+.1f} MB")
    folder = Path("results/benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    table.assign(**{"MB per calls": [growth, *[float("nan")] * (len(table) - 1)]}).to_csv(
        folder / "nipv_cost.csv", index=False
    )


if __name__ == "__main__":
    main()
