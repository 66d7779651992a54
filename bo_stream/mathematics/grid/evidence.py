"""Evidence on a grid for all outputs: from the sums, or from the points while they are few."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.grid.data_space import RowFactorisation, evidence_from_rows
from bo_stream.mathematics.grid.kernel import is_product, kernel_roots, product_factors, row_priors
from bo_stream.mathematics.grid.reduced import InEigenbasis, chosen_basis, reduced_evidence
from bo_stream.mathematics.grid.state import GridState
from bo_stream.mathematics.sufficient_statistics.evidence import Factorisation, attach, factorise

__all__ = ["grid_evidence", "of_weights"]

REDUCED_FROM = 500
"""Nodes from which an eigenbasis may pay,"""
REDUCED = 0.9
"""if it has fewer than this many times the nodes;"""
FEW_ROWS = 300
"""and where points are held, if these are more than this many, and more than the eigenvectors."""

FEW = 0.8
"""Points for each node up to which their rows cost less than the sums."""


def grid_evidence(
    state: GridState,
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
        kernel: The kernel, with or without one batch dimension of the outputs.
        n: Number of observations.
        s2: Noise scales, ``o``.
        c: Constant means, counted from the state's origin, ``o``.
        profile_mean: Take the best constant means instead.
    """
    grid, outputs = state.grid, len(state.b)
    made: list[Factorisation | RowFactorisation | InEigenbasis] = []
    values: list[Tensor] = []
    held = 0 < n <= FEW * grid.m and state.at_hand(n)
    if grid.m >= REDUCED_FROM and is_product(kernel) and not (held and n <= FEW_ROWS):
        most = min(n, REDUCED * grid.m) if held else REDUCED * grid.m
        reduced = _reduced(state, kernel, s2, c, profile_mean, most)
        if reduced is not None:
            return reduced
    if held:
        X, Y, R = state.opening.first(n)
        for i, prior in enumerate(row_priors(kernel, grid, X, outputs)):
            y, r = Y[i] - state.origin[i], R[min(i, len(R) - 1)]
            value, row_made = evidence_from_rows(prior, y, r, s2[i], c[i], profile_mean)
            made.append(row_made)
            values.append(value + of_weights(state, i, n, s2[i], r))
        return torch.stack(values).sum(), made
    roots, sources = kernel_roots(kernel, grid, state.b, outputs)
    for i in range(outputs):
        with torch.no_grad():
            stats = state.statistics(i)
            value, grads, own = factorise(roots[i], stats, s2[i], c[i], profile_mean)
        made.append(own)
        values.append(attach(value, [s2[i], c[i], *sources[i]], grads))
    return torch.stack(values).sum(), made


def _reduced(
    state: GridState, kernel: Kernel, s2: Tensor, c: Tensor, profile_mean: bool, most: float
) -> tuple[Tensor, list[Factorisation | RowFactorisation | InEigenbasis]] | None:
    """The same in the kernel's eigenbasis, or None where it has more than ``most`` features."""
    grid = state.grid
    sources = product_factors(kernel, grid, state.b, len(state.b))
    made: list[Factorisation | RowFactorisation | InEigenbasis] = []
    values: list[Tensor] = []
    for i, own in enumerate(sources):
        with torch.no_grad():
            stats = state.statistics(i)
            basis = chosen_basis(grid, [t.detach() for t in own], s2[i], stats.one)
            if basis.size > most:
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
