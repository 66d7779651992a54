"""The posterior on a dense grid through fewer numbers than nodes, for one output.

Where the evidence went through an eigenbasis, its features carry the posterior too; where it went
through the rows of a product kernel, an exact process on the points does. Both tell mean and
covariance of a few points, with derivatives, for less than rows of an ``m x m`` matrix cost, which
are more than a cache holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bo_stream.mathematics.grid.data_space import ProductPrior, RowFactorisation
from bo_stream.mathematics.grid.eigenbasis import Features
from bo_stream.mathematics.grid.posterior import Compact
from bo_stream.mathematics.grid.products import ProductRows, RowProcess
from bo_stream.mathematics.grid.reduced import InEigenbasis
from bo_stream.mathematics.grid.state import GridState
from bo_stream.mathematics.posterior.features import FeatureProcess

__all__ = ["compact_process"]

FEATURES = 0.5
"""Features for each node up to which they cost less than the nodes,"""
POINTS = 0.3
"""and points."""


def compact_process(
    made: Sequence[object], state: GridState, n: int, s2: Tensor, mean: Tensor
) -> Compact | None:
    """The posterior at the hyperparameters of an evaluation, or None where it has no such form.

    Args:
        made: What the evaluation left, an output each.
        state: The state it was of.
        n: Number of observations.
        s2: Noise scales, ``o``.
        mean: Constant prior means, ``o``.
    """
    if len(made) > 1:
        return None
    (part,), m = made, state.grid.m
    if isinstance(part, InEigenbasis) and part.basis.size <= FEATURES * m:
        q, S = part.made.q.unsqueeze(0), part.made.Q_inv.unsqueeze(0)
        return FeatureProcess(Features((part.basis,)), mean, q, S)
    if n > POINTS * m or not isinstance(part, RowFactorisation):
        return None
    if isinstance(part.prior, ProductPrior):
        X, _, R = state.opening.first(n)
        rows = ProductRows(part, part.prior, state.grid, X.clone(), s2[0].detach() * R[0])
        return RowProcess.of([rows], mean)
    return None
