"""ExactGP against dense algebra, and against BoTorch's SingleTaskGP."""

from typing import Any

import pytest
import torch
from botorch.models.gp_regression import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Size, Tensor

from bo_stream import ExactGP
from bo_stream.mathematics.process import unconditioned
from bo_stream.testing.base import assert_same_posterior, close
from bo_stream.testing.oracles import DenseGP
from tests.raw import RAW

KERNELS: dict[str, Any] = {
    "scaled ARD RBF": lambda: ScaleKernel(RBFKernel(ard_num_dims=2)),
    "Matern 3/2": lambda: MaternKernel(nu=1.5),
    "scaled rational quadratic": lambda: ScaleKernel(RQKernel()),
    "not stationary": lambda: ScaleKernel(LinearKernel()) + ScaleKernel(RBFKernel()),
}


def data(n: int = 15, m: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, m, generator=generator, dtype=torch.float64)
    Y = 1.0 + (5.0 * X.sum(-1, keepdim=True) + torch.arange(m)).sin() + 0.3 * noise
    return X, Y, 0.1 + torch.rand(n, m, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("noise", ["learned", "known", "scaled"])
@pytest.mark.parametrize("name", KERNELS)
def test_golden(name: str, noise: str) -> None:
    X, Y, Yvar = data()
    likelihood = None if noise == "known" else GaussianLikelihood()
    known = None if noise == "learned" else Yvar
    model: Any = ExactGP(X, Y, known, covar_module=KERNELS[name](), likelihood=likelihood, **RAW)
    for p in model.parameters():
        p.data.add_(0.3)
    variance: Any = torch.ones(15, dtype=torch.float64) if known is None else Yvar[:, 0]
    if noise != "known":
        variance = variance * model.likelihood.noise
    dense = DenseGP(
        lambda a, b: model.covar_module(a, b).to_dense(),
        X,
        Y[:, 0],
        variance,
        model.mean_module.constant,
    )
    Z = torch.rand(6, 2, dtype=torch.float64)
    mean, cov = dense.posterior(Z)
    close(model.posterior(Z).mean[:, 0], mean)
    close(model.posterior(Z).distribution.covariance_matrix, cov)
    value, expected = model.log_evidence(), dense.evidence()
    close(value, expected)
    parameters = [p for p in model.parameters() if p.requires_grad]
    grads = torch.autograd.grad(value, parameters), torch.autograd.grad(expected, parameters)
    for mine, theirs in zip(*grads, strict=True):
        close(mine, theirs)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("known", [False, True])
def test_is_botorchs_exact_gp(outputs: int, known: bool) -> None:
    """Same data, modules and transforms: the numbers of SingleTaskGP and its likelihood."""
    X, Y, Yvar = data(m=outputs)
    batch = Size([outputs] if outputs > 1 else [])
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2, batch_shape=batch), batch_shape=batch)
    kw: dict[str, Any] = {
        "covar_module": kernel,
        "input_transform": Normalize(2, bounds=torch.tensor([[0.0, 0.0], [1.0, 2.0]])),
        "outcome_transform": Standardize(outputs),
    }
    stock = SingleTaskGP(X, Y, Yvar if known else None, **kw)
    ours = ExactGP(
        X,
        Y,
        Yvar if known else None,
        likelihood=None if known else stock.likelihood,
        **{**RAW, **kw},
    )
    Z = torch.rand(3, 4, 2, dtype=torch.float64)
    for noise in (False, True):
        if noise and known:
            continue  # there BoTorch takes the mean over the training noise of another batch shape
        mine = ours.posterior(Z, observation_noise=noise)
        theirs = stock.posterior(Z, observation_noise=noise)
        close(mine.mean, theirs.mean, 1e-6)
        close(mine.variance, theirs.variance, 1e-6)
    stock.train()
    with torch.no_grad():
        dist = stock.likelihood(stock(*stock.train_inputs), *stock.train_inputs)
        close(ours.log_evidence(), dist.log_prob(stock.train_targets).sum(), 1e-6)


def test_bounds_are_optional() -> None:
    X, Y, _ = data()
    assert ExactGP(X, Y, **RAW).posterior(100.0 + X).mean.isfinite().all()


@pytest.mark.parametrize("noise", ["learned", "known", "scaled"])
def test_a_posterior_given_more_data_is_that_of_all_data(noise: str) -> None:
    X = torch.rand(60, 2, generator=torch.Generator().manual_seed(5)).double()
    Y = torch.stack([X.sum(-1).sin(), X[:, 0] - X[:, 1]], -1)
    Yvar = None if noise == "learned" else 0.01 + 0.1 * X
    likelihood = {"likelihood": GaussianLikelihood()} if noise == "scaled" else {}

    def some(rows: slice) -> tuple[Tensor, Tensor, Tensor | None]:
        return X[rows], Y[rows], None if Yvar is None else Yvar[rows]

    model = ExactGP(*some(slice(0, 10)), **likelihood, **RAW)
    first = model.process()
    for start in range(10, 60, 5):
        model.observe(*some(slice(start, start + 5)))
        assert unconditioned(model.process()) == (first, start - 5)
    fresh = ExactGP(*some(slice(0, 60)), **likelihood, **RAW)
    assert_same_posterior(model, fresh, X + 0.01, 1e-9)
