"""How often a first fit ends in a poor mode, against the best of eight starts.

Run `python -m experiments.benchmarks.fit_modes` (add `--smoke` for a run of seconds). For every
family, 200 hard problems (functions with and without noise, steps, sines, outliers, clustered
inputs, trends, noise alone; one to six dimensions, 5 to 150 data; RBF and Matern kernels; noise
learned or known) and 12 like the demonstration's are fitted once by `fit`, and climbed by scipy's
L-BFGS-B from where the surrogate was and from eight draws of the priors (by `fit` itself where a
CaGP has fewer actions than data and learns them). Prints the share of fits
that end more than one nat below the best of these climbs, and what a fit costs; writes
`results/benchmarks/fit_modes.csv`, one row per problem.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd
import torch
from botorch.models.transforms import Standardize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.kernels import ScaleKernel
from torch import Tensor

from bo_stream import surrogate
from bo_stream.actions import BlockSparse
from experiments.benchmarks.benchmark import Tables, benchmark
from experiments.benchmarks.timing import clock_on
from experiments.common.command import start
from experiments.common.progress import Progress, say
from problems import synthetic

SHORT, LIMIT = 1.0, 0.02
"""Nats below the best start from which a fit counts as short of it, and the share that may be."""
FAMILIES = {"exact": 6, "wiski": 3, "cagp": 6}
"""Families, and the most dimensions their problems have."""
GRIDS = {1: 64, 2: 14, 3: 7}
ACTIONS = 60
"""Actions of CaGP; with more data their values are learned along with the hyperparameters."""
SIZES = (5, 8, 12, 20, 35, 60, 100, 150)
NAMES = ("levy", "ackley", "rastrigin", "griewank", "styblinskitang", "rosenbrock")


def measure(smoke: bool, device: torch.device) -> Tables:
    """A row for each problem and family."""
    (problems, starts, seeds), rows = (3, 1, 0) if smoke else (200, 8, 6), []
    with Progress(len(FAMILIES) * (problems + 2 * seeds), "problems") as progress:
        for name, dims in FAMILIES.items():
            every = [hard_problem(index, dims) for index in range(problems)]
            every += [demo_problem(kind, seed) for kind in NAMES[:2] for seed in range(seeds)]
            every = [problem.on(device) for problem in every]
            for index, problem in enumerate(every):
                row = {"family": name, "set": "hard" if index < problems else "demo"}
                rows.append(row | {"problem": index} | fitted(problem, name, starts, index))
                progress(name)
    table = pd.DataFrame(rows)
    table["short"] = table["best start"] - table["value"] > SHORT
    yield "fit_modes", table
    for (kind, which), part in table.groupby(["family", "set"], sort=False):
        say(
            f"{kind}, {len(part)} {which} problems: {part['short'].mean():.1%} end more than "
            f"{SHORT:g} nat below the best of {starts} starts and the present one; median "
            f"{part['evaluations'].median():g} evaluations (95 % below "
            f"{part['evaluations'].quantile(0.95):.0f}), {part['seconds'].median():.2g} s of "
            f"processor time a fit; {1 - part['converged'].mean():.1%} not converged"
        )
    bar = table[table["set"] == "hard"]
    say(f"all families, {len(bar)} hard problems: {bar['short'].mean():.1%} (limit {LIMIT:.0%})")


@dataclass(frozen=True)
class HardProblem:
    """Data on the unit cube, and how they are to be modelled."""

    kind: str
    X: Tensor
    Y: Tensor
    Yvar: Tensor | None
    matern: bool

    def on(self, device: torch.device) -> "HardProblem":
        """The same on a device."""
        Yvar = None if self.Yvar is None else self.Yvar.to(device)
        return replace(self, X=self.X.to(device), Y=self.Y.to(device), Yvar=Yvar)

    def surrogate(self, family: str) -> Any:
        """A fresh surrogate, with default priors and standardised outcomes."""
        d = self.X.shape[1]
        base = get_covar_module_with_dim_scaled_prior(d, use_rbf_kernel=not self.matern)
        options: dict[str, Any] = {"grid_size": GRIDS[d]} if family == "wiski" else {}
        if family == "cagp":  # for the larger data sets, too few actions
            options = {"actions": BlockSparse(ACTIONS)}
        return surrogate(
            family,
            self.X,
            self.Y,
            self.Yvar,
            bounds=self.X.new_tensor([[0.0] * d, [1.0] * d]),
            covar_module=ScaleKernel(base),
            outcome_transform=Standardize(1),
            **options,
        )


def fitted(problem: HardProblem, family: str, starts: int, index: int) -> dict[str, Any]:
    """What a fit comes to, and the best of the climbs."""
    model, clock = problem.surrogate(family), clock_on(problem.X.device)
    began = clock()
    report = model.fit()
    return {
        "kind": problem.kind,
        "d": problem.X.shape[1],
        "n": len(problem.X),
        "noise": "learned" if problem.Yvar is None else "known",
        "kernel": "Matern" if problem.matern else "RBF",
        "evaluations": report.evaluations,
        "seconds": clock() - began,
        "converged": report.converged,
        "value": report.value,
        "best start": best_of(partial(problem.surrogate, family), starts, index),
    }


def hard_problem(index: int, most_dims: int) -> HardProblem:
    """The problem of this number: its kind, dimension, size, kernel and noise."""
    generator = torch.Generator().manual_seed(index)
    kinds = list(KINDS)
    kind, d = kinds[index % len(kinds)], 1 + (index // len(kinds)) % most_dims
    n = SIZES[int(torch.randint(len(SIZES), (1,), generator=generator))]
    X = torch.rand(n, d, generator=generator, dtype=torch.float64)
    if kind == "clusters":
        centres = torch.rand(3, d, generator=generator, dtype=torch.float64)
        spread = 0.03 * torch.randn(n, d, generator=generator, dtype=torch.float64)
        X = (centres[torch.arange(n) % 3] + spread).clamp(0.0, 1.0)
    f, noise = KINDS[kind](X, index, generator)
    Y = f + noise * torch.randn(n, generator=generator, dtype=torch.float64)
    if kind == "outliers":
        Y[:: max(2, n // 4)] += 6.0
    matern, known = (torch.rand(2, generator=generator) < torch.tensor([0.5, 0.25])).tolist()
    Yvar = torch.full((n, 1), max(noise, 0.01) ** 2, dtype=torch.float64) if known else None
    return HardProblem(kind, X, Y.unsqueeze(-1), Yvar, matern)


def demo_problem(name: str, seed: int) -> HardProblem:
    """A hundred noisy readings of a synthetic function in three dimensions."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(100, 3, generator=generator, dtype=torch.float64)
    return HardProblem(name, X, synthetic(name, dim=3, seed=seed)(X), None, False)


def known_function(share: float, X: Tensor, index: int, generator: torch.Generator) -> Any:
    """A known function, its spread scaled to one, with noise of this share of it."""
    name = NAMES[int(torch.randint(len(NAMES), (1,), generator=generator))]
    d = max(X.shape[1], 2)  # some of these functions need two
    X = torch.cat([X, X.new_full((len(X), d - X.shape[1]), 0.5)], -1)
    f = synthetic(name, dim=d, seed=index).evaluate_true(X)[:, 0]
    return f / f.std().clamp_min(1e-12), share


def sines(X: Tensor, index: int, generator: torch.Generator) -> Any:
    """Two waves of random frequency for each input."""
    frequencies = 2.0 ** (1.0 + 4.0 * torch.rand(2, X.shape[1], generator=generator).double())
    return (frequencies[0] * X).sin().sum(-1) + 0.5 * (frequencies[1] * X).cos().sum(-1), 0.2


def trend(X: Tensor, index: int, generator: torch.Generator) -> Any:
    """A plane with quick waves on it."""
    slopes = torch.randn(X.shape[1], generator=generator).double()
    return X @ slopes + 0.3 * (25.0 * X[:, 0]).sin(), 0.1


def wave(X: Tensor, *_: Any) -> Any:
    """A wave in a bowl."""
    return (6.0 * X[:, 0]).sin() + 0.3 * (X - 0.5).square().sum(-1), 0.3


KINDS: dict[str, Callable[[Tensor, int, torch.Generator], Any]] = {
    "noisy function": partial(known_function, 1.0),
    "less noisy function": partial(known_function, 0.3),
    "exact function": partial(known_function, 0.0),
    "sines": sines,
    "steps": lambda X, *_: ((X[:, 0] > 0.4).double() + 0.5 * (X[:, -1] > 0.7).double(), 0.05),
    "smooth": lambda X, *_: ((2.0 * X).sin().sum(-1) + X[:, 0] * X[:, -1], 1e-4),
    "noise alone": lambda X, *_: (torch.zeros_like(X[:, 0]), 1.0),
    "outliers": wave,
    "clusters": wave,
    "trend": trend,
}
"""Functions at ``n x d`` points, and the deviation of their noise, by problem."""


def best_of(make: Callable[[], Any], starts: int, seed: int) -> float:
    """The highest end of long climbs from where a fresh model is and from draws of its priors."""
    best = -math.inf
    for draw in [None, *draws(make(), starts, seed)]:
        model = make()
        if draw is not None:
            draw(model)
        best = max(best, climbed(model))
    return best


def draws(model: Any, starts: int, seed: int) -> Iterator[Callable[[Any], None]]:
    """Writers of hyperparameters drawn from the priors; log-normal where there is none."""
    torch.manual_seed(seed)
    shape = model.covar_module.base_kernel.lengthscale.shape
    for _ in range(starts):
        values = model.covar_module.base_kernel.lengthscale_prior.sample(shape)
        scale, noise = torch.randn(1).exp(), None
        if model.noise_mode == "learned":
            noise = model.likelihood.noise_covar.noise_prior.sample()

        def write(
            model: Any, values: Tensor = values, scale: Tensor = scale, noise: Any = noise
        ) -> None:
            kernel = model.covar_module
            kernel.base_kernel.lengthscale = values.reshape(shape).clamp(0.03, 100.0)
            kernel.outputscale = scale.reshape(kernel.outputscale.shape)
            if noise is not None:
                model.likelihood.noise = noise.clamp(2e-4, 10.0)

        yield write


def climbed(model: Any) -> float:
    """Where scipy's L-BFGS-B ends."""
    mll = model.make_mll()
    model.custom_fit(mll, optimizer=fit_gpytorch_mll_scipy)
    return float(mll())


app = benchmark(measure, "about 25 minutes on one core", __doc__)

if __name__ == "__main__":
    start(app)
