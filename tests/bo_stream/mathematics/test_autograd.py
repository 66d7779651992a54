"""Second derivatives of functions with gradients in closed form."""

from functools import partial

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor
from torch.autograd import gradgradcheck
from torch.autograd.functional import hessian

from bo_stream import CaGP, ExactGP, NodeWISKI, OnlineSGPR, TrustRegionGP, WarpedGP
from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.autograd import attach, refused, traced, twice
from bo_stream.mathematics.kernels import SmoothMatern

X = torch.rand(12, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.sin(5.0 * X).sum(-1, keepdim=True)
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def central(f, x: Tensor, h: float = 1e-5) -> Tensor:
    """The Hessian of a scalar function at ``1 x d`` x, by differences of its gradients."""

    def gradient(z: Tensor) -> Tensor:
        z = z.clone().requires_grad_()
        return torch.autograd.grad(f(z), z)[0][0]

    steps = h * torch.eye(x.shape[-1], dtype=x.dtype)
    return torch.stack([(gradient(x + s) - gradient(x - s)) / (2.0 * h) for s in steps])


def test_the_same_tensor_twice() -> None:
    """Each input has its share of the gradient."""
    x = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    product = partial(twice, lambda a, b: a * b.sin(), lambda a, b: a * b.sin())
    assert torch.allclose(hessian(lambda z: product(z, z).sum(), x), hessian(_product, x))
    grads = traced(lambda a, b: a * b.sin(), (x, x), torch.ones_like(x))
    assert torch.allclose(grads[0] + grads[1], torch.autograd.grad(_product(x), x)[0])


def _product(z: Tensor) -> Tensor:
    return (z * z.sin()).sum()


def test_refused_gradients_keep_their_values() -> None:
    x = torch.tensor([0.3], requires_grad=True)
    (gradient,) = refused([2.0 * x.detach()], [x], "a square")
    assert float(gradient.detach()) == pytest.approx(0.6)
    with pytest.raises(UnsupportedError, match="first derivatives of a square"):
        gradient.sum().backward()


@pytest.mark.parametrize("nu", [1.5, 2.5])
def test_matern_kernels_where_points_coincide(nu: float) -> None:
    kernel = SmoothMatern(nu=nu, ard_num_dims=2).double().requires_grad_(False)
    kernel.lengthscale = torch.tensor([[0.4, 0.7]], dtype=torch.float64)
    plain = MaternKernel(nu=nu, ard_num_dims=2).double()
    plain.load_state_dict(kernel.state_dict())
    Z = X[:4].clone().requires_grad_()
    assert torch.allclose(kernel(Z, X).to_dense(), plain(Z, X).to_dense(), atol=1e-7)
    assert gradgradcheck(lambda Z: kernel(Z, X + 0.05).to_dense(), (Z,))
    curvature = hessian(lambda z: kernel(z, X[:1]).to_dense().sum(), X[:1]).reshape(2, 2)
    slope = {1.5: 3.0, 2.5: 5.0 / 3.0}[nu]  # k = 1 - slope r^2 / 2 near zero
    wanted = torch.diag(-slope / torch.tensor([0.4, 0.7], dtype=torch.float64).square())
    assert torch.allclose(curvature, wanted, rtol=1e-6)


FAMILIES = {
    "exact": ExactGP,
    "nodes": NodeWISKI,
    "inducing": OnlineSGPR,
    "actions": CaGP,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_posteriors_with_a_matern_kernel_at_observed_points(family: str) -> None:
    """There distances have no second derivatives, and kernels do."""
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2))
    check_at_data(FAMILIES[family](X, Y, bounds=BOUNDS, covar_module=kernel))


@pytest.mark.parametrize("family", [WarpedGP, TrustRegionGP])
def test_posteriors_of_default_matern_kernels_at_observed_points(family: type) -> None:
    check_at_data(family(X, Y, bounds=BOUNDS))


def test_categories_at_observed_points() -> None:
    C = torch.cat([X, torch.arange(12.0).remainder(3.0).unsqueeze(-1)], -1)
    bounds = torch.cat([BOUNDS, torch.tensor([[0.0], [2.0]])], -1)
    model = WarpedGP(C, Y, bounds=bounds, cat_dims=[2])

    def mean(z: Tensor) -> Tensor:
        return model.posterior(torch.cat([z, C[:1, 2:]], -1)).mean.sum()

    wanted = central(mean, C[:1, :2])
    assert torch.allclose(hessian(mean, C[:1, :2]).reshape(2, 2), wanted, rtol=1e-4)


def check_at_data(model) -> None:
    def value(x: Tensor) -> Tensor:
        posterior = model.posterior(x)
        return posterior.mean.sum() + posterior.variance.sum()

    wanted = central(value, X[:1])
    assert torch.allclose(hessian(value, X[:1]).reshape(2, 2), wanted, rtol=1e-3, atol=1e-4)


def test_gradients_that_are_attached_refuse_second_derivatives() -> None:
    def square(x: Tensor) -> Tensor:
        return attach(x.detach().square().sum(), [x], [2.0 * x.detach()])

    assert torch.equal(torch.autograd.functional.jacobian(square, X[0]), 2.0 * X[0])
    with pytest.raises(UnsupportedError, match="closed-form gradient"):
        hessian(square, X[0])
