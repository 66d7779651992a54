"""What `fit_modes` measures: hard problems, their surrogates, and the best of several climbs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from botorch.models.transforms import Standardize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import ScaleKernel
from scipy.optimize import minimize
from torch import Tensor

from bo_stream import surrogate
from bo_stream.actions import BlockSparse
from bo_stream.base.fitting import Coordinates, log_prior, profiled_mean
from bo_stream.errors import StateError
from problems import synthetic

FAMILIES = {"exact": 6, "wiski": 3, "cagp": 6}
"""Families, and the most dimensions their problems have."""

GRIDS = {1: 64, 2: 14, 3: 7}

ACTIONS = 60
"""Actions of CaGP; with more data their values are learned along with the hyperparameters."""

SIZES = (5, 8, 12, 20, 35, 60, 100, 150)

NAMES = ("levy", "ackley", "rastrigin", "griewank", "styblinskitang", "rosenbrock")


@dataclass(frozen=True)
class Problem:
    """Data on the unit cube, and how they are to be modelled."""

    kind: str
    X: Tensor
    Y: Tensor
    Yvar: Tensor | None
    matern: bool

    def surrogate(self, family: str) -> Any:
        """A fresh surrogate, with default priors and standardised outcomes."""
        d = self.X.shape[1]
        base = get_covar_module_with_dim_scaled_prior(
            ard_num_dims=d, use_rbf_kernel=not self.matern
        )
        options: dict[str, Any] = {"grid_size": GRIDS[d]} if family == "wiski" else {}
        if family == "cagp":  # for the larger data sets, too few actions
            options = {"actions": BlockSparse(ACTIONS)}
        return surrogate(
            family,
            self.X,
            self.Y,
            self.Yvar,
            bounds=torch.tensor([[0.0] * d, [1.0] * d], dtype=torch.float64),
            covar_module=ScaleKernel(base),
            outcome_transform=Standardize(1),
            **options,
        )


def hard_problem(index: int, most_dims: int) -> Problem:
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
    return Problem(kind, X, Y.unsqueeze(-1), Yvar, matern)


def demo_problem(name: str, seed: int) -> Problem:
    """A hundred noisy readings of a synthetic function in three dimensions."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(100, 3, generator=generator, dtype=torch.float64)
    return Problem(name, X, synthetic(name, dim=3, seed=seed)(X), None, False)


def _synthetic(share: float, X: Tensor, index: int, generator: torch.Generator) -> Any:
    """A known function, its spread scaled to one, with noise of this share of it."""
    name = NAMES[int(torch.randint(len(NAMES), (1,), generator=generator))]
    d = max(X.shape[1], 2)  # some of these functions need two
    X = torch.cat([X, X.new_full((len(X), d - X.shape[1]), 0.5)], -1)
    f = synthetic(name, dim=d, seed=index).evaluate_true(X)[:, 0]
    return f / f.std().clamp_min(1e-12), share


def _sines(X: Tensor, index: int, generator: torch.Generator) -> Any:
    frequencies = 2.0 ** (1.0 + 4.0 * torch.rand(2, X.shape[1], generator=generator).double())
    return (frequencies[0] * X).sin().sum(-1) + 0.5 * (frequencies[1] * X).cos().sum(-1), 0.2


def _step(X: Tensor, index: int, generator: torch.Generator) -> Any:
    return (X[:, 0] > 0.4).double() + 0.5 * (X[:, -1] > 0.7).double(), 0.05


def _smooth(X: Tensor, index: int, generator: torch.Generator) -> Any:
    return (2.0 * X).sin().sum(-1) + X[:, 0] * X[:, -1], 1e-4


def _nothing(X: Tensor, index: int, generator: torch.Generator) -> Any:
    return torch.zeros_like(X[:, 0]), 1.0


def _wave(X: Tensor, index: int, generator: torch.Generator) -> Any:
    return (6.0 * X[:, 0]).sin() + 0.3 * (X - 0.5).square().sum(-1), 0.3


def _trend(X: Tensor, index: int, generator: torch.Generator) -> Any:
    slopes = torch.randn(X.shape[1], generator=generator).double()
    return X @ slopes + 0.3 * (25.0 * X[:, 0]).sin(), 0.1


KINDS: dict[str, Callable[[Tensor, int, torch.Generator], Any]] = {
    "noisy function": partial(_synthetic, 1.0),
    "less noisy function": partial(_synthetic, 0.3),
    "exact function": partial(_synthetic, 0.0),
    "sines": _sines,
    "steps": _step,
    "smooth": _smooth,
    "noise alone": _nothing,
    "outliers": _wave,
    "clusters": _wave,
    "trend": _trend,
}


def best_of(make: Callable[[], Any], starts: int, seed: int) -> float:
    """The highest end of long climbs from where a fresh model is and from draws of its priors.

    A model that learns more than hyperparameters (a CaGP with fewer actions than data) climbs from
    each as it does itself.
    """
    best = -math.inf
    for draw in [None, *draws(make(), starts, seed)]:
        model = make()
        if draw is not None:
            draw(model)
        best = max(best, _climbed(model) if model.explores else model.fit().value)
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


def _climbed(model: Any) -> float:
    """Where scipy's L-BFGS-B ends."""
    skip_mean = profiled_mean(model)
    coordinates = Coordinates(model, skip_mean)
    parameters = [p for p, _, _ in coordinates.items]

    def negative(u: np.ndarray) -> tuple[float, np.ndarray]:
        coordinates.set(torch.from_numpy(u.copy()))
        for p in parameters:
            p.grad = None
        try:
            value = model._objective(profile_mean=skip_mean)[0] + log_prior(model)
            value.backward()
        except (StateError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            return 1e10, np.zeros_like(u)
        return -float(value.detach()), -coordinates.gradient().numpy()

    bounds = list(zip(coordinates.lower.tolist(), coordinates.upper.tolist(), strict=True))
    now = coordinates.get().numpy()
    found = minimize(negative, now, jac=True, bounds=bounds, method="L-BFGS-B")
    return -float(cast(Any, found).fun)
