"""What surrogates make of noisy waves: log scores and noise on Rastrigin's function.

Run `python -m experiments.benchmarks.rastrigin_kernels` (add `--smoke` for a run of seconds).
Surrogates are fitted to noisy outcomes at random places. Means over seeds of the negative log
density of 500 further outcomes, and of the noise that is learned, in standard deviations of the
outcomes.
"""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch

from bo_stream import surrogate
from bo_stream.scores import noise_variance, score
from experiments.benchmarks.benchmark import Tables, benchmark
from experiments.common.command import start
from problems import synthetic

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "WISKI": ("wiski", {"grid_size": "auto"}),
    "ExactGP": ("exact", {}),
    "HSGP without main effects": ("hsgp", {"main_effects": False}),
    "HSGP": ("hsgp", {}),
}
TEST = 500


def measure(smoke: bool, device: torch.device) -> Tables:
    """One row for each surrogate."""
    points, seeds = ((30,), range(1)) if smoke else ((200, 500), range(3))
    rows = []
    for label in FAMILIES:
        row: dict[str, Any] = {"surrogate": label, "seeds": len(seeds)}
        for n in points:
            found = pd.DataFrame(scored(label, n, seeds)).mean()
            row[f"NLPD at n = {n}"] = found["nlpd"]
        rows.append(row | {f"noise at n = {n}": found["noise"]})
    yield "rastrigin_kernels", pd.DataFrame(rows).round(3)


def scored(label: str, n: int, seeds: range) -> Iterator[dict[str, float]]:
    """Log score and noise, a row for each seed."""
    family, options = FAMILIES[label]
    for seed in seeds:
        problem = synthetic("rastrigin", dim=3, seed=seed, moved=seed)
        generator = torch.Generator().manual_seed(seed)
        X = torch.rand(n + TEST, 3, generator=generator, dtype=torch.float64)
        Y, unit = problem(X), float(problem(X).std())
        model = surrogate(family, X[:n], Y[:n], bounds=problem.bounds, **options)
        model.fit()
        nlpd = score(model, X[n:], Y[n:], Y[n:]).nlpd - math.log(unit)
        yield {"nlpd": nlpd, "noise": float(noise_variance(model).sqrt()) / unit}


app = benchmark(measure, "about 20 seconds on one core", __doc__, "It draws data on the processor.")

if __name__ == "__main__":
    start(app)
