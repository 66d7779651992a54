"""Kernel products with actions against the dense matrices they never form."""

import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel

from bo_stream.mathematics.computation_aware import (
    BlockMatrix,
    DenseMatrix,
    cross_product,
)

N, D, NUM = 600, 3, 7  # enough for several pieces of the kernel matrix


def make(name: str) -> Kernel:
    base = {
        "rbf": lambda: RBFKernel(ard_num_dims=D),
        "rbf isotropic": lambda: RBFKernel(),
        "matern12": lambda: MaternKernel(nu=0.5, ard_num_dims=D),
        "matern32": lambda: MaternKernel(nu=1.5, ard_num_dims=D),
        "matern52": lambda: MaternKernel(nu=2.5, ard_num_dims=D),
        "rq": lambda: RQKernel(ard_num_dims=D),
        "bare": lambda: RBFKernel(ard_num_dims=D),
    }[name]().double()
    size = base.lengthscale.shape
    base.lengthscale = torch.linspace(0.3, 0.7, size.numel(), dtype=torch.float64).reshape(size)
    if name == "bare":
        return base
    kernel = ScaleKernel(base).double()
    kernel.outputscale = torch.tensor(1.7, dtype=torch.float64)
    return kernel


KERNELS = ["rbf", "rbf isotropic", "matern12", "matern32", "matern52", "rq", "bare"]


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(1)
    X = torch.rand(N, D, generator=generator, dtype=torch.float64)
    X[10] = X[3]  # a duplicate row
    block = torch.cat([torch.arange(NUM), torch.randint(NUM, (N - NUM,), generator=generator)])
    values = torch.randn(N, generator=generator, dtype=torch.float64)
    return X, BlockMatrix(block, values.requires_grad_()), generator


def dense_kernel(kernel: Kernel, X1: torch.Tensor, X2: torch.Tensor) -> torch.Tensor:
    """By differences, not by gpytorch's matrix product, which loses digits of Matern-1/2."""
    base = getattr(kernel, "base_kernel", kernel)
    r2 = ((X1[:, None] - X2) / base.lengthscale.squeeze()).square().sum(-1)
    r = torch.where(r2 > 0, r2, 1.0).sqrt() * (r2 > 0)
    os = getattr(kernel, "outputscale", 1.0)
    if isinstance(base, MaternKernel):
        s = (2 * base.nu) ** 0.5 * r
        poly = {0.5: 1.0, 1.5: 1 + s, 2.5: 1 + s + s**2 / 3}[base.nu]
        return os * poly * torch.exp(-s)
    if isinstance(base, RQKernel):
        return os * (1 + r2 / (2 * base.alpha)) ** -base.alpha
    return os * torch.exp(-0.5 * r2)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dense", [False, True], ids=["block", "dense"])
def test_products_and_gradients(name, dense, data):
    X, S, generator = data
    kernel, weights = make(name), torch.randn(N, NUM, generator=generator, dtype=torch.float64)
    inputs = list(kernel.parameters())
    actions = DenseMatrix(S.dense().detach()) if dense else S
    if not dense:
        inputs.append(S.values)
    want = dense_kernel(kernel, X, X) @ S.dense()
    got = cross_product(kernel, X, X, actions)
    assert torch.allclose(got, want, rtol=1e-12, atol=2e-7 if name == "matern12" else 1e-12)
    want_grad = torch.autograd.grad((want * weights).sum(), inputs)
    got_grad = torch.autograd.grad((got * weights).sum(), inputs)
    for a, b in zip(got_grad, want_grad, strict=True):
        assert torch.allclose(a, b, rtol=1e-6 if name == "matern12" else 1e-9, atol=1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_cross_product_and_gradient_to_points(name, data):
    X, S, generator = data
    S = BlockMatrix(S.block, S.values.detach())
    kernel = make(name).requires_grad_(False)
    X_star = torch.rand(31, D, generator=generator, dtype=torch.float64).requires_grad_()
    weights = torch.randn(31, NUM, generator=generator, dtype=torch.float64)
    got = cross_product(kernel, X_star, X, S)
    want = dense_kernel(kernel, X_star, X) @ S.dense()
    assert torch.allclose(got, want, rtol=1e-12, atol=1e-12)
    (a,) = torch.autograd.grad((got * weights).sum(), X_star)
    (b,) = torch.autograd.grad((want * weights).sum(), X_star)
    assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def test_no_points_and_no_data(data):
    X, S, _ = data
    kernel = make("rbf")
    assert cross_product(kernel, X[:0], X, S).shape == (0, NUM)
    nothing = BlockMatrix(S.block[:0], S.values[:0])
    assert cross_product(kernel, X, X[:0], nothing).shape == (N, 0)


def test_far_points():
    generator = torch.Generator().manual_seed(2)
    X = torch.rand(64, 1, generator=generator, dtype=torch.float64).sort(0)[0]
    kernel = make("rbf isotropic")
    kernel.base_kernel.lengthscale = 0.01
    S = BlockMatrix(torch.arange(64) // 8, torch.ones(64, dtype=torch.float64))
    assert torch.allclose(
        cross_product(kernel, X, X, S), dense_kernel(kernel, X, X) @ S.dense(), atol=1e-15
    )


def test_no_subnormal_numbers_arise():
    X = torch.tensor([[0.0], [1.0], [30.0]], dtype=torch.float64)
    kernel = make("rbf isotropic")
    kernel.base_kernel.lengthscale = 0.05
    S = BlockMatrix(torch.tensor([0, 1, 1]), torch.full((3,), 1e-3, dtype=torch.float64))
    B = cross_product(kernel, X, X, S)
    assert bool(((B == 0) | (B.abs() > torch.finfo(B.dtype).tiny)).all())
