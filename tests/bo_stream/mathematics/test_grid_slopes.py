"""Functions interpolated from nodes, in torch and in numpy with derivatives."""

import pytest
import torch

from bo_stream.errors import BoundsError
from bo_stream.mathematics.grid import Grid, ProductFeatures, interpolated
from bo_stream.mathematics.grid_kernel import Eigenbasis, NodeProcess, features_of
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
def test_products_of_one_dimension_each_are_the_same(d: int, folded: bool) -> None:
    own = grid(d, folded=folded)
    X, most = places(own), max(own.sizes)
    tables = torch.randn(d, most, 7, dtype=torch.float64)
    whole = torch.ones(1, 7, dtype=torch.float64)
    for table, size in zip(tables, own.sizes, strict=True):
        whole = (whole.unsqueeze(1) * table[:size]).flatten(0, 1)
    columns = torch.arange(1, 8).expand(d, -1)
    dense = torch.einsum("bqn,nf->bqf", dense_interpolation(own.interpolate(X)), whole)
    found, W = ProductFeatures(own, tables, columns).features(X), own.interpolate(X)
    torch.testing.assert_close(found, dense, rtol=1e-11, atol=1e-11)
    found = interpolated(whole, W.index, W.weight)
    torch.testing.assert_close(found, dense, rtol=1e-11, atol=1e-11)


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
    spectra = []
    for size in own.sizes:
        gap = torch.arange(size, dtype=torch.float64)
        spectra.append(torch.linalg.eigh((-0.2 * (gap - gap.unsqueeze(-1)).square()).exp()))
    basis = Eigenbasis.of(own, torch.tensor(2.0, dtype=torch.float64), spectra, 1e-3)
    assert basis.size < own.m
    u, mean = torch.ones(1, own.m).double(), torch.zeros(1).double()
    at_nodes = NodeProcess.of(own, u, torch.eye(own.m).double().unsqueeze(0), mean).basis.features
    for features in (features_of(own, [basis]), at_nodes):
        X = places(own)[:2, 2:].clone().requires_grad_(True)
        assert torch.autograd.gradcheck(features.features, (X,), eps=1e-6, atol=1e-6)
        assert torch.autograd.gradgradcheck(features.features, (X,), eps=1e-6, atol=1e-5)
        functions, values = features.functions(), features.features(X).flatten(0, 1)
        assert functions is not None
        flat = X.detach().reshape(-1, 3).numpy()
        found, pull = functions(flat)
        torch.testing.assert_close(torch.from_numpy(found), values.detach(), rtol=0.0, atol=1e-13)
        bar = torch.linspace(-1.0, 1.0, values.numel(), dtype=torch.float64).view_as(values)
        (slope,) = torch.autograd.grad(values, X, bar)
        pulled = torch.from_numpy(pull(bar.numpy())).view_as(slope)
        torch.testing.assert_close(pulled, slope, rtol=1e-11, atol=1e-11)
