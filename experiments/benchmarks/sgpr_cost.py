"""What `OnlineSGPR.observe` costs beside full-batch SGPR, and that it is flat in n at fixed M.

Run `python -m experiments.benchmarks.sgpr_cost` (add `--smoke` for a run of seconds). Prints a
table and writes `results/benchmarks/sgpr_cost.csv`. Medians of alternated repetitions, seconds of
processor time, one thread.

A batch of 50 meets a surrogate with M inducing points and adds up to 10 (selection by VIPS and
update, no refit); each repetition works on a fresh copy, whose making is part of the time. A refit
is one evaluation of the batch's bound and gradient, of which a warm fit takes a handful. Full-batch
SGPR is gpytorch's `InducingPointKernel` with M points: one evaluation and gradient on 5,000 points.
It is quick only as the outermost kernel (the ScaleKernel inside it) and under gpytorch's own
`fast_computations`, which BoTorch turns off on import: then it keeps the low-rank form.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import gpytorch
import pandas as pd
import torch
from gpytorch.kernels import InducingPointKernel, RBFKernel, ScaleKernel
from torch import Tensor

from bo_stream import OnlineSGPR
from bo_stream.growth import VIPS
from experiments.benchmarks.timing import alternated

BATCH = 50


def data(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """A smooth function of three inputs seen with noise."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X, (6.0 * X).sin().sum(-1, keepdim=True) + 0.1 * noise


def surrogate(n: int, M: int) -> OnlineSGPR:
    """A surrogate with M inducing points that has seen n observations."""
    kernel = ScaleKernel(RBFKernel(ard_num_dims=3)).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = 0.2, 1.0
    model = OnlineSGPR(*data(BATCH, 0), covar_module=kernel, growth=VIPS(1e-4, max_points=M))
    model.likelihood.noise = 0.01
    for start in range(BATCH, n, 250):
        model.observe(*data(min(250, n - start), start), refit=False)
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


class FullBatch(gpytorch.models.ExactGP):
    """gpytorch's SGPR on all data."""

    def __init__(self, X: Tensor, y: Tensor, M: int) -> None:
        super().__init__(X, y, gpytorch.likelihoods.GaussianLikelihood())
        base = ScaleKernel(RBFKernel(ard_num_dims=3))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = InducingPointKernel(base, X[:M].clone(), self.likelihood)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at x."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def full_batch(n: int, M: int) -> Callable[[], None]:
    """One evaluation and gradient of gpytorch's SGPR."""
    X, Y = data(n, 0)
    model = FullBatch(X, Y[:, 0], M).double().train()
    model.covar_module.base_kernel.base_kernel.lengthscale = 0.2
    model.likelihood.noise = 0.01
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)

    def evaluate() -> None:
        model.zero_grad()
        with gpytorch.settings.fast_computations():
            mll(model(X), Y[:, 0]).backward()

    return evaluate


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds")
    smoke = parser.parse_args().smoke
    torch.set_num_threads(1)
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
    table = pd.DataFrame(rows, columns=["operation", "ms", "SGPR over this"])
    print(f"M = {M}, batch of {BATCH}; growth in n {medians[many] / medians[few]:.3f}")
    print(table.to_string(index=False, float_format="{:.2f}".format))
    folder = Path("results/benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / "sgpr_cost.csv", index=False)


if __name__ == "__main__":
    main()
