"""Sums by pairs of nodes against the dense ones they stand for."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from bo_stream.mathematics.grid import REACH, Grid, GridState, column_pairs, matrix_of
from bo_stream.mathematics.shapes import Rows
from bo_stream.testing.base import close
from tests.bo_stream.mathematics.grid_cases import dense_interpolation

SIZES = {1: (9,), 2: (7, 9), 3: (5, 6, 4)}


def grid(d: int) -> Grid:
    return Grid.covering(torch.tensor([[0.0] * d, [1.0] * d], dtype=torch.float64), SIZES[d])


def batch(n: int, d: int, seed: int = 0, outputs: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=generator, dtype=torch.float64)
    X[:2] = X[:2].round()  # on the bounds
    Y = torch.randn(outputs, n, generator=generator, dtype=torch.float64)
    return X, Y, 0.5 + torch.rand(outputs, n, generator=generator, dtype=torch.float64)


def seen(d: int, *batches: tuple[Tensor, Tensor, Tensor]) -> GridState:
    """A state of two outputs after these batches."""
    state, n = GridState.before_data(grid(d), d, 2, False, 0), 0
    for X, Y, R in batches:
        state, n = state.absorb_at(Rows(X, Y, R), n), n + len(X)
    return state


def dense(A: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """A by pairs, node by node: slow and obvious."""
    by_pair = A.reshape([REACH * n for n in sizes])
    nodes = list(itertools.product(*map(range, sizes)))
    M = A.new_zeros(len(nodes), len(nodes))
    for (a, i), (b, j) in itertools.product(enumerate(nodes), repeat=2):
        gaps = [abs(x - y) for x, y in zip(i, j, strict=True)]
        if max(gaps) < REACH:
            slots = (REACH * min(x, y) + s for x, y, s in zip(i, j, gaps, strict=True))
            M[a, b] = by_pair[tuple(slots)]
    return M


def test_products_of_columns_over_pairs() -> None:
    """``v'A w`` for every two columns, from A by pairs."""
    state, n = seen(1, batch(30, 1, outputs=2)), SIZES[1][0]
    V = torch.randn(n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    i, j = torch.tril_indices(3, 3)
    expected = (V.T @ dense(state.A[0], SIZES[1]) @ V)[i, j]
    close(column_pairs(V) @ state.A[0], expected, 1e-12)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_sums_are_the_dense_ones(d: int) -> None:
    """In three dimensions, more points than are summed at once."""
    batches = [batch(n, d, seed, 2) for seed, n in enumerate((1, 3, 300))]
    state = seen(d, *batches)
    W = torch.cat([dense_interpolation(grid(d).interpolate(X)) for X, _, _ in batches])
    Y, R = (torch.cat([part[i] for part in batches], -1) for i in (1, 2))
    w1, y1, one = state.totals()
    for o, A in enumerate(state.A):
        expected = W.T @ (W / R[o].unsqueeze(-1))
        close(dense(A, SIZES[d]), expected, 1e-12)
        close(matrix_of(A, SIZES[d]), expected, 1e-12)
        close(w1[o], (W / R[o].unsqueeze(-1)).sum(0), 1e-12)
        close(y1[o], (Y[o] / R[o]).sum(), 1e-12)
        close(one[o], (1.0 / R[o]).sum(), 1e-12)


def test_the_state_before_stays_as_it_was() -> None:
    first, second = batch(20, 2, outputs=2), batch(30, 2, 1, outputs=2)
    state = seen(2, first)
    before = state.A.clone()
    after = state.absorb_at(Rows(*second), 20)
    assert torch.equal(state.A, before) and not torch.equal(after.A, before)


def test_rescaled_and_discounted() -> None:
    X, Y, R = batch(20, 2, outputs=2)
    shift, factor = torch.tensor([0.3, -1.0]).double(), torch.tensor([2.0, 0.7]).double()
    state = seen(2, (X, Y, R)).rescaled(shift, factor, True).discounted(0.5)
    y = (Y - shift.unsqueeze(-1)) / factor.unsqueeze(-1)
    noise = 2.0 * R / factor.square().unsqueeze(-1)
    expected = seen(2, (X, y, noise))
    close(state.A, expected.A, 1e-12)
    close(state.b, expected.b, 1e-12)
    close(state.yy, expected.yy, 1e-12)
