"""The posterior process on a grid, in the cheapest form.

If the evidence was computed from few features or observations, the posterior is on these and needs
nothing of the size of the grid. Otherwise it is that of the values at the nodes (`GridProcess`). A
large grid has only the first two forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from bo_stream.mathematics.grid.data_space import DataSpaceFactorisation, ProductPrior
from bo_stream.mathematics.grid.data_space_process import DataSpaceProcess
from bo_stream.mathematics.grid.eigenbasis import Features
from bo_stream.mathematics.grid.eigenbasis_evidence import EigenbasisFactorisation
from bo_stream.mathematics.grid.evidence import GridFactorisation
from bo_stream.mathematics.grid.posterior import GridProcess, stacked
from bo_stream.mathematics.grid.state import GridState
from bo_stream.mathematics.process import FeatureBasis, Process

__all__ = ["grid_process"]

DENSE_NODES = 4096
"""Nodes of a product kernel up to which the covariance of their values is formed."""
FEATURES = 0.5
"""Features per node up to which they cost less than the nodes."""
OBSERVATIONS = 0.3
"""Observations per node up to which they cost less than the nodes."""


def grid_process(
    state: GridState,
    made: Sequence[GridFactorisation],
    n: int,
    s2: Tensor,
    mean: Tensor,
    nodes: bool = False,
) -> GridProcess | Process:
    """The posterior at the hyperparameters of an evaluation.

    Args:
        state: The state.
        made: The factorisation of each output.
        n: Number of observations.
        s2: Noise scales, ``o``.
        mean: Constant prior means, ``o``.
        nodes: Whether to return that of the values at the nodes at any cost.
    """
    m = state.grid.m
    if m > DENSE_NODES or (_is_small(made, n, m) and not nodes):
        return _small_process(state, made, n, s2, mean)
    means, covs = zip(*(part.node_values() for part in made), strict=True)
    mean_u = torch.stack(means) + state.origin.unsqueeze(-1)
    return GridProcess(state.grid, mean_u, stacked(covs))


def _is_small(made: Sequence[GridFactorisation], n: int, m: int) -> bool:
    part = made[0]
    if isinstance(part, EigenbasisFactorisation):
        bases = [cast(EigenbasisFactorisation, one).basis for one in made]
        return sum(basis.size for basis in bases) <= FEATURES * m
    through_data = isinstance(part, DataSpaceFactorisation) and isinstance(part.prior, ProductPrior)
    return through_data and n <= OBSERVATIONS * m


def _small_process(
    state: GridState, made: Sequence[GridFactorisation], n: int, s2: Tensor, mean: Tensor
) -> Process:
    """The posterior through features or observations."""
    if isinstance(made[0], DataSpaceFactorisation):
        X, _, R = state.buffer.first(n)
        noise = s2.detach().unsqueeze(-1) * R
        parts = [cast(DataSpaceFactorisation, part) for part in made]
        return DataSpaceProcess.of(parts, state.grid, X.clone(), noise, mean)
    return _feature_process([cast(EigenbasisFactorisation, part) for part in made], mean)


def _feature_process(made: Sequence[EigenbasisFactorisation], mean: Tensor) -> Process:
    bases = [part.basis for part in made]
    u, L = [part.made.q for part in made], [part.made.L for part in made]
    if all(basis.same_as(bases[0]) for basis in bases):
        basis = FeatureBasis(bases[0], torch.ones_like(u[0]).expand(len(u), -1))
        return Process(None, basis, None, stacked(L), torch.stack(u), mean)
    eye = torch.eye(len(L), dtype=mean.dtype, device=mean.device)  # the features of each output
    ones = [torch.ones_like(part) for part in u]
    scale, means = (
        torch.stack([torch.cat([e * v for e, v in zip(row, parts, strict=True)]) for row in eye])
        for parts in (ones, u)
    )
    factors = [
        [M if e else torch.eye(len(M)).to(M) for e, M in zip(row, L, strict=True)] for row in eye
    ]
    whole = torch.stack([torch.block_diag(*row) for row in factors])
    return Process(None, FeatureBasis(Features(tuple(bases)), scale), None, whole, means, mean)
