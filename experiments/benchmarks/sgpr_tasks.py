"""What `sgpr_cost` measures."""

from __future__ import annotations

import copy
from collections.abc import Callable

import gpytorch
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from bo_stream import OnlineSGPR
from bo_stream.growth import VIPS
from experiments.common.kernels import RAW, gaussian, scaled
from experiments.common.upstream import sgpr

BATCH = 50


def data(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """A smooth function of three inputs seen with noise."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X, (6.0 * X).sin().sum(-1, keepdim=True) + 0.1 * noise


def surrogate(n: int, M: int) -> OnlineSGPR:
    """A surrogate with M inducing points that has seen n observations."""
    kernel = scaled(RBFKernel(ard_num_dims=3), lengthscale=0.2, outputscale=1.0)
    growth = VIPS(1e-4, max_points=M)
    model = OnlineSGPR(*data(BATCH, 0), covar_module=kernel, growth=growth, **RAW)
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


def full_batch(n: int, M: int) -> Callable[[], None]:
    """One evaluation and gradient of gpytorch's SGPR."""
    X, Y = data(n, 0)
    kernel = scaled(RBFKernel(ard_num_dims=3), lengthscale=0.2)
    model = sgpr(X, Y[:, 0], kernel, X[:M], gaussian(noise=0.01))
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)

    def evaluate() -> None:
        model.zero_grad()
        with gpytorch.settings.fast_computations():
            mll(model(X), Y[:, 0]).backward()

    return evaluate
