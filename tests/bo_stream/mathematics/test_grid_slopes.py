"""Interpolation weights that come with their derivatives, and what is made of them."""

import pytest
import torch

from bo_stream.errors import BoundsError
from bo_stream.mathematics.grid import Grid, NodeFeatures, ProductFeatures, outer
from bo_stream.mathematics.grid_kernel import Eigenbasis
from bo_stream.mathematics.joint import sloped_product
from tests.bo_stream.mathematics.grid_cases import dense_interpolation

SIZES = {1: (5,), 2: (4, 6), 3: (6, 4, 5)}


def grid(d: int, *, folded: bool) -> Grid:
    if folded:
        high = torch.arange(1.0, d + 1.0, dtype=torch.float64)
        return Grid.covering(torch.stack([torch.zeros_like(high), high]), list(SIZES[d]))
    sizes = [size + 2 for size in SIZES[d]]
    return Grid.from_nodes([torch.linspace(-1.0, 2.0, g, dtype=torch.float64) for g in sizes], d)


def places(own: Grid) -> torch.Tensor:
    """Points in all cells where points may lie, ends included."""
    low, high = own._frame[2] * own._frame[1], (own._frame[3] + 1.0) * own._frame[1]
    U = torch.rand(60, own.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    U[0], U[1] = 0.0, 1.0
    return (own._frame[0] + low + U * (high - low)).reshape(12, 5, own.dim)


@pytest.mark.parametrize("folded", [True, False])
@pytest.mark.parametrize("d", SIZES)
def test_weights_and_slopes_are_those_of_interpolate(d: int, folded: bool) -> None:
    own = grid(d, folded=folded)
    X = places(own).requires_grad_(True)
    plain = own.interpolate(X)
    start, cubics = own.cubics(X.detach(), slopes=True)
    rows = outer(cubics)
    assert torch.equal(start, plain.start) and rows.shape == (12, 5, 1 + d, 4**d)
    torch.testing.assert_close(rows[..., 0, :], plain.weight, rtol=0.0, atol=1e-13)
    towards = torch.randn(plain.weight.shape, dtype=torch.float64)
    (slope,) = torch.autograd.grad(plain.weight, X, towards)
    found = (rows[..., 1:, :] @ towards.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(found, slope, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("folded", [True, False])
@pytest.mark.parametrize("d", SIZES)
def test_products_of_one_dimension_each_are_the_same(d: int, folded: bool) -> None:
    own = grid(d, folded=folded)
    X, most = places(own), max(own.sizes)
    tables = torch.randn(d, most, 7, dtype=torch.float64)
    whole = torch.ones(1, 7, dtype=torch.float64)
    for table, size in zip(tables, own.sizes, strict=True):
        whole = (whole.unsqueeze(1) * table[:size]).flatten(0, 1)
    for slopes in (True, False):
        both = ProductFeatures(own, tables, torch.arange(7).expand(d, -1)).rows_at(X, slopes=slopes)
        expected = NodeFeatures(own, whole).rows_at(X, slopes=slopes)
        torch.testing.assert_close(both, expected, rtol=1e-11, atol=1e-11)
        values = torch.einsum("bqn,nf->bqf", dense_interpolation(own.interpolate(X)), whole)
        torch.testing.assert_close(both[..., 0, :], values, rtol=1e-11, atol=1e-11)


def test_points_outside_are_refused_everywhere() -> None:
    for folded, away in ((True, 1.1), (False, 0.1)):
        own = grid(2, folded=folded)
        X = places(own)
        for side in (-1.0, 1.0):
            out = X + side * (away + (own._frame[3] - own._frame[2]) + 1.0) * own._frame[1]
            with pytest.raises(BoundsError):
                own.interpolate(out)
    assert own.interpolate(X[:0]).weight.shape == (0, 5, 16)


def test_features_are_differentiable() -> None:
    own = grid(3, folded=True)
    kernels = []
    for size in own.sizes:
        gap = torch.arange(size, dtype=torch.float64)
        kernels.append((-0.2 * (gap - gap.unsqueeze(-1)).square()).exp())
    basis = Eigenbasis.of(own, torch.tensor(2.0, dtype=torch.float64), kernels, 1e-3)
    assert basis.size < own.m
    nodes = torch.randn(own.m, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for features in (basis.features, NodeFeatures(own, nodes)):
        X = places(own)[:2, 2:].clone().requires_grad_(True)
        assert torch.autograd.gradcheck(features.features, (X,), eps=1e-6, atol=1e-6)
        assert torch.autograd.gradgradcheck(features.features, (X,), eps=1e-6, atol=1e-5)
        rows, back = features.sloped(X)
        values = features.features(X)
        torch.testing.assert_close(rows[..., 0, :], values.detach(), rtol=0.0, atol=1e-13)
        bar = torch.linspace(-1.0, 1.0, values.numel(), dtype=torch.float64).view_as(values)
        (slope,) = torch.autograd.grad(values, X, bar)
        found = back((rows[..., 1:, :] @ bar.unsqueeze(-1)).squeeze(-1))
        torch.testing.assert_close(found, slope, rtol=1e-11, atol=1e-11)


def test_derivatives_of_products() -> None:
    x = torch.rand(4, 3, dtype=torch.float64)
    factors = [torch.stack([x[:, k].sin(), x[:, k].cos()], -1).unsqueeze(-1) for k in range(3)]
    rows = sloped_product(factors).squeeze(-1)
    jacobian = torch.autograd.functional.jacobian(lambda z: z.sin().prod(-1), x)
    torch.testing.assert_close(rows[:, 0], x.sin().prod(-1))
    torch.testing.assert_close(rows[:, 1:], jacobian[range(4), range(4)])
