"""What maximising an acquisition function costs, and how high the maximum found is.

Run `python -m experiments.benchmarks.acquisition_cost` (add `--smoke` for a run of seconds).
`acquisitions.optimize_acqf` beside BoTorch's with 10 restarts from 512 raw samples, on the same
models and base samples; one thread, milliseconds of the processor, medians over three seeds.

- `acquisition_cost`: noisy Levy in three inputs, q = 3, by family and number of observations.
- `acquisition_quality`: several functions, families and q in one to six inputs. How much lower the
  maximum is than BoTorch's, in posterior standard deviations at BoTorch's points; for qLogEI of the
  expected improvement.
- `acquisition_quality_quantiles`: of those.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pandas as pd
import torch
from botorch.optim.optimize import optimize_acqf as botorchs
from torch import Tensor

from acquisitions import build, optimize_acqf
from bo_stream import surrogate
from experiments.benchmarks.benchmark import Tables, benchmark
from experiments.common.command import start
from problems import synthetic

ACQUISITIONS = ("qucb", "qlogei")
FAMILIES = ("wiski", "hsgp", "online_sgpr")
FUNCTIONS = {
    1: ("levy", "rastrigin", "ackley"),
    2: ("levy", "rastrigin", "ackley"),
    3: ("levy", "hartmann", "ackley"),
    6: ("levy", "hartmann", "rastrigin"),
}
NOISE = {"hartmann": 0.1}
QUANTILES = (0.5, 0.75, 0.9, 0.95, 1.0)


@dataclass(frozen=True)
class SearchSizes:
    """How much is run."""

    points: tuple[int, ...] = (50, 200, 1000, 5000)
    dims: tuple[int, ...] = (1, 2, 3, 6)
    few: tuple[int, ...] = (20, 200)
    batches: tuple[int, ...] = (1, 3, 10)
    seeds: int = 3
    restarts: int = 10
    raw_samples: int = 512


def measure(smoke: bool, device: torch.device) -> Tables:
    """Costs by family, then how high maxima are."""
    sizes = SearchSizes((40,), (1, 2), (20,), (2,), 1, 2, 16) if smoke else SearchSizes()
    rows = []
    for family, n in product(FAMILIES, sizes.points):
        model, bounds, X = fitted(family, "levy", 3, n)
        rows += [{"n": n, **row} for row in compared(family, model, bounds, X, (3,), sizes)]
    each = pd.DataFrame(rows).groupby(["n", "family", "acquisition"], sort=False)
    yield "acquisition_cost", each.median().reset_index()
    rows = []
    for dim, n, k in product(sizes.dims, sizes.few, range(3)):
        function, family = (
            FUNCTIONS[dim][k],
            (*FAMILIES, "node_wiski")[(k + (n > 50)) % 3 + dim // 6],
        )
        model, bounds, X = fitted(family, function, dim, n)
        about = {"function": function, "d": dim, "n": n}
        found = compared(family, model, bounds, X, sizes.batches, sizes)
        rows += [about | row for row in found]
    table = pd.DataFrame(rows)
    yield "acquisition_quality", table
    groups = {"all": table, **{f"d = {d}": part for d, part in table.groupby("d")}}
    groups |= {f"q = {q}": part for q, part in table.groupby("q")}
    yield "acquisition_quality_quantiles", pd.DataFrame([of(*group) for group in groups.items()])


def of(name: str, table: pd.DataFrame) -> dict[str, Any]:
    """Quantiles of how much lower the maxima of some problems are, and the cost."""
    lower = {f"{level:.0%}": table["lower"].quantile(level) for level in QUANTILES}
    return {"problems": name, "searches": len(table), **lower, "ratio": table["ratio"].median()}


def fitted(family: str, function: str, dim: int, n: int) -> tuple[Any, Tensor, Tensor]:
    """A surrogate of a noisy function, the bounds and the points that it has observed."""
    problem = synthetic(function, dim=dim, seed=n)
    problem.noise_std = NOISE.get(function, problem.noise_std)
    X = torch.rand(n, dim, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    options: dict[str, Any] = {"grid_size": "auto"} if family == "wiski" else {}
    model = surrogate(family, X, problem(X), bounds=problem.bounds, **options)
    model.fit()
    return model, problem.bounds, X


def compared(
    family: str, model: Any, bounds: Tensor, X: Tensor, batches: tuple[int, ...], sizes: SearchSizes
) -> Iterator[dict[str, Any]]:
    """A row for each number of points, acquisition function and seed."""
    best = float(model.posterior(X).mean.max())
    for q, name in product(batches, ACQUISITIONS):
        acqf = build(name, model, best_f=best, seed=5)
        effort = {"num_restarts": sizes.restarts, "raw_samples": sizes.raw_samples}
        x, theirs, botorch_ms = searched(botorchs, acqf, bounds, q, 0, effort)
        sd = float(model.posterior(x).variance.sqrt().mean())
        for seed in range(sizes.seeds):
            _, ours, ms = searched(optimize_acqf, acqf, bounds, q, seed, {})
            high = [math.exp(v) if name == "qlogei" else v for v in (theirs, ours)]
            yield {
                "family": family,
                "acquisition": name,
                "q": q,
                "BoTorch (ms)": botorch_ms,
                "ms": ms,
                "ratio": ms / botorch_ms,
                "lower": (high[0] - high[1]) / sd,
            }


def searched(
    search: Any, acqf: Any, bounds: Tensor, q: int, seed: int, effort: dict[str, int]
) -> tuple[Tensor, float, float]:
    """The points found, their value, and milliseconds of the processor."""
    torch.manual_seed(seed)
    begun = time.process_time()
    X, value = search(acqf, bounds, q, **effort)
    return X, float(value), 1e3 * (time.process_time() - begun)


app = benchmark(measure, "about 20 minutes on one core", __doc__, "It compares processor times.")

if __name__ == "__main__":
    start(app)
