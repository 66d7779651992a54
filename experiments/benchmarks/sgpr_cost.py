"""What `OnlineSGPR.observe` costs beside full-batch SGPR, and that it is flat in n at fixed M.

Run `python -m experiments.benchmarks.sgpr_cost` (add `--smoke` for a run of seconds). Medians of
alternated repetitions, seconds of processor time, one thread.

A batch of 50 meets a surrogate with M inducing points and adds up to 10 (selection by VIPS and
update, no refit); each repetition works on a fresh copy, whose making is part of the time. A refit
is one evaluation of the batch's bound and gradient, of which a warm fit takes a handful. Full-batch
SGPR is gpytorch's `InducingPointKernel` with M points: one evaluation and gradient on 5,000 points.
"""

import copy
import statistics
import time
from collections.abc import Callable
from functools import partial

import gpytorch
import pandas as pd
from gpytorch.kernels import RBFKernel
from torch import Tensor

from bo_stream import OnlineSGPR
from bo_stream.growth import VIPS
from experiments.benchmarks.benchmark import Tables, benchmark
from experiments.common.baselines.gpytorch_sparse import SGPR
from experiments.common.command import start
from experiments.common.data import waves
from experiments.common.kernels import RAW, gaussian, scaled
from experiments.common.progress import say
from experiments.common.timing import alternated

BATCH = 50


def measure(smoke: bool) -> Tables:
    """A row for each operation."""
    M, counts, full, repetitions = (
        (20, (300, 900), 500, 3) if smoke else (200, (1_000, 50_000), 5_000, 15)
    )
    few, many = (f"observe, n = {n}" for n in counts)
    models = [surrogate(n, M) for n in counts]
    batch = data(BATCH, 1)
    tasks: dict[str, Callable[[], object]] = {
        few: partial(observe, models[0], *batch),
        many: partial(observe, models[1], *batch),
        "one evaluation of a refit": partial(refit, models[1]),
        f"gpytorch SGPR, n = {full}": full_batch(full, M),
    }
    times = alternated(tasks, repetitions, time.process_time)
    medians = {name: statistics.median(values) for name, values in times.items()}
    unit = list(medians.values())[-1]
    rows = [(name, 1e3 * s, unit / s) for name, s in medians.items()]
    say(f"M = {M}, batch of {BATCH}; growth in n {medians[many] / medians[few]:.3f}")
    yield "sgpr_cost", pd.DataFrame(rows, columns=["operation", "ms", "SGPR over this"])


def data(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """A smooth function of three inputs seen with noise."""
    return waves(n, 3, seed, noise=0.1)


def surrogate(n: int, M: int) -> OnlineSGPR:
    """A surrogate with M inducing points that has seen n observations."""
    kernel = scaled(RBFKernel(ard_num_dims=3), lengthscale=0.2, outputscale=1.0)
    growth = VIPS(1e-4, max_points=M)
    model = OnlineSGPR(*data(BATCH, 0), covar_module=kernel, growth=growth, **RAW)
    model.likelihood.noise = 0.01
    for done in range(BATCH, n, 250):
        model.observe(*data(min(250, n - done), done), refit=False)
    model.observe(*data(BATCH, n), refit=False)
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


def full_batch(n: int, M: int) -> Callable[[], None]:
    """One evaluation and gradient of gpytorch's SGPR."""
    X, Y = data(n, 0)
    kernel = scaled(RBFKernel(ard_num_dims=3), lengthscale=0.2)
    model = SGPR(X, Y[:, 0], kernel, X[:M], gaussian(noise=0.01))
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)

    def evaluate() -> None:
        model.zero_grad()
        with gpytorch.settings.fast_computations():
            mll(model(X), Y[:, 0]).backward()

    return evaluate


app = benchmark(measure, "about 15 seconds on one core", __doc__)

if __name__ == "__main__":
    start(app)
