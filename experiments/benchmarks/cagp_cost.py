"""What CaGP costs: appends against rebuilding, the ELBO against SGPR, peak memory against n.

Run `python -m experiments.benchmarks.cagp_cost` (add `--smoke` for a run of seconds). One thread;
medians of alternated repetitions in one process, seconds of processor time; memory in processes of
their own.
"""

import itertools
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import gpytorch
import pandas as pd
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from bo_stream import CaGP
from bo_stream.actions import BlockSparse
from experiments.benchmarks.benchmark import Tables, benchmark
from experiments.benchmarks.timing import alternated, ratio, seconds
from experiments.common.baselines.gpytorch_sparse import SGPR
from experiments.common.command import start
from experiments.common.kernels import RAW, gaussian, scaled

DIM = 8
APPENDS = 4
DTYPES = ("float64", "float32")


def measure(smoke: bool) -> Tables:
    """Memory comes first: a process inherits the peak of the one that started it."""
    sizes, i = ([200, 400], 32) if smoke else ([7_500, 15_000, 30_000], 512)
    yield "cagp_memory", memory(sizes, i)
    yield "cagp_append", append_against_rebuild(*((400, 32, 3) if smoke else (5_000, 256, 20)))
    few = (400, 32, 64, 2)
    yield "cagp_elbo", elbo_against_sgpr(*(few if smoke else (10_000, 512, 1_024, 5)))


def data(n: int) -> tuple[Tensor, Tensor]:
    """A smooth function of 8 inputs with noise, ``n x 8`` and ``n x 1``."""
    generator = torch.Generator().manual_seed(n)
    X = torch.rand(n, DIM, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X, torch.sin(3.0 * X.sum(-1, keepdim=True)) + 0.1 * noise


def built(X: Tensor, Y: Tensor, i: int) -> CaGP:
    """A surrogate with i actions."""
    return CaGP(
        X, Y, covar_module=scaled(RBFKernel(ard_num_dims=DIM)), actions=BlockSparse(i), **RAW
    )


def append_against_rebuild(n: int, i: int, repetitions: int) -> pd.DataFrame:
    """Appending 3 points to n, four times in a row as a stream does, and building the same
    surrogate (and its factor) from all data.
    """
    X, Y = data(n + 3 * APPENDS * (repetitions + 1))
    model = built(X[:n], Y[:n], i)
    stream = iter(range(n, len(X), 3))
    appends: list[float] = []

    def append() -> None:
        for k in itertools.islice(stream, APPENDS):
            batch = X[k : k + 3], Y[k : k + 3]
            appends.append(seconds(partial(model.observe, *batch), time.process_time))

    def rebuild() -> None:
        built(X[:n], Y[:n], i).posterior(X[:1])

    times = alternated({"append": append, "rebuild": rebuild}, repetitions, time.process_time)
    median, whole = statistics.median(appends), statistics.median(times["rebuild"])
    row = {
        "n": n,
        "i": i,
        "append ms": 1e3 * median,
        "with compression ms": 1e3 * statistics.mean(appends),
        "rebuild ms": 1e3 * whole,
        "ratio": whole / median,
        "ratio with compression": whole / statistics.mean(appends),
    }
    return pd.DataFrame([row])


def elbo_against_sgpr(n: int, i: int, m: int, repetitions: int) -> pd.DataFrame:
    """One value and gradient of each objective."""
    X, Y = data(n)
    ours = built(X, Y, i)
    objectives = {f"ELBO {d}": ours.make_mll(dtype=getattr(torch, d)) for d in DTYPES}
    theirs = SGPR(X, Y[:, 0], scaled(RBFKernel(ard_num_dims=DIM)), X[:m], gaussian())
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(theirs.likelihood, theirs)

    def of_gpytorch() -> None:
        theirs.zero_grad()
        with gpytorch.settings.fast_computations():  # off under BoTorch: then it forms n x n
            marginal(theirs(X), Y[:, 0]).backward()

    def elbo(name: str) -> None:
        objectives[name].zero_grad()
        objectives[name]().backward()

    tasks: dict[str, Callable[[], object]] = {"sgpr": of_gpytorch}
    tasks |= {name: partial(elbo, name) for name in objectives}
    times = alternated(tasks, repetitions, time.process_time)
    rows = [
        (name, n, i, m, statistics.median(times[name]), ratio(times, name, "sgpr"))
        for name in objectives
    ]
    return pd.DataFrame(rows, columns=["objective", "n", "i", "m", "seconds", "of SGPR"])


def memory(sizes: list[int], i: int) -> pd.DataFrame:
    """Peak memory of a fit for each n."""
    context = multiprocessing.get_context("spawn")
    rows = []
    for n in sizes:
        with ProcessPoolExecutor(1, mp_context=context) as fresh:  # one that dies says so
            rows.append((n, i, *fresh.submit(fit, n, i).result()))
    return pd.DataFrame(rows, columns=["n", "i", "fit MB", "process MB"])


def fit(n: int, i: int) -> tuple[float, float]:
    """Peak resident memory of a short fit, in MB: less that of the imports, and all of it."""
    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    built(*data(n), i).fit(7)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (peak - before) / 1024, peak / 1024


app = benchmark(measure, "about 10 minutes on one core", __doc__)

if __name__ == "__main__":
    start(app)
