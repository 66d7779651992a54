"""Kernels as they are read and frozen."""

import math
from typing import Any, ClassVar

import pytest
import torch
from botorch.models.kernels import CategoricalKernel
from gpytorch import settings
from gpytorch.constraints import Interval
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.priors import GammaPrior
from torch import Size, Tensor
from torch.nn.functional import softplus

from bo_stream import ExactGP, OnlineSGPR
from bo_stream.mathematics.kernels import frozen_kernel, scaled, stationary


@pytest.mark.parametrize("outputs", [(), (3,)])
def test_the_diagonal_of_categories_is_cheap(outputs: tuple[int, ...]) -> None:
    """It is that of the matrix, for points far too many for one."""
    generator = torch.Generator().manual_seed(0)
    kernel = CategoricalKernel(ard_num_dims=2, batch_shape=Size(outputs))
    frozen = frozen_kernel(ScaleKernel(kernel, batch_shape=Size(outputs)))
    X = torch.randint(0, 3, (4, 1, 5, 2), generator=generator).double()
    dense = frozen(X).to_dense().diagonal(dim1=-2, dim2=-1)
    assert torch.equal(frozen(X, diag=True), dense)
    many = X.reshape(-1, 2).repeat(50_000, 1)
    assert frozen(many, diag=True).shape == (*outputs, 1_000_000)


class OwnTransform(RBFKernel):
    """It reads its parameter without the constraint that it has."""

    def forward(self, x1: Tensor, x2: Tensor, **params: Any) -> Tensor:
        """The kernel between two sets of points."""
        return torch.exp(-softplus(self.raw_lengthscale) * torch.cdist(x1, x2))


@pytest.mark.parametrize(
    "kernel",
    [
        RBFKernel(lengthscale_constraint=Interval(0.1, 3.0)),
        MaternKernel(1.5, lengthscale_prior=GammaPrior(3.0, 6.0)),
        MaternKernel(2.5, batch_shape=Size([2])),
        PeriodicKernel() + RQKernel(),
        OwnTransform(),
    ],
)
def test_frozen_kernels_have_the_same_values(kernel: Kernel) -> None:
    scaled_kernel = ScaleKernel(kernel, batch_shape=kernel.batch_shape).double()
    for parameter in scaled_kernel.parameters():
        parameter.data.add_(0.3)
    X = torch.linspace(0.0, 1.0, 6, dtype=torch.float64).reshape(3, 2)
    frozen, expected = frozen_kernel(scaled_kernel), scaled_kernel(X).to_dense()
    assert torch.equal(frozen(X).to_dense(), expected.detach())
    if kernel.batch_shape:
        assert torch.equal(frozen[1](X).to_dense(), expected[1].detach())
    assert torch.equal(scaled_kernel(X).to_dense(), expected)  # which is unchanged


def test_a_frozen_kernel_of_parts_that_share_a_parameter() -> None:
    one, other = MaternKernel(), RBFKernel()
    other.raw_lengthscale = one.raw_lengthscale
    kernel = (ScaleKernel(one) + ScaleKernel(other)).double()
    X = torch.linspace(0.0, 1.0, 6, dtype=torch.float64).reshape(3, 2)
    assert torch.equal(frozen_kernel(kernel)(X).to_dense(), kernel(X).to_dense())


def test_parts_of_kernels() -> None:
    kernel = ScaleKernel(ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2)))
    kernel.outputscale, kernel.base_kernel.outputscale = 2.0, 3.0
    kernel.base_kernel.base_kernel.lengthscale = torch.tensor([0.5, 4.0])
    found = scaled(kernel)
    assert found.nu == 1.5
    assert torch.allclose(found.variances(1), torch.tensor([6.0], dtype=torch.float64))
    lengths = torch.tensor([[0.5, 4.0]] * 2, dtype=torch.float64)
    assert torch.allclose(found.lengthscales(2, 2), lengths)
    assert math.isinf(scaled(RBFKernel()).nu)


@pytest.mark.parametrize(
    "kernel",
    [
        LinearKernel(),
        RBFKernel(active_dims=[0]),
        ScaleKernel(RBFKernel(), active_dims=[0]),
        ScaleKernel(RBFKernel(), batch_shape=Size([2])),
        RBFKernel(ard_num_dims=3),
    ],
)
def test_other_kernels_have_no_closed_form(kernel: Kernel) -> None:
    assert stationary(ScaleKernel(RBFKernel(ard_num_dims=2)), 2) is not None
    assert stationary(kernel, 2) is None


class Watching(RBFKernel):
    """Notes how gpytorch's switch of lazy evaluation stands while values are computed."""

    lazy: ClassVar[list[bool]] = []

    def forward(self, x1: Any, x2: Any, **params: Any) -> Any:
        self.lazy.append(settings.lazily_evaluate_kernels.on())
        return super().forward(x1, x2, **params)


@pytest.mark.parametrize("family", [ExactGP, OnlineSGPR])
def test_settings_of_all_threads_stay(family: Any) -> None:
    """Two threads that switch it would leave it off for good."""
    X = torch.rand(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    bounds = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.float64)
    kernel = Watching(ard_num_dims=2, active_dims=(0, 2))
    model = family(X, X[:, :1], bounds=bounds, covar_module=kernel)
    Watching.lazy.clear()
    first = model.observe(X[:2] * 0.5, X[:2, 1:2]).posterior(X[:3]).variance
    assert Watching.lazy and all(Watching.lazy)
    X[:, 1] = 0.3  # which the kernel does not see
    assert torch.allclose(model.posterior(X[:3]).variance, first)
