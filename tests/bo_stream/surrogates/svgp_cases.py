"""Data, states and streams for the tests of `OnlineSVGP`."""

import torch
from gpytorch.likelihoods import GaussianLikelihood

from bo_stream import OnlineSVGP
from bo_stream.mathematics.variational.state import SVGPState
from tests.bo_stream.mathematics.inducing import sgpr_cases
from tests.bo_stream.mathematics.inducing.sgpr_cases import data
from tests.raw import RAW

JITTER = 1e-8
"""The nugget of inducing values."""


def se_kernel(*args):
    """A kernel that can learn."""
    return sgpr_cases.se_kernel(*args).requires_grad_()


def likelihood(noise=0.05):
    module = GaussianLikelihood().double()
    module.noise = torch.tensor(noise, dtype=torch.float64)
    return module


def stream(n=30, Yvar=None, **kw):
    """A surrogate with fixed hyperparameters that has seen n points, and its data."""
    batch = data(n, d=2)
    X, Y = batch.X, batch.y.unsqueeze(-1)
    defaults = {"covar_module": se_kernel(1.3, (0.4, 0.5)), "likelihood": likelihood()}
    options = {"num_inducing": 10, "initial_steps": 50, **defaults, **kw}
    noise = None if Yvar is None else torch.full_like(Y, Yvar)
    if noise is not None:
        options.pop("likelihood")
    return OnlineSVGP(X, Y, noise, **{**RAW, **options}), X, Y


def random_state(Z, seed):
    """Any law of ``f(Z)``."""
    generator = torch.Generator().manual_seed(seed)
    M = len(Z)
    mu = torch.randn(M, generator=generator, dtype=torch.float64)
    T = 0.3 * torch.randn(M, M, generator=generator, dtype=torch.float64).tril(-1)
    share = torch.full_like(mu, JITTER)
    return SVGPState(Z, mu, T + torch.diag(0.4 + 0.1 * mu.square()), share, JITTER)
