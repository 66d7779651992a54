"""What `cagp_cost` measures."""

from __future__ import annotations

import itertools
import multiprocessing
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import gpytorch
import pandas as pd
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from bo_stream import CaGP
from bo_stream.actions import BlockSparse
from experiments.common.kernels import RAW, gaussian, scaled
from experiments.common.timing import alternated, ratio, seconds
from experiments.common.upstream import sgpr

DIM = 8
APPENDS = 4


def data(n: int) -> tuple[Tensor, Tensor]:
    """A smooth function of 8 inputs with noise, ``n x 8`` and ``n x 1``."""
    generator = torch.Generator().manual_seed(n)
    X = torch.rand(n, DIM, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X, torch.sin(3.0 * X.sum(-1, keepdim=True)) + 0.1 * noise


def kernel() -> ScaleKernel:
    """An ARD RBF."""
    return scaled(RBFKernel(ard_num_dims=DIM))


def plain_values(kernel: ScaleKernel, X: Tensor) -> Tensor:
    """An RBF kernel's matrix in closed form, ``n x n``: as quick as this machine makes them."""
    with torch.no_grad():
        Z = (X - X.mean(0)) / kernel.base_kernel.lengthscale
        squares = 0.5 * Z.square().sum(-1, keepdim=True)
        h = torch.addmm(-squares.mT, Z, Z.mT).sub_(squares).clamp_max_(0.0)
        return h.exp_().mul_(kernel.outputscale)


def append_against_rebuild(n: int, i: int, repetitions: int) -> pd.DataFrame:
    """Appending 3 points to n, four times in a row as a stream does, and building the same
    surrogate (and its factor) from all data.
    """
    X, Y = data(n + 3 * APPENDS * (repetitions + 1))
    model = CaGP(X[:n], Y[:n], covar_module=kernel(), actions=BlockSparse(i), **RAW)
    stream = iter(range(n, len(X), 3))
    appends: list[float] = []

    def append() -> None:
        for k in itertools.islice(stream, APPENDS):
            batch = X[k : k + 3], Y[k : k + 3]
            appends.append(seconds(partial(model.observe, *batch), time.process_time))

    def rebuild() -> None:
        again = CaGP(X[:n], Y[:n], covar_module=kernel(), actions=BlockSparse(i), **RAW)
        again.posterior(X[:1])

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
    """One value and gradient of each objective; kernel values a second against a plain kernel's."""
    X, Y = data(n)
    ours = CaGP(X, Y, covar_module=kernel(), actions=BlockSparse(i), **RAW)
    objectives = {f"ELBO {d}": ours.make_mll(dtype=getattr(torch, d)) for d in DTYPES}
    theirs = sgpr(X, Y[:, 0], kernel(), X[:m], gaussian())
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(theirs.likelihood, theirs)

    def of_gpytorch() -> None:
        theirs.zero_grad()
        with gpytorch.settings.fast_computations():  # off under BoTorch: then it forms n x n
            marginal(theirs(X), Y[:, 0]).backward()

    def elbo(name: str) -> None:
        objectives[name].zero_grad()
        objectives[name]().backward()

    plain = X[: min(n, 2048)]
    tasks = {
        "sgpr": of_gpytorch,
        "plain kernel": lambda: plain_values(ours.covar_module, plain),
    }
    for name in objectives:
        tasks[name] = lambda name=name: elbo(name)  # type: ignore[misc]
    times = alternated(tasks, repetitions, time.process_time)
    rows = []
    for name in objectives:
        seconds = sorted(times[name])[repetitions // 2]
        machine = plain.shape[0] ** 2 / sorted(times["plain kernel"])[repetitions // 2]
        rate = n * n / seconds  # half of the n^2 values forward, half backward
        rows.append((name, n, i, m, seconds, ratio(times, name, "sgpr"), rate / 1e6, machine / 1e6))
    columns = ["objective", "n", "i", "m", "seconds", "of SGPR", "M values/s", "M values/s plain"]
    return pd.DataFrame(rows, columns=columns)


DTYPES = ("float64", "float32")


def _fit(n: int, i: int) -> tuple[float, float]:
    """Peak resident memory of a short fit, in MB: less that of the imports, and all of it."""
    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    X, Y = data(n)
    CaGP(X, Y, covar_module=kernel(), actions=BlockSparse(i), **RAW).fit(7)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (peak - before) / 1024, peak / 1024


def memory(sizes: list[int], i: int) -> pd.DataFrame:
    """Peak memory of a fit for each n."""
    context = multiprocessing.get_context("spawn")
    rows = []
    for n in sizes:
        with ProcessPoolExecutor(1, mp_context=context) as fresh:  # one that dies says so
            rows.append((n, i, *fresh.submit(_fit, n, i).result()))
    return pd.DataFrame(rows, columns=["n", "i", "fit MB", "process MB"])
