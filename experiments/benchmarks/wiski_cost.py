"""What WISKI costs, in Cholesky factorisations: flat in n at 1,000 nodes, and on large grids.

Run `python -m experiments.benchmarks.wiski_cost` (add `--smoke` for a run of seconds). One process,
one thread, medians of alternated repetitions. For 27,000 and 1,000 nodes and three lengthscales:
evidence with gradient, a posterior at 100 points, and a new observation with the posterior after
it, in factorisations of a 1,000 x 1,000 matrix, by seconds of the processor.
"""

import math
import statistics
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pandas as pd
import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from bo_stream import WISKI
from bo_stream.mathematics.process import Process
from experiments.benchmarks.benchmark import Tables, benchmark
from experiments.benchmarks.timing import alternated, cholesky, clock_on, ratio
from experiments.common.command import start
from experiments.common.data import waves
from experiments.common.kernels import RAW, scaled
from experiments.common.progress import say

LIMITS = {
    "observe": (0.2, 1.25),
    "posterior": (1.0, 1.1),
    "evidence (product)": (6.0, 1.1),
    "evidence (other)": (16.0, 1.1),
}
"""Most Cholesky factorisations, and most growth from few points to many."""
CUBE = torch.tensor([[0.0] * 3, [1.0] * 3])


def measure(smoke: bool, device: torch.device) -> Tables:
    """A row for each operation; then one for each grid and lengthscale."""
    few = (6, 100, 1_000, 3) if smoke else (10, 1_000, 10**5, 25)
    yield "wiski_cost", pd.DataFrame(flat(*few, device))
    sizes, n, repetitions = ((17, 6), 200, 2) if smoke else ((30, 10), 3_000, 7)
    unit, each = cholesky(200 if smoke else 1_000, device), product(sizes, (0.5, 0.3, 0.15))
    rows = [on_grid(*one, n, repetitions, unit, device) for one in each]
    yield "large_grid_cost", pd.DataFrame(rows)


def flat(
    size: int, few: int, many: int, repetitions: int, device: torch.device
) -> list[dict[str, Any]]:
    """Costs with ``size^3`` nodes, after few points and after many."""
    X, Y, T = (torch.rand(*shape).double().to(device) for shape in ((3, 3), (3, 1), (100, 3)))
    tasks = {"c": cholesky(size**3, device)}
    for n in (few, many):
        own, other = (seen(n, size, of_product, device) for of_product in (True, False))
        tasks[f"observe {n}"] = partial(own.observe, X, Y)
        tasks[f"posterior {n}"] = partial(posterior, own, T)
        tasks[f"evidence (product) {n}"] = partial(evidence, own)
        tasks[f"evidence (other) {n}"] = partial(evidence, other)
    times = alternated(tasks, repetitions, clock_on(device))
    say(f"m = {size**3}, c = {1e3 * statistics.median(times['c']):.2f} ms")
    rows = []
    for name, (limit, growth) in LIMITS.items():
        small, large = (ratio(times, f"{name} {n}", "c") for n in (few, many))
        row = {"operation": name, f"c at n={few}": small, f"c at n={many}": large, "limit": limit}
        rows.append(row | {"growth": large / small, "growth limit": growth})
    return rows


def on_grid(
    size: int,
    lengthscale: float,
    n: int,
    repetitions: int,
    unit: Callable[[], object],
    device: torch.device,
) -> dict[str, Any]:
    """Costs after n points; numbers of the state, of the posterior's features, what these omit."""
    T = torch.rand(100, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    T = T.to(device)
    model, twin = (seen(n, size, True, device, lengthscale) for _ in range(2))
    tasks: dict[str, Callable[[], object]] = {
        "c": unit,
        "evidence and gradient": partial(evidence, model),
        "posterior": partial(posterior, model, T),
        "observe, posterior": lambda: posterior(twin.observe(T[:1], T[:1, :1]), T),
    }
    times, process = alternated(tasks, repetitions, clock_on(device)), model.process()
    cost = {f"{name} (c)": ratio(times, name, "c") for name in list(tasks)[1:]}
    features = process.size if isinstance(process, Process) else None
    about: dict[str, Any] = {"nodes": size**3, "lengthscale": lengthscale, "n": n}
    about |= {"MB": model.state_bytes / 1e6, "features": features}
    return {**about, **cost}


def seen(
    n: int, size: int, of_product: bool, device: torch.device, lengthscale: float = 0.5
) -> WISKI:
    """A surrogate on ``size^3`` nodes that has seen n points of a smooth function with noise."""
    none = torch.empty(0, 3, dtype=torch.float64, device=device)
    kernel = None if of_product else scaled(MaternKernel(nu=1.5, ard_num_dims=3))
    options = {"covar_module": kernel, "grid_size": size, **RAW}
    model = WISKI(none, none[:, :1], bounds=CUBE.to(device), **options)
    X, Y = waves(n, 3, seed=n, noise=math.sqrt(0.1))
    model.observe(X.to(device), Y.to(device))
    model.covar_module.base_kernel.lengthscale = lengthscale
    model.likelihood.noise = 0.1
    return model


def posterior(model: WISKI, T: Tensor) -> None:
    """Joint mean and single variances."""
    at_T = model.posterior(T)
    torch.stack([at_T.mean, at_T.variance])


def evidence(model: WISKI) -> None:
    """Value and gradient."""
    model.zero_grad()
    model.log_evidence().backward()


app = benchmark(measure, "about a minute on one core", __doc__)

if __name__ == "__main__":
    start(app)
