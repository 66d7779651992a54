"""Sums by pairs of nodes against the dense ones they stand for."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from bo_stream.mathematics.grid.bands import REACH, axis_rows
from bo_stream.mathematics.grid.nodes import Grid
from bo_stream.mathematics.grid.state import BandState, GridState
from bo_stream.testing.base import close

SIZES = {1: (9,), 2: (7, 9), 3: (5, 6, 4)}


def grid(d: int) -> Grid:
    return Grid.covering(torch.tensor([[0.0] * d, [1.0] * d], dtype=torch.float64), SIZES[d])


def batch(n: int, d: int, seed: int = 0, outputs: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=generator, dtype=torch.float64)
    X[:2] = X[:2].round()  # on the bounds
    Y = torch.randn(outputs, n, generator=generator, dtype=torch.float64)
    return X, Y, 0.5 + torch.rand(outputs, n, generator=generator, dtype=torch.float64)


def empty(kind: type[GridState], d: int, outputs: int, shared: bool) -> GridState:
    on = grid(d)
    return kind.empty(on.m, d, outputs, shared, 0, grid=on, by_pairs=True)


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


@pytest.mark.parametrize("d", [1, 2, 3])
def test_rows_are_products(d: int) -> None:
    X, *_ = batch(12, d)
    rows = grid(d).interpolate(X)
    product = torch.ones(12, 1, dtype=torch.float64)
    for n, (node, weight) in zip(SIZES[d], axis_rows(rows, SIZES[d]), strict=True):
        own = X.new_zeros(12, n).scatter_add(1, node, weight)
        product = (product.unsqueeze(-1) * own.unsqueeze(-2)).flatten(1)
    close(product, rows.dense(grid(d).m), 1e-13)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_sums_are_the_dense_ones(d: int) -> None:
    """In three dimensions, more points than are summed at once."""
    plain, bands = (empty(kind, d, 2, False) for kind in (GridState, BandState))
    for seed, n in enumerate((1, 3, 300)):
        X, Y, R = batch(n, d, seed, 2)
        before = 0 if seed == 0 else 1
        plain = plain.absorb_at(X, Y, R, [], before)
        bands = bands.absorb_at(X, Y, R, [], before)
    for A, B in zip(plain.A, bands.A, strict=True):
        close(dense(B, SIZES[d]), A, 1e-12)
    for mine, theirs in zip(bands.totals(), plain.totals(), strict=True):
        close(mine, theirs, 1e-12)


@pytest.mark.parametrize("n", [2, 400])
def test_undone_to_the_last_bit(n: int) -> None:
    state = empty(BandState, 2, 1, True)
    X, Y, R = batch(20, 2)
    state = state.absorb_at(X, Y, R, [], 0)
    before, undo = state.A.clone(), []  # type: ignore[var-annotated]
    X, Y, R = batch(n, 2, 1)
    state.absorb_at(X, Y, R, undo, 20)
    assert not torch.equal(state.A, before)
    for step in reversed(undo):
        step()
    assert torch.equal(state.A, before)


def test_rescaled_and_discounted() -> None:
    X, Y, R = batch(20, 2, outputs=2)
    states = [empty(kind, 2, 2, False) for kind in (GridState, BandState)]
    shift, factor = torch.tensor([0.3, -1.0]).double(), torch.tensor([2.0, 0.7]).double()
    plain, bands = (
        s.absorb_at(X, Y, R, [], 0).rescaled(shift, factor, True).discounted(0.5) for s in states
    )
    for A, B in zip(plain.A, bands.A, strict=True):
        close(dense(B, SIZES[2]), A, 1e-12)
    close(bands.b, plain.b, 1e-12)
    close(bands.yy, plain.yy, 1e-12)
