"""The Matern-5/2 kernel and its derivatives against gpytorch."""

import torch
from gpytorch.kernels import MaternKernel

from bo_stream.mathematics.matern import (
    lengthscale_gradient,
    matern52,
    matern52_and_slope,
    matern52_product,
    squared_distances,
)


def test_values_and_gradient() -> None:
    """As gpytorch and autograd have them, on points that coincide too."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(9, 3, generator=generator, dtype=torch.float64)
    X[1] = X[0]
    kernel = MaternKernel(nu=2.5, ard_num_dims=3).double()
    kernel.lengthscale = torch.tensor([[0.2, 0.5, 3.0]], dtype=torch.float64)
    Z = X / kernel.lengthscale.detach()
    dense = kernel(X).to_dense()
    values, slope = matern52_and_slope(squared_distances(Z, Z))
    assert torch.allclose(values, dense, atol=1e-7)
    assert torch.allclose(matern52(squared_distances(Z, Z)), dense, atol=1e-7)
    V = torch.rand(9, 2, generator=generator, dtype=torch.float64)
    assert torch.allclose(matern52_product(Z.repeat(40, 1), Z, V), (dense @ V).repeat(40, 1))
    M = torch.rand(9, 9, generator=generator, dtype=torch.float64)
    (M * dense).sum().backward()
    raw = kernel.raw_lengthscale
    wanted = raw.grad * kernel.lengthscale.detach() / torch.sigmoid(raw.detach())  # in log l
    found = lengthscale_gradient(0.5 * (M + M.mT) * slope, Z)
    assert torch.allclose(found, wanted.reshape(-1), atol=1e-8)


def test_far_points_are_not_subnormal() -> None:
    for dtype in (torch.float32, torch.float64):
        far = matern52(torch.full((2,), 1e8, dtype=dtype))
        assert (far >= torch.finfo(dtype).tiny).all()
