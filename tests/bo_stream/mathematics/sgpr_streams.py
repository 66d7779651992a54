"""Streams for the tests of `OnlineSGPR`."""

import gpytorch
import torch

from bo_stream import OnlineSGPR
from tests.bo_stream.mathematics.sgpr_cases import data, se_kernel
from tests.raw import RAW

NOTHING = torch.empty(0, 2).double(), torch.empty(0, 1).double()


def likelihood(noise=0.01):
    module = gpytorch.likelihoods.GaussianLikelihood().double()
    module.noise = torch.tensor(noise, dtype=torch.float64)
    return module


def stream(n=30, growth=None, known=False, d=2, **kw):
    """A surrogate with fixed hyperparameters that has seen n points, and its data."""
    batch = data(n, d=d, spread=0.5)
    X, Y, Yvar = batch.X, batch.y.unsqueeze(-1), batch.noise.unsqueeze(-1)
    kw.setdefault("covar_module", se_kernel(1.3, (0.4,) * d))
    if not known:
        kw.setdefault("likelihood", likelihood())
    model = OnlineSGPR(X, Y, Yvar if known else None, growth=growth, **{**RAW, **kw})
    return model, X, Y, Yvar


def assert_close(a, b, tolerance=1e-6):
    assert a.shape == b.shape
    assert ((a - b).abs() <= tolerance * (1.0 + b.abs())).all()
