"""What sparse GPs cost: `OnlineSGPR`, flat in n; the stochastic decoupled GP, linear in its basis.

Run `python -m experiments.benchmarks.sgpr_cost` (add `--smoke` for a run of seconds). Medians of
alternated repetitions, seconds of processor time, one thread.

A batch of 50 meets a surrogate with M inducing points and adds up to 10 (selection by VIPS and
update, no refit); each repetition works on a fresh copy, whose making is part of the time. A refit
is one evaluation of the batch's bound and gradient, of which a warm fit takes a handful. Full-batch
SGPR is gpytorch's `InducingPointKernel` with M points: one evaluation and gradient on 5,000 points.

The decoupled GP is the paper's, with 64 points for the covariance; a step has 128 rows, and as many
columns of the mean basis's kernel matrix stand for all: with all of them a step would be quadratic.
"""

import copy
import statistics
from collections.abc import Callable
from functools import partial

import gpytorch
import numpy as np
import pandas as pd
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from bo_stream import OnlineSGPR
from bo_stream.growth import VIPS
from experiments.benchmarks.benchmark import Tables, benchmark
from experiments.benchmarks.timing import alternated, clock_on
from experiments.common.baselines.gpytorch_sparse import SGPR
from experiments.common.baselines.modules import frozen, modules
from experiments.common.baselines.stochastic import StochasticDecoupled
from experiments.common.command import start
from experiments.common.data import waves
from experiments.common.kernels import RAW, gaussian, scaled
from experiments.common.progress import say

BATCH = 50


def data(n: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Noisy observations of a smooth function of three inputs."""
    X, Y = waves(n, 3, seed, noise=0.1)
    return X.to(device), Y.to(device)


def measure(smoke: bool, device: torch.device) -> Tables:
    """A row for each operation of `OnlineSGPR`, and for each size of the decoupled GP's mean."""
    M, counts, full, repetitions = (
        (20, (300, 900), 500, 3) if smoke else (200, (1_000, 50_000), 5_000, 15)
    )
    few, many = (f"observe, n = {n}" for n in counts)
    models = [surrogate(n, M, device) for n in counts]
    batch = data(BATCH, 1, device)
    tasks: dict[str, Callable[[], object]] = {
        few: partial(observe, models[0], *batch),
        many: partial(observe, models[1], *batch),
        "one evaluation of a refit": partial(refit, models[1]),
        f"gpytorch SGPR, n = {full}": full_batch(full, M, device),
    }
    times = alternated(tasks, repetitions, clock_on(device))
    medians = {name: statistics.median(values) for name, values in times.items()}
    unit = list(medians.values())[-1]
    rows = [(name, 1e3 * s, unit / s) for name, s in medians.items()]
    say(f"M = {M}, batch of {BATCH}; growth in n {medians[many] / medians[few]:.3f}")
    yield "sgpr_cost", pd.DataFrame(rows, columns=["operation", "ms", "SGPR over this"])
    sizes = (256, 1024) if smoke else (1024, 2048, 4096, 8192, 16384)
    steps = {str(size): decoupled(size, device).step for size in sizes}
    times = alternated(steps, 3 if smoke else 25, clock_on(device))
    seconds = [statistics.median(times[str(size)]) for size in sizes]
    slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    say(f"slope of log seconds in the logarithm of the mean basis: {slope:.2f} (limit 1.1)")
    yield "decoupled_cost", pd.DataFrame({"mean basis": sizes, "ms": [1e3 * s for s in seconds]})


def surrogate(n: int, M: int, device: torch.device) -> OnlineSGPR:
    """A surrogate with M inducing points that has seen n observations."""
    kernel = scaled(RBFKernel(ard_num_dims=3), lengthscale=0.2, outputscale=1.0)
    growth = VIPS(1e-4, max_points=M)
    model = OnlineSGPR(*data(BATCH, 0, device), covar_module=kernel, growth=growth, **RAW)
    model.likelihood.noise = 0.01
    for done in range(BATCH, n, 250):
        model.observe(*data(min(250, n - done), done, device), refit=False)
    model.observe(*data(BATCH, n, device), refit=False)
    if len(model.inducing_points) != M:
        raise RuntimeError(f"Expected {M} inducing points; got {len(model.inducing_points)}.")
    model.growth = VIPS(1e-4, max_points=M + 10)
    return model


def observe(model: OnlineSGPR, X: Tensor, Y: Tensor) -> None:
    """Selection and update, on a copy."""
    copy.deepcopy(model).observe(X, Y, refit=False)


def refit(model: OnlineSGPR) -> None:
    """One evaluation of the last batch's bound, and gradient."""
    model.zero_grad()
    model.make_mll()().backward()


def full_batch(n: int, M: int, device: torch.device) -> Callable[[], None]:
    """One evaluation and gradient of gpytorch's SGPR."""
    X, Y = data(n, 0, device)
    kernel = scaled(RBFKernel(ard_num_dims=3), lengthscale=0.2)
    model = SGPR(X, Y[:, 0], kernel, X[:M], gaussian(noise=0.01)).to(device)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)

    def evaluate() -> None:
        model.zero_grad()
        with gpytorch.settings.fast_computations():
            mll(model(X), Y[:, 0]).backward()

    return evaluate


def decoupled(size: int, device: torch.device) -> StochasticDecoupled:
    """A stochastic decoupled GP with so many points in the basis of its mean, one step taken."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(size, 8, generator=generator, dtype=torch.float64).to(device)
    own = frozen(modules(8))
    own["covar_module"].to(device)
    model = StochasticDecoupled(size, 64, reservoir=size, minibatch=128, own=own)
    model.observe(X, X.sin().sum(-1, keepdim=True))
    return model


app = benchmark(measure, "about 35 seconds on one core", __doc__)

if __name__ == "__main__":
    start(app)
