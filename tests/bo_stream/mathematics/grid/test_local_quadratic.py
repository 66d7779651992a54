"""Entries local the diagonal, and quadratic forms from them, against dense products."""

import pytest
import torch

from bo_stream.mathematics.grid.local_quadratic import LocalEntries, SparseRows, quadratic
from bo_stream.mathematics.grid.nodes import Grid

SHAPES = {
    "1d": (12,),
    "2d": (9, 14),
    "2d smallest": (4, 4),
    "3d": (7, 6, 8),
    "3d smallest": (4, 4, 4),
}


def made(sizes, outputs=2):
    torch.manual_seed(0)
    d = len(sizes)
    grid = Grid.covering(torch.stack([torch.zeros(d), torch.ones(d)]).double(), sizes)
    root = torch.randn(outputs, grid.m, grid.m, dtype=torch.float64)
    X = torch.rand(3, 50, d, dtype=torch.float64)
    W = grid.interpolate(X.reshape(-1, d)).dense(grid.m)
    A = (W.T * torch.rand(150, dtype=torch.float64)) @ W
    M = (root @ root.mT) / grid.m
    return grid, M, SparseRows.of(A), M @ A @ M, grid.interpolate(X)


def dense(M, rows):
    W = rows.dense(M.shape[-1]).unsqueeze(-3)
    return (W @ M @ W.mT).diagonal(dim1=-2, dim2=-1)


@pytest.mark.parametrize("sizes", SHAPES.values(), ids=SHAPES)
def test_quadratic_forms(sizes):
    grid, M, A, N, rows = made(sizes)
    local = LocalEntries.congruence(M, A, grid)
    torch.testing.assert_close(local.quadratic(rows), dense(N, rows), rtol=1e-12, atol=1e-9)
    torch.testing.assert_close(quadratic(M, rows), dense(M, rows), rtol=1e-12, atol=1e-9)
    torch.testing.assert_close(A.times(M[0]), A.times(torch.eye(grid.m).double()) @ M[0])


def test_no_points():
    grid, M, *_ = made((9, 14))
    rows = grid.interpolate(torch.empty(0, 2, dtype=torch.float64))
    assert quadratic(M, rows).shape == (2, 0)
