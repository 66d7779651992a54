"""Evidence on a grid for all outputs: from the sums, or from the rows of W while they are few."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.grid.kernel import is_product, kernel_roots, kernel_values, product_factors
from bo_stream.grid.nodes import Grid
from bo_stream.grid.reduced import InEigenbasis, chosen_basis, reduced_evidence
from bo_stream.grid.rows import RowFactorisation, evidence_from_rows
from bo_stream.grid.state import GridState
from bo_stream.sums.evidence import Factorisation, attach, factorise

__all__ = ["grid_evidence", "of_weights"]

REDUCED_FROM = 500
"""Nodes from which an eigenbasis may pay,"""
REDUCED = 0.9
"""if it has fewer than this many times the nodes."""


def grid_evidence(
    state: GridState,
    grid: Grid,
    kernel: Kernel,
    n: int,
    s2: Tensor,
    c: Tensor,
    profile_mean: bool,
) -> tuple[Tensor, list[Factorisation | RowFactorisation | InEigenbasis]]:
    """Log evidence summed over outputs, with closed-form gradients (MATHS 2.3, 2.4), and what the
    posterior needs of it.

    Args:
        state: The state.
        grid: Its grid.
        kernel: The kernel, with or without one batch dimension of the outputs.
        n: Number of observations.
        s2: Noise scales, ``o``.
        c: Constant means, counted from the state's origin, ``o``.
        profile_mean: Take the best constant means instead.
    """
    outputs = len(state.b)
    rows = state.rows(n)
    made: list[Factorisation | RowFactorisation | InEigenbasis] = []
    values: list[Tensor] = []
    if rows is not None:
        for i, k in enumerate(kernel_values(kernel, grid, state.b, outputs)):
            y, r = state.row_targets(i, n)
            value, row_made = evidence_from_rows(k, grid, rows, y, r, s2[i], c[i], profile_mean)
            made.append(row_made)
            values.append(value + of_weights(state, i, n, s2[i], r))
        return torch.stack(values).sum(), made
    if grid.m >= REDUCED_FROM and is_product(kernel):
        reduced = _reduced(state, grid, kernel, s2, c, profile_mean)
        if reduced is not None:
            return reduced
    roots, sources = kernel_roots(kernel, grid, state.b, outputs)
    for i in range(outputs):
        with torch.no_grad():
            stats = state.statistics(i)
            value, grads, own = factorise(roots[i], stats, s2[i], c[i], profile_mean)
        made.append(own)
        values.append(attach(value, [s2[i], c[i], *sources[i]], grads))
    return torch.stack(values).sum(), made


def _reduced(
    state: GridState, grid: Grid, kernel: Kernel, s2: Tensor, c: Tensor, profile_mean: bool
) -> tuple[Tensor, list[Factorisation | RowFactorisation | InEigenbasis]] | None:
    """The same in the eigenbasis of the kernel, or None where it is not small enough to pay."""
    sources = product_factors(kernel, grid, state.b, len(state.b))
    made: list[Factorisation | RowFactorisation | InEigenbasis] = []
    values: list[Tensor] = []
    for i, own in enumerate(sources):
        with torch.no_grad():
            stats = state.statistics(i)
            basis = chosen_basis(grid, [t.detach() for t in own], s2[i], stats.one)
            if basis.size > REDUCED * grid.m:
                return None
            gram = basis.of_nodes(basis.of_nodes(stats.A).mT)
            value, grads, part = reduced_evidence(basis, gram, stats, s2[i], c[i], profile_mean)
        made.append(part)
        values.append(attach(value, [s2[i], c[i], *own], grads))
    return torch.stack(values).sum(), made


def of_weights(state: GridState, output: int, n: int, s2: Tensor, r: Tensor) -> Tensor:
    """What forgetting adds to the evidence of rows as noisy as ``r``: each density counts as often
    as its weight says (MATHS 2.2).
    """
    if float(state.weight) == n:
        return s2.new_zeros(())
    whole = (n - state.weight) * (2.0 * math.pi * s2).log() + r.log().sum()
    return 0.5 * (whole - state.ld[min(output, len(state.ld) - 1)])
