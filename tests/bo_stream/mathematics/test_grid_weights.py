"""Interpolation from a folded grid: at the ends, at the nodes, and its derivative."""

import pytest
import torch
from torch import Tensor

from bo_stream import WISKI, ExactGP
from bo_stream.mathematics.grid import Grid
from problems import synthetic
from tests.bo_stream.mathematics.grid_cases import dense_interpolation
from tests.raw import RAW

SIZES = {1: (4,), 2: (5, 4), 3: (4, 6, 5)}


def grid_of(d: int) -> Grid:
    return Grid.covering(torch.stack([torch.full((d,), -1.0), torch.full((d,), 2.0)]), SIZES[d])


def points(d: int) -> Tensor:
    """Some anywhere, some at the bounds and some at other nodes."""
    X = -1.0 + 3.0 * torch.rand(40, d, generator=torch.Generator().manual_seed(0)).double()
    X[:8] = X[:8].round()
    X[8:12] = torch.where(X[8:12] > 0.5, 2.0, -1.0)
    X[12] = -1.0 + 3.0 / (torch.tensor(SIZES[d]) - 1)
    return X


@pytest.mark.parametrize("d", SIZES)
def test_quadratics_are_exact(d: int) -> None:
    """In the cells at the ends too, to the last bit or so; and rows sum to one."""
    grid, X = grid_of(d), points(d)
    rows = grid.interpolate(X)
    steps = [torch.linspace(-1.0, 2.0, g, dtype=torch.float64) for g in grid.sizes]
    U = torch.cartesian_prod(*steps).reshape(-1, d)
    a = torch.arange(1.0, d + 1.0)

    def quadratic(Z: Tensor) -> Tensor:
        return (1.0 + a * Z - 0.7 * Z.square()).prod(-1)

    W = dense_interpolation(rows)
    torch.testing.assert_close(W.sum(-1), torch.ones(len(X)).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(W @ quadratic(U), quadratic(X), rtol=1e-11, atol=1e-11)
    at_nodes = dense_interpolation(grid.interpolate(U))
    torch.testing.assert_close(at_nodes, torch.eye(grid.m).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("d", SIZES)
def test_slopes(d: int) -> None:
    """Off the nodes by difference quotients; at bounds and nodes those of a quadratic."""
    grid, X = grid_of(d), points(d)
    inner = X[13:19].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda Z: grid.interpolate(Z).weight, inner)
    X.requires_grad_()
    steps = [torch.linspace(-1.0, 2.0, g, dtype=torch.float64) for g in grid.sizes]
    values = (1.0 + torch.cartesian_prod(*steps).reshape(-1, d).square()).prod(-1)
    rows = grid.interpolate(X)
    (slope,) = torch.autograd.grad((values[rows.index] * rows.weight).sum(), X)
    expected = (1.0 + X.square()).prod(-1, keepdim=True) * 2.0 * X / (1.0 + X.square())
    torch.testing.assert_close(slope, expected.detach(), rtol=1e-10, atol=1e-10)
    assert (slope[8:12].abs() > 0.5).all()


def test_nodes_that_a_point_couples_are_near() -> None:
    """At the ends too: what is known of the sparsity of the sums rests on it."""
    grid = Grid.covering(torch.tensor([[0.0] * 3, [1.0] * 3]), (4, 4, 4))
    X = torch.rand(300, 3, generator=torch.Generator().manual_seed(1)).double()
    W = dense_interpolation(grid.interpolate(X))
    A = W.T @ W
    row, column = A.nonzero(as_tuple=True)
    assert int((row - column).abs().max()) < 4 * (grid.m // grid.sizes[0])


@pytest.mark.parametrize("name", ["ackley", "styblinskitang"])
def test_near_the_exact_gp(name: str) -> None:
    """What ten nodes a side are worth when all of them lie inside the bounds."""
    problem, generator = synthetic(name, 3), torch.Generator().manual_seed(0)
    X = torch.rand(60, 3, generator=generator).double()
    Y = problem.evaluate_true(X)
    Y = Y + problem.noise_std * torch.randn(60, 1, generator=generator).double()
    Y = (Y - Y.mean()) / Y.std()
    folded = WISKI(X, Y, bounds=problem.bounds.double(), **RAW)
    padded = WISKI(X, Y, grid=[(torch.arange(10.0).double() - 2.0) / 5.0] * 3, **RAW)
    exact = ExactGP(X, Y, bounds=problem.bounds.double(), **RAW)
    for model in (folded, padded, exact):
        model.covar_module.base_kernel.lengthscale = 0.25
        model.likelihood.noise = 0.2
    value, *others = (m.log_evidence().detach() for m in (exact, folded, padded))
    near, far = (abs(float(other - value)) for other in others)
    assert near < 1.3 and near < 0.8 * far
