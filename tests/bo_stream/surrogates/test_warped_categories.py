"""A `WarpedGP` over numbers and categories, against gpytorch's kernel over indicators."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor

from bo_stream import WarpedGP
from bo_stream.base import checkpoint
from bo_stream.errors import InputError
from bo_stream.mathematics.warp import evidence_of, unit


def mixed_model(n: int = 24) -> tuple[WarpedGP, Tensor]:
    """Over a number, a category of three labels and a number; and its points with indicators."""
    torch.manual_seed(0)
    X = torch.rand(n, 3, dtype=torch.float64)
    X[:, 1] = torch.randint(3, (n,)).double() / 2.0
    Y = -(X[:, :1] - 0.4).square() + torch.tensor([0.0, 0.4, 0.1]).double()[(2 * X[:, 1:2]).long()]
    box = torch.tensor([[0.0], [1.0]]).double().expand(2, 3)
    return WarpedGP(X, Y, bounds=box, cat_dims=[1], warp="none"), X


def with_indicators(X: Tensor) -> Tensor:
    which = torch.nn.functional.one_hot((2 * X[:, 1]).round().long(), 3).double()
    return torch.cat([X[:, [0, 2]], which / 2.0**0.5], -1)


def test_categories_are_those_of_indicators_with_one_lengthscale() -> None:
    """The oracle is gpytorch's kernel over indicators, a root of two apart before the scaling."""
    model, X = mixed_model()
    model.fit()
    new = X[:6].roll(1, 0).clone()
    new[:, 0] *= 0.7
    lengths = model.covar_module.base_kernel.lengthscale.detach().squeeze(0)
    variance = model.covar_module.outputscale.detach()
    plain = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=5)).double()
    plain.base_kernel.lengthscale = lengths[[0, 2, 1, 1, 1]]
    plain.outputscale = variance
    K, k = (plain(with_indicators(a), with_indicators(X)).to_dense() for a in (X, new))
    torch.testing.assert_close(
        model.covar_module(new, X).to_dense(), k, rtol=1e-6, atol=1e-6
    )  # float32
    noise, mean = model.likelihood.noise.item(), model.mean_module.constant.item()
    y = model.state.Y[0] - mean
    expected = mean + k @ torch.linalg.solve(K + noise * torch.eye(len(X)), y)
    found, _ = model.latent().process.marginals(new.numpy())
    torch.testing.assert_close(torch.from_numpy(found), expected.detach(), rtol=1e-5, atol=1e-5)
    standard = model.outcome_transform(model.posterior(new).mean)[0].squeeze()
    torch.testing.assert_close(standard, expected.detach(), rtol=1e-5, atol=1e-5)
    again = checkpoint.build(checkpoint.read(checkpoint.dumps(model)))
    assert torch.equal(again.posterior(new).mean, model.posterior(new).mean)


def test_slopes_and_the_evidence_know_categories() -> None:
    model, X = mixed_model()
    model.fit()
    x, h = X[:5].numpy() * [0.9, 1.0, 0.9], 1e-6
    process, one = model.latent().process, np.ones((5, 1))
    slope = process.moments(x[:, None]).pull(one, 0.0 * one[:, None])[:, 0]
    assert not process.moments(x[:, None]).pull(one, one[:, None])[:, 0, 1].any()
    up, down = (process.marginals(x + [s * h, 0.0, 0.0])[0] for s in (1.0, -1.0))
    np.testing.assert_allclose(slope[:, 0], (up - down) / (2 * h), rtol=1e-4, atol=1e-7)
    y = model.state.Y[0].numpy()
    loss = evidence_of(X.numpy(), y, unit(y), learned=True, warp=True, cat_dims=(1,))
    theta = loss.priors.centre + 0.3
    for i, derivative in enumerate(loss(theta)[1]):
        step = np.eye(len(theta))[i] * h
        expected = (loss(theta + step)[0] - loss(theta - step)[0]) / (2 * h)
        assert derivative == pytest.approx(expected, rel=1e-4, abs=1e-5)
    swapped = X.numpy().copy()
    swapped[:, 1] = (swapped[:, 1] + 0.5) % 1.5  # other numbers for the same labels
    same = evidence_of(swapped, y, unit(y), learned=True, warp=True, cat_dims=(1,))
    assert same(theta)[0] == pytest.approx(loss(theta)[0], rel=1e-12)


def test_categories_are_among_the_inputs() -> None:
    X = torch.rand(3, 2, dtype=torch.float64)
    with pytest.raises(InputError, match="cat_dims"):
        WarpedGP(X, X[:, :1], cat_dims=[2])
