"""What `svdgp_cost` measures: streams of six inputs, and folding by another rule."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from bo_stream import SVDGP
from bo_stream.mathematics.decoupled import update
from bo_stream.mathematics.decoupled.state import Window
from experiments.common.kernels import RAW, gaussian, scaled

INPUTS = 6
NOISE = 0.01
FEATURES, TESTED = 3_000, 1_000
SHAPES = [(3, 0.25), (4, 0.4), (5, 0.5), (6, 0.6), (6, 0.8), (8, 1.0)]
"""Inputs and lengthscales of functions that are drawn."""


def data(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """A smooth function of six inputs seen with noise."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, INPUTS, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    clean = (4.0 * (X + X.roll(1, -1))).sin().sum(-1, keepdim=True) / INPUTS**0.5
    return X, clean + NOISE**0.5 * noise


def drawn(n: int, seed: int, inputs: int, lengthscale: float) -> tuple[Tensor, Tensor]:
    """A function drawn from the prior itself, without noise, by random features."""
    generator = torch.Generator().manual_seed(seed)
    X, W, c = (
        torch.randn(size, generator=generator, dtype=torch.float64)
        for size in ((n, inputs), (inputs, FEATURES), (FEATURES, 1))
    )
    X = torch.special.ndtr(X)
    phase = torch.rand(FEATURES, generator=generator, dtype=torch.float64)
    waves = (X @ W / lengthscale + 2.0 * torch.pi * phase).cos()
    return X, (2.0 / FEATURES) ** 0.5 * waves @ c


def surrogate(window: int, basis: int, inputs: int, lengthscale: float, **kw: object) -> SVDGP:
    """A surrogate that has seen nothing."""
    kernel = scaled(RBFKernel(ard_num_dims=inputs), lengthscale=lengthscale, outputscale=1.0)
    options = {"window": window, "covar_basis": basis, "likelihood": gaussian(noise=NOISE)}
    X = torch.zeros(0, inputs, dtype=torch.float64)
    return SVDGP(X, X[:, :1], covar_module=kernel, **{**options, **RAW, **kw})


def seen(n: int, window: int, basis: int) -> SVDGP:
    """One that has seen n observations."""
    model, (X, Y) = surrogate(window, basis, INPUTS, 0.5), data(n, 0)
    for rows in torch.arange(n).split(500):
        model.observe(X[rows], Y[rows])
    return model


def observing(model: SVDGP, points: int) -> Callable[[], SVDGP]:
    """One-point updates: one of so many points at each call."""
    X, Y = data(points, 1)
    rows = iter(zip(X.split(1), Y.split(1), strict=True))
    return lambda: model.observe(*next(rows))


def folding(case: int, n: int, window: int, basis: int) -> tuple[float, float]:
    """RMSE after a stream, with rows folded by least contribution, and with the first ones kept."""
    inputs, lengthscale = SHAPES[case % len(SHAPES)]
    X, F = drawn(n + TESTED, case, inputs, lengthscale)
    noise = torch.randn(n, 1, generator=torch.Generator().manual_seed(case), dtype=torch.float64)
    Y, errors = F[:n] + NOISE**0.5 * noise, []
    for first in (False, True):
        model = surrogate(window, basis, inputs, lengthscale)
        with mock.patch.object(update, "least", newest if first else update.least):
            for rows in torch.arange(n).split(50):
                model.observe(X[rows], Y[rows])
        with torch.no_grad():
            gap = model.posterior(X[n:]).mean - F[n:]
        errors.append(float(gap.square().mean().sqrt()))
    return errors[0], errors[1]


def newest(own: Window, variances: Tensor) -> Tensor:
    """Rows in the order in which they are folded if the first ones seen are kept."""
    return torch.arange(len(own.y), device=own.y.device).flip(0)
