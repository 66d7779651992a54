"""What CaGP costs: appends against rebuilding, the ELBO against SGPR, peak memory against n.

Run `python -m experiments.benchmarks.cagp_cost` (add `--smoke` for a run of seconds). One thread;
medians of alternated repetitions in one process, seconds of processor time; memory in processes of
their own.
"""

import itertools
import multiprocessing
import resource
import statistics
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
from experiments.benchmarks.timing import alternated, clock_on, ratio, seconds
from experiments.common.baselines.gpytorch_sparse import SGPR
from experiments.common.command import start
from experiments.common.kernels import RAW, gaussian, scaled

DIM = 8
APPENDS = 4


def measure(smoke: bool, device: torch.device) -> Tables:
    """Memory comes first: a process inherits the peak of the one that started it."""
    sizes, i = ([200, 400], 32) if smoke else ([7_500, 15_000, 30_000], 512)
    yield "cagp_memory", memory(sizes, i, device)
    few = (400, 32, 3) if smoke else (5_000, 256, 20)
    yield "cagp_append", append_against_rebuild(*few, device)
    many = (400, 32, 64, 2) if smoke else (10_000, 512, 1_024, 5)
    yield "cagp_elbo", elbo_against_sgpr(*many, device)


def data(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """A smooth function of 8 inputs with noise, ``n x 8`` and ``n x 1``."""
    generator = torch.Generator().manual_seed(n)
    X = torch.rand(n, DIM, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X.to(device), (torch.sin(3.0 * X.sum(-1, keepdim=True)) + 0.1 * noise).to(device)


def built(X: Tensor, Y: Tensor, i: int) -> CaGP:
    """A surrogate with i actions."""
    return CaGP(
        X, Y, covar_module=scaled(RBFKernel(ard_num_dims=DIM)), actions=BlockSparse(i), **RAW
    )


def append_against_rebuild(n: int, i: int, repetitions: int, device: torch.device) -> pd.DataFrame:
    """Appending 3 points to n, four times in a row as a stream does, and building the same
    surrogate (and its factor) from all data.
    """
    clock = clock_on(device)
    X, Y = data(n + 3 * APPENDS * (repetitions + 1), device)
    model = built(X[:n], Y[:n], i)
    stream = iter(range(n, len(X), 3))
    appends: list[float] = []

    def append() -> None:
        for k in itertools.islice(stream, APPENDS):
            batch = X[k : k + 3], Y[k : k + 3]
            appends.append(seconds(partial(model.observe, *batch), clock))

    def rebuild() -> None:
        built(X[:n], Y[:n], i).posterior(X[:1])

    times = alternated({"append": append, "rebuild": rebuild}, repetitions, clock)
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


def elbo_against_sgpr(
    n: int, i: int, m: int, repetitions: int, device: torch.device
) -> pd.DataFrame:
    """One value and gradient of each objective."""
    X, Y = data(n, device)
    ours = built(X, Y, i)
    objective = ours.make_mll()
    theirs = SGPR(X, Y[:, 0], scaled(RBFKernel(ard_num_dims=DIM)), X[:m], gaussian()).to(device)
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(theirs.likelihood, theirs)

    def of_gpytorch() -> None:
        theirs.zero_grad()
        with gpytorch.settings.fast_computations():  # off under BoTorch: then it forms n x n
            marginal(theirs(X), Y[:, 0]).backward()

    def elbo() -> None:
        objective.zero_grad()
        objective().backward()

    times = alternated({"sgpr": of_gpytorch, "elbo": elbo}, repetitions, clock_on(device))
    row = n, i, m, statistics.median(times["elbo"]), ratio(times, "elbo", "sgpr")
    return pd.DataFrame([row], columns=["n", "i", "m", "seconds", "of SGPR"])


def memory(sizes: list[int], i: int, device: torch.device) -> pd.DataFrame:
    """Peak memory of a fit for each n; of the CUDA device if it is on one."""
    context = multiprocessing.get_context("spawn")
    rows = []
    for n in sizes:
        with ProcessPoolExecutor(1, mp_context=context) as fresh:  # one that dies says so
            rows.append((n, i, *fresh.submit(fit, n, i, device).result()))
    return pd.DataFrame(rows, columns=["n", "i", "fit MB", "process MB"])


def fit(n: int, i: int, device: torch.device) -> tuple[float, float]:
    """Peak memory of a short fit, in MB: less that of the imports, and all of it."""
    torch.set_num_threads(1)
    before = peak(device)
    built(*data(n, device), i).fit(7)
    return peak(device) - before, peak(device)


def peak(device: torch.device) -> float:
    """Largest resident memory of this process so far, or what it had allocated on a CUDA device."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


app = benchmark(measure, "about 10 minutes on one core", __doc__)

if __name__ == "__main__":
    start(app)
