"""What `svdgp_cost` measures: streams of six inputs, and folding by another rule."""

from __future__ import annotations

import copy
from unittest import mock

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from bo_stream import SVDGP
from bo_stream.decoupled import update
from bo_stream.decoupled.state import Window
from bo_stream.growth import FixedGrid
from experiments.common.kernels import RAW, gaussian, scaled

INPUTS = 6
NOISE = 0.01


def data(n: int, seed: int, inputs: int = INPUTS, speed: float = 4.0) -> tuple[Tensor, Tensor]:
    """A smooth function of some inputs seen with noise; ``speed`` says how quickly it varies."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, inputs, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X, clean(X, speed) + NOISE**0.5 * noise


def clean(X: Tensor, speed: float = 4.0) -> Tensor:
    """The function without noise: neighbouring inputs act together."""
    return (speed * (X + X.roll(1, -1))).sin().sum(-1, keepdim=True) / X.shape[-1] ** 0.5


def surrogate(window: int, basis: int, inputs: int = INPUTS, **kw: object) -> SVDGP:
    """A surrogate that has seen nothing, its hyperparameters about right."""
    kernel = scaled(RBFKernel(ard_num_dims=inputs), lengthscale=0.5, outputscale=1.0)
    options = {"window": window, "covar_basis": basis, "likelihood": gaussian(noise=NOISE)}
    X, Y = data(0, 0, inputs)
    return SVDGP(X, Y, covar_module=kernel, **{**options, **RAW, **kw})


def seen(n: int, window: int, basis: int) -> SVDGP:
    """One that has seen n observations."""
    model, (X, Y) = surrogate(window, basis), data(n, 0)
    for rows in torch.arange(n).split(500):
        model.observe(X[rows], Y[rows])
    return model


def observe(model: SVDGP, points: int) -> None:
    """One-point updates, with the next posterior once: on a copy, which a stream need not make."""
    model = copy.deepcopy(model)
    X, Y = data(points, 1)
    for i in range(points):
        model.observe(X[i : i + 1], Y[i : i + 1])
    with torch.no_grad():
        model.posterior(X[:1])


def folding(case: int, n: int, window: int, basis: int) -> tuple[float, float]:
    """RMSE after a stream, with rows folded by least contribution, and with the first ones kept."""
    inputs, speed = [(2, 6.0), (3, 5.0), (4, 4.0), (6, 3.0)][case % 4]
    X, Y = data(n, 100 + case, inputs, speed)
    T = data(500, 200 + case, inputs)[0]
    errors = []
    for first in (False, True):
        policy = FixedGrid(data(basis, 300 + case, inputs)[0])
        model = surrogate(window, basis, inputs, growth=policy, slack=32)
        with mock.patch.object(update, "least", newest if first else update.least):
            for rows in torch.arange(n).split(50):
                model.observe(X[rows], Y[rows])
        with torch.no_grad():
            gap = model.posterior(T).mean - clean(T, speed)
        errors.append(float(gap.square().mean().sqrt()))
    return errors[0], errors[1]


def newest(own: Window, variances: Tensor) -> Tensor:
    """Rows in the order in which they are folded if the first ones seen are kept."""
    return torch.arange(len(own.y), device=own.y.device).flip(0)
