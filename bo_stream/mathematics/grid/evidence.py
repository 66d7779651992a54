"""The log evidence of a process on a grid, summed over outputs [MATHS 2.3, 2.4, 2.7].

Three routes lead to it:

- ``data``: the ``n x n`` covariance of the observations, while all of them are held;
- ``eigenbasis``: the eigenvectors of a product kernel on the nodes that matter given the data;
- ``nodes``: a root of the ``m x m`` kernel matrix, for a kernel that is no product over inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.errors import StateError, UnsupportedError
from bo_stream.mathematics.grid.compressed import CompressedStatistics
from bo_stream.mathematics.grid.data_space import DataSpaceFactorisation, evidence_from_data
from bo_stream.mathematics.grid.eigenbasis_evidence import (
    EigenbasisFactorisation,
    chosen_basis,
    eigenbasis_evidence,
)
from bo_stream.mathematics.grid.kernel import (
    data_space_priors,
    is_kronecker,
    kernel_matrices,
    product_factors,
)
from bo_stream.mathematics.grid.roots import dense_root
from bo_stream.mathematics.grid.state import MOST_NODES, GridState
from bo_stream.mathematics.sufficient_statistics.evidence import (
    RootFactorisation,
    attach,
    factorise,
)

__all__ = ["GridFactorisation", "Route", "dropped_share", "grid_evidence"]

Route = Literal["data", "eigenbasis", "nodes"]
GridFactorisation = RootFactorisation | DataSpaceFactorisation | EigenbasisFactorisation

CHEAPER = 0.8
"""Observations per node up to which the data route costs less than the nodes."""
FEW_DATA = 300
"""Observations up to which the data route costs less than choosing eigenvectors. From there on it
costs less while there are fewer observations than eigenvectors."""
MOST_EIGENVECTORS = 4000


def grid_evidence(
    state: GridState,
    kernel: Kernel,
    n: int,
    s2: Tensor,
    c: Tensor,
    profile_mean: bool,
    compressed: CompressedStatistics,
    route: Route | None = None,
) -> tuple[Tensor, list[GridFactorisation]]:
    """Log evidence with closed-form gradients, and each output's factorisation for the posterior.

    Args:
        state: The state.
        kernel: The kernel, with or without one batch dimension of the outputs.
        n: Number of observations.
        s2: Noise scales, ``o``.
        c: Constant means, counted from the state's origin, ``o``.
        profile_mean: Take the optimal constant means instead.
        compressed: What earlier evaluations computed from the same state; added to.
        route: By default the cheapest. ``data`` needs all observations held.

    Raises:
        UnsupportedError: for a kernel that is no product on a large grid.
        StateError: if too many eigenvectors matter, and not all observations are held.
    """
    grid, product = state.grid, is_kronecker(kernel, state.grid)
    if grid.m > MOST_NODES and not product:
        raise UnsupportedError(
            "a product of one-dimensional kernels on a large grid",
            type(kernel).__name__,
            "Rebuild the surrogate for this kernel.",
        )
    held, given = state.holds_all(n), (state, kernel, n, s2, c, profile_mean)
    few = held and n <= CHEAPER * grid.m
    if route == "data" or (route is None and few and (n <= FEW_DATA or not product)):
        return _through_data(*given)
    if route == "nodes" or not product:
        return _through_nodes(state, kernel, s2, c, profile_mean, compressed)
    sources = product_factors(kernel, grid, state.b, len(state.b))
    with torch.no_grad():
        totals = compressed.totals_of(state)
        stats = [state.statistics(i, totals) for i in range(len(sources))]
        factors = [[t.detach() for t in own] for own in sources]
        bases = [
            chosen_basis(grid, own, noise, each.one, MOST_EIGENVECTORS)
            for own, noise, each in zip(factors, s2, stats, strict=True)
        ]
    r = max(basis.size for basis in bases)
    if route is None and ((few and n < r) or (held and r > MOST_EIGENVECTORS)):
        return _through_data(*given)
    if r > MOST_EIGENVECTORS:
        raise _too_many(grid.m, r, n)
    made, values = list[GridFactorisation](), list[Tensor]()
    for i, (basis, own) in enumerate(zip(bases, stats, strict=True)):
        with torch.no_grad():
            gram = compressed.gram(state, i, basis, factors[i])
            value, grads, part = eigenbasis_evidence(basis, gram, own, s2[i], c[i], profile_mean)
        made.append(part)
        values.append(attach(value, [s2[i], c[i], *sources[i]], grads))
    return torch.stack(values).sum(), made


def _through_data(
    state: GridState, kernel: Kernel, n: int, s2: Tensor, c: Tensor, profile_mean: bool
) -> tuple[Tensor, list[GridFactorisation]]:
    """O(n^3), and O(m^2 + n m) for a kernel that is no product."""
    X, Y, R = state.buffer.first(n)
    values, made = list[Tensor](), list[GridFactorisation]()
    for i, prior in enumerate(data_space_priors(kernel, state.grid, X, len(Y))):
        y, r = Y[i] - state.origin[i], R[min(i, len(R) - 1)]
        value, part = evidence_from_data(prior, y, r, s2[i], c[i], profile_mean)
        values.append(value + _forgotten(state, i, n, s2[i], r))
        made.append(part)
    return torch.stack(values).sum(), made


def _through_nodes(
    state: GridState,
    kernel: Kernel,
    s2: Tensor,
    c: Tensor,
    profile_mean: bool,
    compressed: CompressedStatistics,
) -> tuple[Tensor, list[GridFactorisation]]:
    """O(m^3)."""
    values, made = list[Tensor](), list[GridFactorisation]()
    band = 4 * (state.grid.m // state.grid.sizes[0])
    for i, K in enumerate(kernel_matrices(kernel, state.grid, state.b, len(state.b))):
        with torch.no_grad():
            root, A = dense_root(K.detach(), band), compressed.matrix(state, i)
            stats = replace(state.statistics(i), A=A)
            value, grads, part = factorise(root, stats, s2[i], c[i], profile_mean)
        values.append(attach(value, [s2[i], c[i], K], grads))
        made.append(part)
    return torch.stack(values).sum(), made


def _forgotten(state: GridState, output: int, n: int, s2: Tensor, r: Tensor) -> Tensor:
    """Correction for forgetting, in which the density of each observation has its weight as power
    (MATHS 2.2); ``r`` are noise variances divided by weights.
    """
    if float(state.weight) == n:
        return s2.new_zeros(())
    whole = (n - state.weight) * (2.0 * math.pi * s2).log() + r.log().sum()
    return 0.5 * (whole - state.ld[min(output, len(state.ld) - 1)])


def dropped_share(made: Sequence[GridFactorisation]) -> float:
    """Largest share of the prior variance at a node that an eigenbasis leaves out; else 0."""
    bases = [part.basis for part in made if isinstance(part, EigenbasisFactorisation)]
    return max((float(basis.dropped()) for basis in bases), default=0.0)


def _too_many(m: int, r: int, n: int) -> StateError:
    return StateError(
        f"lengthscales for which at most {MOST_EIGENVECTORS} eigenvectors of the kernel on {m} "
        "nodes matter, or observations that are all held",
        f"{r} eigenvectors, some {24 * r * r / 2**30:.1f} GiB an evaluation, and {n} observations, "
        "not all held",
        "Bound the lengthscales from below (at about two steps of the grid), take a coarser grid, "
        "or use NodeWISKI.",
    )
