"""Data, kernels and surrogates of the tests of HSGP."""

import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from bo_stream import HSGP
from bo_stream.mathematics.sines import MainEffects

LOW, WIDTH = [-1.0, 0.5, 2.0, 0.0], [2.0, 1.5, 3.0, 1.0]
SCALES = [0.9, 0.5, 2.0, 0.6]


def bounds(dim):
    low, width = torch.tensor(LOW[:dim]).double(), torch.tensor(WIDTH[:dim]).double()
    return torch.stack([low, low + width])


def data(n, dim=3, outputs=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    low, high = bounds(dim)
    X = low + (high - low) * torch.rand(n, dim, generator=generator, dtype=torch.float64)
    phase = torch.arange(outputs).double()
    Y = (X.sum(-1, keepdim=True) + phase).sin() + 0.5
    Y = Y + 0.1 * torch.randn(n, outputs, generator=generator, dtype=torch.float64)
    return X, Y, 0.01 + 0.02 * torch.rand(n, outputs, generator=generator, dtype=torch.float64)


def number(value):
    """In float64: gpytorch's setters round Python numbers to float32."""
    return torch.tensor(value, dtype=torch.float64)


def kernel(dim, kind="rbf", main=False):
    base = RBFKernel(ard_num_dims=dim) if kind == "rbf" else MaternKernel(kind, ard_num_dims=dim)
    scaled = ScaleKernel(base).double()
    base.lengthscale, scaled.outputscale = number(SCALES[:dim]), number(1.7)
    if not main:
        return scaled
    alone = ScaleKernel(MainEffects()).double()
    alone.base_kernel.lengthscale, alone.outputscale = number(0.3), number(0.6)
    return scaled + alone


def plain(X, Y, Yvar=None, *, features=30, kind="rbf", main=False, mean=0.3, **kw):
    """A surrogate in raw units, with hyperparameters that are not the defaults."""
    kw = {"covar_module": kernel(X.shape[-1], kind, main), **kw}
    kw |= {"input_transform": None, "outcome_transform": None, "num_features": features}
    model = HSGP(X, Y, Yvar, bounds=bounds(X.shape[-1]), **kw)
    if Yvar is None:
        model.likelihood.noise = number(0.02)
    model.mean_module.constant = number(mean)
    return model
