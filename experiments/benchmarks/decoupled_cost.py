"""What a stochastic step of the decoupled GP costs: linear in the basis of the mean.

Run `python -m experiments.benchmarks.decoupled_cost` (add `--smoke` for a run of seconds). Prints a
table and the slope of its logarithms. Medians of alternated repetitions, seconds of processor time,
one thread. The process is the paper's, with 64 points for the covariance; a step has 128 rows, and
as many columns of the mean basis's kernel matrix stand for all: with all of them a step would be
quadratic.
"""

import statistics
import time

import numpy as np
import pandas as pd
import torch

from experiments.benchmarks.benchmark import Tables, benchmark
from experiments.common.baselines.modules import frozen, modules
from experiments.common.baselines.stochastic import StochasticDecoupled
from experiments.common.command import start
from experiments.common.progress import say
from experiments.common.timing import alternated

DIM = 8


def measure(smoke: bool) -> Tables:
    """A row for each size of the mean basis."""
    sizes, repetitions = ((256, 1024), 3) if smoke else ((1024, 2048, 4096, 8192, 16384), 25)
    tasks = {str(size): method(size).step for size in sizes}
    times = alternated(tasks, repetitions, time.process_time)
    medians = [statistics.median(times[str(size)]) for size in sizes]
    slope = float(np.polyfit(np.log(sizes), np.log(medians), 1)[0])
    say(f"slope of log seconds in the logarithm of the mean basis: {slope:.2f} (limit 1.1)")
    yield "decoupled_cost", pd.DataFrame({"mean basis": sizes, "ms": [1e3 * s for s in medians]})


def method(size: int) -> StochasticDecoupled:
    """A stochastic decoupled GP with so many points in the basis of its mean, one step taken."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(size, DIM, generator=generator, dtype=torch.float64)
    own = frozen(modules(DIM))
    method = StochasticDecoupled(size, 64, reservoir=size, minibatch=128, own=own)
    method.observe(X, X.sin().sum(-1, keepdim=True))
    return method


app = benchmark(measure, "about 20 seconds on one core", __doc__)

if __name__ == "__main__":
    start(app)
