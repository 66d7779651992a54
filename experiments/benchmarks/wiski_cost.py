"""What WISKI costs at m = 1,000 nodes, in Cholesky factorisations, and that it is flat in n.

Run `python -m experiments.benchmarks.wiski_cost` (add `--smoke` for a run of seconds). Prints a
table and writes `results/benchmarks/wiski_cost.csv`. One process, one thread, medians of alternated
repetitions.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel

from bo_stream import WISKI
from experiments.benchmarks.timing import alternated, cholesky, ratio

LIMITS = {"observe": 0.2, "posterior": 1.0, "evidence (product)": 6.0, "evidence (other)": 16.0}
FLAT = {"observe": 1.25, "posterior": 1.1, "evidence (product)": 1.1, "evidence (other)": 1.1}


def stream(n: int, product: bool, sizes: int) -> WISKI:
    """A 3-D surrogate that has seen n points of a smooth function with noise."""
    kernel = None if product else ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=3))
    model = WISKI(
        torch.empty(0, 3, dtype=torch.float64),
        torch.empty(0, 1, dtype=torch.float64),
        bounds=torch.tensor([[0.0] * 3, [1.0] * 3]),
        covar_module=kernel,
        grid_size=sizes,
    )
    generator = torch.Generator().manual_seed(n)
    X = torch.rand(n, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    model.observe(X, torch.sin(6.0 * X).sum(-1, keepdim=True) + 0.3 * noise)
    model.covar_module.base_kernel.lengthscale = 0.5
    model.likelihood.noise = 0.1
    return model


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds")
    smoke = parser.parse_args().smoke
    torch.set_num_threads(1)
    sizes, few, many, repetitions = (6, 100, 1_000, 3) if smoke else (10, 1_000, 100_000, 25)
    X, Y, T = torch.rand(3, 3).double(), torch.rand(3, 1).double(), torch.rand(100, 3).double()
    tasks = {"c": cholesky(sizes**3)}
    models = {}
    for n in (few, many):
        for product in (True, False):
            models[n, product] = stream(n, product, sizes)

    def observe(model: WISKI) -> None:
        model.observe(X, Y)

    def posterior(model: WISKI) -> None:
        law = model.posterior(T)
        torch.stack([law.mean, law.variance])

    def evidence(model: WISKI) -> None:
        model.zero_grad()
        model.log_evidence().backward()

    for n in (few, many):
        tasks[f"observe {n}"] = partial(observe, models[n, True])
        tasks[f"posterior {n}"] = partial(posterior, models[n, True])
    for n in (few, many):
        for product in (True, False):
            kind = "product" if product else "other"
            tasks[f"evidence ({kind}) {n}"] = partial(evidence, models[n, product])
    times = alternated(tasks, repetitions)
    rows = []
    for name, limit in LIMITS.items():
        small, large = (ratio(times, f"{name} {n}", "c") for n in (few, many))
        rows.append((name, small, large, limit, large / small, FLAT[name]))
    columns = ["operation", f"c at n={few}", f"c at n={many}", "limit", "growth", "growth limit"]
    table = pd.DataFrame(rows, columns=columns)
    print(f"m = {sizes**3}, c = {1e3 * sorted(times['c'])[repetitions // 2]:.2f} ms")
    print(table.to_string(index=False, float_format="{:.3f}".format))
    folder = Path("results/benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / "wiski_cost.csv", index=False)


if __name__ == "__main__":
    main()
