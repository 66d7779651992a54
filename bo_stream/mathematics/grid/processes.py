"""The posterior process on a grid, in the cheapest form.

On a grid of at most some thousand nodes it is the posterior of the values at the nodes
(`GridProcess`). If the evidence was computed from fewer features or observations, these give the
mean and covariance of a few points at a lower cost. A large grid has only these two forms.
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
from bo_stream.mathematics.grid.state import BandState, GridState
from bo_stream.mathematics.posterior.features import DenseCovariance, FeatureProcess

__all__ = ["grid_process"]

FEATURES = 0.5
"""Features per node up to which they cost less than the nodes."""
OBSERVATIONS = 0.3
"""Observations per node up to which they cost less than the nodes."""


def grid_process(
    state: GridState, made: Sequence[GridFactorisation], n: int, s2: Tensor, mean: Tensor
) -> GridProcess | FeatureProcess | DataSpaceProcess:
    """The posterior at the hyperparameters of an evaluation.

    Args:
        state: The state.
        made: The factorisation of each output.
        n: Number of observations.
        s2: Noise scales, ``o``.
        mean: Constant prior means, ``o``.
    """
    if isinstance(state, BandState):
        return _small_process(state, made, n, s2, mean)
    means, covs = zip(*(part.node_values() for part in made), strict=True)
    compact = _small_process(state, made, n, s2, mean) if _is_small(state, made, n) else None
    mean_u = torch.stack(means) + state.origin.unsqueeze(-1)
    return GridProcess(state.grid, mean_u, stacked(covs), compact=compact)


def _is_small(state: GridState, made: Sequence[GridFactorisation], n: int) -> bool:
    part, m = made[0], state.grid.m
    if isinstance(part, EigenbasisFactorisation):
        return len(made) == 1 and part.basis.size <= FEATURES * m
    through_data = isinstance(part, DataSpaceFactorisation) and isinstance(part.prior, ProductPrior)
    return len(made) == 1 and through_data and n <= OBSERVATIONS * m


def _small_process(
    state: GridState, made: Sequence[GridFactorisation], n: int, s2: Tensor, mean: Tensor
) -> FeatureProcess | DataSpaceProcess:
    """The posterior through features or observations."""
    if isinstance(made[0], DataSpaceFactorisation):
        X, _, R = state.buffer.first(n)
        noise = s2.detach().unsqueeze(-1) * R
        parts = [cast(DataSpaceFactorisation, part) for part in made]
        return DataSpaceProcess.of(parts, state.grid, X.clone(), noise, mean)
    return _feature_process([cast(EigenbasisFactorisation, part) for part in made], mean)


def _feature_process(made: Sequence[EigenbasisFactorisation], mean: Tensor) -> FeatureProcess:
    bases = [part.basis for part in made]
    q = [part.made.q for part in made]
    S = [part.made.Q_inv for part in made]
    if all(basis.same_as(bases[0]) for basis in bases):
        return FeatureProcess(
            Features((bases[0],)), mean, torch.stack(q), DenseCovariance(stacked(S))
        )
    own = torch.eye(len(S), dtype=mean.dtype, device=mean.device)  # the features of each output
    means = torch.stack([torch.cat([e * v for e, v in zip(row, q, strict=True)]) for row in own])
    covs = [torch.block_diag(*(e * M for e, M in zip(row, S, strict=True))) for row in own]
    return FeatureProcess(Features(tuple(bases)), mean, means, DenseCovariance(torch.stack(covs)))
